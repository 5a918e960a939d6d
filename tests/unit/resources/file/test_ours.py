"""What manifests may say of files beside Choria CCM: content once, masks, owners left alone, URLs with checksums."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from ccm_agent.model.errors import DownloadError, FileError, PropertyError
from ccm_agent.resources.contract import DecisionContext
from ccm_agent.resources.file import TYPE
from ccm_agent.resources.file.model import FileProperties, parse_mode
from ccm_agent.resources.file.providers.posix import PosixFile
from ccm_agent.testing.download import FakeDownload
from ccm_agent.testing.files import FakeEntry, FakeFiles
from tests.support.resources import manage

URL = "https://site/motd"


class Place:
    """A directory /srv in memory, and a web server."""

    def __init__(self) -> None:
        self.files = FakeFiles()
        self.files.put_directory("/srv")
        self.download = FakeDownload(write=lambda path, content: self.files.put(path, content, mode=0o600))
        self.provider = PosixFile(self.files, "/srv", lambda: self.download)

    @property
    def node(self) -> FakeEntry:
        return self.files.nodes["/srv/x"]

    @property
    def found(self) -> tuple[bytes, str, int, int]:
        """Content, mode, owner and group of the file."""
        return self.node.content, f"{self.node.mode:04o}", self.node.uid, self.node.gid

    async def apply(self, *, noop: bool = False, **properties: Any) -> tuple[str, str]:
        """Outcome of a file, and what was said of it."""
        words: dict[str, Any] = {"owner": "root", "group": "root", "mode": "0644", "ensure": "present"}
        wanted = FileProperties(name="/srv/x", **(words | properties))
        assert TYPE.check is not None
        TYPE.check(wanted)
        event = await manage(TYPE, self.provider, wanted, noop=noop)
        return event.outcome.value, event.error[0] if event.error else event.noop_message


@pytest.mark.parametrize(
    ("mode", "kept", "bits"),
    [
        pytest.param("7xx", 0o644, 0o744, id="owner's digit"),
        pytest.param("x00", 0o644, 0o600, id="group's and others' digits"),
        pytest.param("xxx", 0o751, 0o751, id="none"),
        pytest.param("640", 0o777, 0o640, id="all"),
    ],
)
def test_digits_of_a_mode_that_do_not_matter_are_kept(mode: str, kept: int, bits: int) -> None:
    assert parse_mode(mode, kept) == bits


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        pytest.param({"mode": "0x44"}, "mode `0x44` is not an octal number", id="hexadecimal is not a mask"),
        pytest.param({"mode": "7x"}, "mode `7x` is not an octal number", id="two digits"),
        pytest.param(
            {"replace": False},
            "`replace: false` requires `content` or `source`",
            id="nothing to replace",
        ),
        pytest.param(
            {"source": "x", "checksum": "abc"},
            "`checksum` is not SHA-256 in hex: 64 digits from 0 to f",
            id="no checksum",
        ),
        pytest.param(
            {"content": "x", "checksum": "0" * 64},
            "`checksum` requires `source`, because it is the digest of its content",
            id="checksum without source",
        ),
    ],
)
async def test_contradictory_options_are_refused(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(PropertyError) as caught:
        await Place().apply(**properties)

    assert caught.value.message.startswith(message)


async def test_content_that_is_not_replaced_is_written_once_and_then_left_alone() -> None:
    place = Place()
    words: dict[str, Any] = {"content": "first", "replace": False}

    assert await place.apply(noop=True, **words) == ("changed", "Would have created the file")
    assert await place.apply(**words) == ("changed", "")
    place.node.content = b"edited"
    assert await place.apply(**words) == ("stable", "")
    place.node.mode = 0o600
    assert await place.apply(noop=True, **words) == ("changed", "Would have updated attributes")
    assert await place.apply(**words) == ("changed", "")
    assert place.found == (b"edited", "0644", 0, 0)


async def test_a_source_that_is_not_replaced_may_be_gone_once_the_file_is_there() -> None:
    place = Place()
    place.files.put("/srv/x", "edited")

    assert await place.apply(source="none", replace=False) == ("stable", "")


async def test_a_mask_changes_the_digits_that_matter_alone() -> None:
    place = Place()
    place.files.put("/srv/x", "a", mode=0o645)

    assert await place.apply(mode="7xx") == ("changed", "")
    assert place.found == (b"a", "0745", 0, 0)
    assert await place.apply(mode="7xx", content="b") == ("changed", "")
    assert place.found == (b"b", "0745", 0, 0)
    assert await place.apply(mode="7xx", content="b") == ("stable", "")


async def test_a_new_file_is_made_as_files_usually_are_where_nothing_matters() -> None:
    place = Place()

    assert await place.apply(mode="xx0", owner="*", group="*", content="a") == ("changed", "")
    assert place.found == (b"a", "0640", 0, 0)


async def test_a_new_directory_can_be_entered_where_its_mode_does_not_matter() -> None:
    place = Place()

    assert await place.apply(mode="7xx", ensure="directory") == ("changed", "")
    assert (place.node.kind, place.node.mode) == ("directory", 0o755)
    place.node.mode = 0o700
    assert await place.apply(mode="7xx", ensure="directory") == ("stable", "")


async def test_an_owner_that_is_left_alone_survives_new_content() -> None:
    place = Place()
    place.files.put("/srv/x", "a", uid=33, gid=34)

    assert await place.apply(owner="*", group="*", content="b") == ("changed", "")
    assert place.found == (b"b", "0644", 33, 34)
    assert await place.apply(owner="*", group="daemon", content="b") == ("changed", "")
    assert place.found == (b"b", "0644", 33, 1)
    assert await place.apply(owner="*", group="*", content="b") == ("stable", "")


async def test_a_url_is_fetched_where_the_file_differs() -> None:
    place = Place()
    place.download.serve(URL, b"hello")

    assert await place.apply(source=URL, mode="0600") == ("changed", "")
    assert place.found == (b"hello", "0600", 0, 0)
    assert await place.apply(source=URL, mode="0600") == ("stable", "")
    assert [name for name in place.files.nodes if ".part" in name] == []


async def test_a_url_with_a_checksum_is_not_asked_while_the_file_is_right() -> None:
    place = Place()
    place.files.put("/srv/x", "hello")

    assert await place.apply(source=URL, checksum=sha256(b"hello").hexdigest().upper()) == ("stable", "")
    assert place.download.transfers == []


async def test_content_with_another_checksum_changes_nothing() -> None:
    place = Place()
    place.files.put("/srv/x", "old")
    place.download.serve(URL, b"evil")
    good, evil = sha256(b"hello").hexdigest(), sha256(b"evil").hexdigest()

    assert await place.apply(source=URL, checksum=good) == (
        "failed",
        f"{URL}: checksum mismatch: wanted {good}, got {evil}; nothing was changed",
    )
    assert place.node.content == b"old"
    assert [name for name in place.files.nodes if ".part" in name] == []


async def test_a_local_source_with_another_checksum_is_refused() -> None:
    place = Place()
    place.files.put("/srv/x", "old")
    place.files.put("/srv/y", "evil")
    good, evil = sha256(b"hello").hexdigest(), sha256(b"evil").hexdigest()

    assert await place.apply(source="y", checksum=good) == (
        "failed",
        f"source /srv/y: checksum mismatch: found {evil}, wanted {good}",
    )


async def test_a_server_that_has_nothing_fails_the_file_and_shows_no_password() -> None:
    place = Place()
    place.files.put("/srv/x", "old")

    assert await place.apply(source="https://u:secret@site/none") == (
        "failed",
        "source https://***@site/none: the server answered 404",
    )


async def test_urls_are_not_asked_ahead() -> None:
    place = Place()
    words: dict[str, Any] = {"ensure": "present", "owner": "root", "group": "root", "mode": "0644"}
    wanted = [
        FileProperties(name="/srv/x", source=URL, **words),
        FileProperties(name="/srv/y", content="", **words),
    ]

    ahead = await place.provider.look_ahead(wanted)

    assert [one is None for one in ahead] == [True, False]
    assert place.download.transfers == []


async def test_without_the_port_a_url_is_an_error() -> None:
    files = FakeFiles()
    files.put_directory("/srv")
    wanted = FileProperties(
        name="/srv/x", ensure="present", source=URL, owner="root", group="root", mode="0644"
    )

    with pytest.raises(DownloadError):
        await PosixFile(files, "/srv").store(wanted)


async def test_an_owner_that_does_not_exist_is_found_before_a_byte_is_fetched() -> None:
    place = Place()
    wanted = FileProperties(
        name="/srv/x", ensure="present", source=URL, owner="ghost", group="root", mode="0644"
    )

    with pytest.raises(FileError):
        await place.provider.store(wanted)

    assert place.download.transfers == []
    assert TYPE.decide(wanted, await place.provider.status(wanted), DecisionContext(noop=True)).steps != ()
