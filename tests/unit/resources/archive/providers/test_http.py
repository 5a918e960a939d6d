"""Archives from a web server and files that are dictionaries: what is where, whatever goes wrong."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.ports import Packed
from ccm_agent.resources.archive import TYPE
from ccm_agent.resources.archive.model import ArchiveProperties
from ccm_agent.resources.archive.providers.http import Http
from ccm_agent.testing.download import FakeDownload
from ccm_agent.testing.files import FakeFiles
from tests.support.resources import manage

URL = "https://example.net/app.tar.gz"
FILE = "/srv/app.tar.gz"
NEW = hashlib.sha256(b"new").hexdigest()


class Host:
    """
    A host with a web server.

    Attributes:
        unpacked: What was unpacked, where.
        fails: Why unpacking fails; "" when it does not.
        makes: What unpacking makes.
    """

    def __init__(self) -> None:
        self.files = FakeFiles()
        self.files.put_directory("/srv")
        self.download = FakeDownload(write=self.files.put)
        self.download.serve(URL, b"new")
        self.unpacked: list[tuple[Packed, str]] = []
        self.fails = ""
        self.makes = "/opt/app"

    async def unpack(self, packed: Packed, into: str) -> int:
        self.unpacked.append((packed, into))
        if self.fails:
            raise FileError(f"{packed.path}: {self.fails}")
        self.files.put(self.makes, b"made")
        return 1

    async def apply(self, *, noop: bool = False, **properties: Any) -> TransactionEvent:
        given = {"name": FILE, "ensure": "present", "url": URL, "owner": "root", "group": "root"}
        provider = Http(self.files, self.download, self, self._say)
        return await manage(TYPE, provider, ArchiveProperties(**{**given, **properties}), noop=noop)

    def _say(self, message: str, **fields: object) -> None:
        """Nobody listens."""

    @property
    def there(self) -> dict[str, bytes]:
        """Regular files by path."""
        return {path: node.content for path, node in self.files.nodes.items() if node.kind == "file"}


UNPACKING = {"extract_parent": "/opt"}
TELLING = {**UNPACKING, "creates": "/opt/app"}


@pytest.mark.parametrize(
    ("properties", "there"),
    [
        pytest.param({}, {FILE: b"new"}, id="downloaded"),
        pytest.param({"checksum": NEW}, {FILE: b"new"}, id="with a checksum"),
        pytest.param({"checksum": NEW.upper()}, {FILE: b"new"}, id="with a checksum in upper case"),
        pytest.param(UNPACKING, {FILE: b"new", "/opt/app": b"made"}, id="unpacked"),
        pytest.param(TELLING, {FILE: b"new", "/opt/app": b"made"}, id="unpacked, with creates"),
        pytest.param({**TELLING, "cleanup": True}, {"/opt/app": b"made"}, id="cleaned up"),
    ],
)
async def test_once_changed_it_is_stable(properties: dict[str, Any], there: dict[str, bytes]) -> None:
    host = Host()

    events = [await host.apply(noop=noop, **properties) for noop in (True, False, False)]

    assert [event.outcome.value for event in events] == ["changed", "changed", "stable"]
    assert (host.there, len(host.download.transfers)) == (there, 1)


async def test_a_download_belongs_to_its_owner_alone() -> None:
    host = Host()

    await host.apply(owner="daemon", group="nogroup")

    node = host.files.nodes[FILE]
    assert (node.uid, node.gid, node.mode) == (1, 65534, 0o600)


async def test_an_owner_that_does_not_exist_is_found_before_a_byte_is_fetched() -> None:
    host = Host()

    event = await host.apply(owner="nosuchuser")

    assert event.failed
    assert (host.download.transfers, host.there) == ([], {})


async def test_another_checksum_leaves_the_previous_content() -> None:
    host = Host()
    host.files.put(FILE, b"old")

    event = await host.apply(checksum="0" * 64)

    assert event.error == [
        f'download failed: checksum mismatch, expected "{"0" * 64}" got "{NEW}"; {URL} was not put in place'
    ]
    assert host.there == {FILE: b"old"}


OLD_FILE, OLD_APP = {FILE: b"old"}, {"/opt/app": b"old"}


@pytest.mark.parametrize(
    ("properties", "before"),
    [
        pytest.param(UNPACKING, {}, id="nothing tells"),
        pytest.param(UNPACKING, OLD_APP, id="nothing tells, something there"),
        pytest.param({**UNPACKING, "checksum": NEW}, {}, id="a checksum"),
        pytest.param({**UNPACKING, "checksum": NEW}, OLD_FILE, id="a checksum, an older release"),
        pytest.param(TELLING, {}, id="creates"),
        pytest.param(TELLING, OLD_FILE, id="creates, an archive of unknown content"),
        pytest.param(TELLING, OLD_APP, id="creates is there, the archive is not"),
        pytest.param({**TELLING, "checksum": NEW}, {}, id="creates and a checksum"),
        pytest.param({**TELLING, "checksum": NEW}, OLD_FILE, id="creates and a checksum, an older archive"),
        pytest.param({**TELLING, "checksum": NEW}, OLD_APP, id="creates and a checksum, creates is there"),
        pytest.param({**TELLING, "checksum": NEW}, OLD_FILE | OLD_APP, id="a new release over an older one"),
    ],
)
async def test_unpacking_that_failed_is_done_again_the_next_time(
    properties: dict[str, Any], before: dict[str, bytes]
) -> None:
    host = Host()
    for path, content in before.items():
        host.files.put(path, content)
    host.fails = "no room"

    first, second = await host.apply(**properties), await host.apply(**properties)
    host.fails = ""
    third, fourth = await host.apply(**properties), await host.apply(**properties)

    outcomes = [event.outcome.value for event in (first, second, third, fourth)]
    assert outcomes == ["failed", "failed", "changed", "stable"]
    assert first.error == [f"{FILE}: no room"]
    assert host.there == {FILE: b"new", "/opt/app": b"made"}


async def test_the_creates_marker_is_named_as_in_the_archive() -> None:
    host = Host()

    await host.apply(**TELLING)

    assert [(packed.kind, packed.proof, into) for packed, into in host.unpacked] == [
        ("tar.gz", "app", "/opt")
    ]


async def test_a_marker_outside_the_archive_is_not_an_entry() -> None:
    host = Host()
    host.makes = "/elsewhere/app"

    await host.apply(extract_parent="/opt", creates="/elsewhere/app")

    assert [packed.proof for packed, _ in host.unpacked] == [""]


@pytest.mark.parametrize(
    ("uid", "mode", "after"),
    [
        pytest.param(1, 0o600, (0, 0o600), id="another owner"),
        pytest.param(0, 0o666, (0, 0o600), id="others may write"),
        pytest.param(1, 0o644, (0, 0o644), id="another owner, and others may read"),
    ],
)
async def test_drift_of_owner_and_mode_is_repaired_without_a_download(
    uid: int, mode: int, after: tuple[int, int]
) -> None:
    host = Host()
    host.files.put(FILE, b"new", uid=uid, mode=mode)

    events = [await host.apply(noop=noop, checksum=NEW) for noop in (True, False, False)]

    assert [event.outcome.value for event in events] == ["changed", "changed", "stable"]
    assert events[0].noop_message == "Would have updated attributes"
    assert (host.files.nodes[FILE].uid, host.files.nodes[FILE].mode) == after
    assert host.download.transfers == []


async def test_without_a_checksum_an_archive_that_others_may_write_to_is_fetched_again() -> None:
    host = Host()
    host.files.put(FILE, b"whatever", mode=0o666)

    event = await host.apply()

    assert (event.outcome.value, host.there, host.files.nodes[FILE].mode) == (
        "changed",
        {FILE: b"new"},
        0o600,
    )


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("directory", "is a directory, not an archive"),
        ("other", "is neither a file nor a directory"),
    ],
)
async def test_a_path_that_is_not_a_file_is_an_error(kind: str, sentence: str) -> None:
    host = Host()
    host.files.put_directory(FILE)
    host.files.nodes[FILE].kind = kind

    event = await host.apply()

    assert event.failed
    assert sentence in event.error[0]


async def test_removing_the_archive_keeps_the_unpacked_files() -> None:
    host = Host()
    await host.apply(**TELLING)

    events = [await host.apply(ensure="absent", **TELLING) for _ in range(2)]

    assert [event.outcome.value for event in events] == ["changed", "stable"]
    assert host.there == {"/opt/app": b"made"}


async def test_the_downloaded_archive_is_the_unpacked_one() -> None:
    host = Host()

    await host.apply(**UNPACKING)

    assert [packed.sha256 for packed, _ in host.unpacked] == [NEW]


async def test_an_existing_archive_must_match_the_checksum() -> None:
    host = Host()
    host.files.put(FILE, b"new")
    host.files.nodes[FILE].mode = 0o600

    await host.apply(checksum=NEW.upper(), **TELLING)

    assert ([packed.sha256 for packed, _ in host.unpacked], host.download.transfers) == ([NEW], [])
