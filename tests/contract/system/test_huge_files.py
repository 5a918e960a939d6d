"""
Files that say that they hold terabytes, where others can put them.

Any user makes such a file in no time, on no disk, and reading it takes hours. Each apply here has seconds, and what it reads is
counted.
"""

from __future__ import annotations

import asyncio
import errno
import getpass
import grp
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.app import App
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.health.goss.check import attempt
from ccm_agent.model.errors import FileError
from ccm_agent.model.health import HealthCheck
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.ports import ContentRef, Digest, Packed
from ccm_agent.system import atomic_write as store_module
from ccm_agent.system import file_inspection as look_module
from ccm_agent.system.archives.unpack import unpack
from ccm_agent.system.files import SystemFiles
from ccm_agent.system.runner import SystemRunner
from ccm_agent.system.threads import CancelFlag
from ccm_agent.system.trees.trees import SystemTrees
from ccm_agent.testing.clock import FakeClock
from tests.support.web import Web

HUGE = 8 << 40
LIMIT_S = 15
READ_MAX = 64 << 20
VERSION_TEXT = Path("/proc/version").read_bytes()
OWN = {"owner": getpass.getuser(), "group": grp.getgrgid(os.getgid()).gr_name}


def huge(path: Path, size: int = HUGE, *, begin: bytes = b"") -> Path:
    """A file of that size that takes next to nothing on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(begin)
    os.truncate(path, size)
    return path


@contextmanager
def little_is_read() -> Iterator[None]:
    """What happens reads no more than a usual run does."""
    before = read_bytes()
    yield
    assert read_bytes() - before < READ_MAX


def read_bytes() -> int:
    """How much this process has read so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar:")).split()[1])


async def apply(folder: Path, resource: dict[str, Any], *, noop: bool = False) -> TransactionEvent:
    """Apply one resource; its event."""
    text = json.dumps({"ccm": {"resources": [resource]}}).encode()
    events: list[TransactionEvent] = []
    source = ManifestSource(text=text, directory=str(folder), name="m.yaml")
    options = ApplyOptions(on_event=events.append, facts={}, noop=noop)
    app = App({"XDG_STATE_HOME": str(folder / "state")}, str(folder))
    with little_is_read():
        async with asyncio.timeout(LIMIT_S):
            await app.engine().apply(source, options)
    (event,) = events
    return event


def file(path: Path, **properties: Any) -> dict[str, Any]:
    """A file resource."""
    return {"file": [{str(path): {"ensure": "present", "mode": "0644", **OWN, **properties}}]}


class TestFileResources:
    async def test_content_is_written_over_a_huge_file_without_reading_it(self, tmp_path: Path) -> None:
        target = huge(tmp_path / "target")

        event = await apply(tmp_path, file(target, content="hello"))

        assert (event.changed, event.error) == (True, [])
        assert target.read_text() == "hello"

    async def test_noop_reports_the_different_sizes(self, tmp_path: Path) -> None:
        target = huge(tmp_path / "target")

        event = await apply(tmp_path, file(target, content="hello"), noop=True)

        assert (event.noop_message, event.error) == ("Would have created the file", [])
        assert target.stat().st_size == HUGE

    async def test_a_source_is_written_over_it_too(self, tmp_path: Path) -> None:
        target = huge(tmp_path / "target")
        (tmp_path / "source").write_text("from here")

        event = await apply(tmp_path, file(target, source="source"))

        assert (event.changed, target.read_text()) == (True, "from here")

    async def test_one_as_large_as_its_source_is_detected_from_it_by_its_holes(self, tmp_path: Path) -> None:
        target = huge(tmp_path / "target")
        huge(tmp_path / "source")

        event = await apply(tmp_path, file(target, source="source"))

        assert event.failed
        assert f"cannot be copied: its size is {HUGE} bytes" in event.error[0]

    async def test_a_source_of_terabytes_is_refused_before_a_byte_is_written(self, tmp_path: Path) -> None:
        huge(tmp_path / "source")

        event = await apply(tmp_path, file(tmp_path / "target", source="source"))

        assert event.failed
        assert f"cannot be copied: its size is {HUGE} bytes" in event.error[0]
        assert not (tmp_path / "target").exists()

    async def test_nor_is_it_read_for_its_checksum(self, tmp_path: Path) -> None:
        huge(tmp_path / "source")

        event = await apply(tmp_path, file(tmp_path / "target", source="source", checksum="0" * 64))

        assert event.failed
        assert not (tmp_path / "target").exists()

    @pytest.mark.parametrize("properties", [{}, {"replace": False, "content": "x"}, {"mode": "0600"}])
    async def test_a_file_without_managed_content_gets_its_attributes_unread(
        self, tmp_path: Path, properties: dict[str, Any]
    ) -> None:
        target = huge(tmp_path / "target")

        event = await apply(tmp_path, file(target, **properties))

        assert event.error == []
        assert target.stat().st_size == HUGE

    async def test_a_huge_file_is_removed_unread(self, tmp_path: Path) -> None:
        target = huge(tmp_path / "target")

        event = await apply(tmp_path, file(target, ensure="absent"))

        assert (event.changed, target.exists()) == (True, False)

    async def test_a_url_is_written_over_it(self, tmp_path: Path) -> None:
        target = huge(tmp_path / "target")
        with Web() as web:
            web.pages["/page"] = b"from there"

            event = await apply(tmp_path, file(target, source=f"{web.url}/page"))

        assert (event.changed, target.read_text()) == (True, "from there")

    async def test_one_source_for_several_files_is_compared_with_each(self, tmp_path: Path) -> None:
        content = b"0123456789abcdef" * (1 << 17)  # too large to be read unless the sizes are the same
        (tmp_path / "source").write_bytes(content)
        (tmp_path / "right").write_bytes(content)
        (tmp_path / "short").write_bytes(content[:-1])
        (tmp_path / "other").write_bytes(b"x" + content[1:])
        names = ["right", "short", "other", "absent"]
        resources = [file(tmp_path / name, source="source") for name in names]
        events: list[TransactionEvent] = []
        text = json.dumps({"ccm": {"resources": resources}}).encode()
        source = ManifestSource(text=text, directory=str(tmp_path), name="m.yaml")

        await App({}, str(tmp_path)).engine().apply(source, ApplyOptions(on_event=events.append, facts={}))

        assert [event.changed for event in events] == [False, True, True, True]
        assert [event.error for event in events] == [[], [], [], []]
        assert all((tmp_path / name).read_bytes() == content for name in names)


class TestArchives:
    async def test_an_archive_of_terabytes_is_downloaded_again(self, tmp_path: Path) -> None:
        packed = tarred(tmp_path)
        target = huge(tmp_path / "app.tar.gz")
        with Web() as web:
            web.pages["/app.tar.gz"] = packed
            properties = {"url": f"{web.url}/app.tar.gz", "checksum": sha256(packed).hexdigest(), **OWN}

            event = await apply(tmp_path, {"archive": [{str(target): {"ensure": "present", **properties}}]})

        assert (event.changed, event.error) == (True, [])
        assert target.read_bytes() == packed

    async def test_the_creates_path_is_not_read(self, tmp_path: Path) -> None:
        packed = tarred(tmp_path)
        creates = huge(tmp_path / "made/app")
        with Web() as web:
            web.pages["/app.tar.gz"] = packed
            properties = {
                "url": f"{web.url}/app.tar.gz",
                "checksum": sha256(packed).hexdigest(),
                "extract_parent": str(tmp_path / "opt"),
                "creates": str(creates),
                **OWN,
            }

            event = await apply(
                tmp_path, {"archive": [{str(tmp_path / "app.tar.gz"): {"ensure": "present", **properties}}]}
            )

        assert (event.changed, event.error) == (True, [])
        assert creates.stat().st_size == HUGE

    def test_one_that_was_swapped_for_terabytes_is_not_unpacked(self, tmp_path: Path) -> None:
        archive = huge(tmp_path / "app.tar.gz", begin=b"\x1f\x8b")
        packed = Packed(path=str(archive), kind="tar.gz", sha256="0" * 64)

        with little_is_read(), pytest.raises(FileError, match="cannot be read"):
            unpack(packed, str(tmp_path / "into"), CancelFlag())

    def test_a_file_of_another_size_than_the_download_is_not_read(self, tmp_path: Path) -> None:
        archive = tmp_path / "app.tar.gz"
        archive.write_bytes(b"x" * 1_000_000)
        packed = Packed(path=str(archive), kind="tar.gz", sha256="0" * 64, size_bytes=999_999)

        with pytest.raises(FileError, match="another process changed it"):
            unpack(packed, str(tmp_path / "into"), CancelFlag())


def tarred(folder: Path) -> bytes:
    """A gzipped tar of one file, `app`."""
    (folder / "in").mkdir()
    (folder / "in/app").write_text("program")
    with tarfile.open(folder / "in.tar.gz", "w:gz") as archive:
        archive.add(folder / "in/app", "app")
    return (folder / "in.tar.gz").read_bytes()


class TestTrees:
    async def test_huge_files_differ_from_the_wanted_ones(self, tmp_path: Path) -> None:
        names = ("content", "digest", "digest-of-no-size", "unknown")
        for name in names:
            huge(tmp_path / name)
        digest = sha256(b"x").hexdigest()
        wanted = {
            "content": b"x",
            "digest": Digest(digest, 1),
            "digest-of-no-size": Digest(digest),
            "unknown": Digest(),
        }

        with little_is_read():
            async with asyncio.timeout(LIMIT_S):
                seen = await SystemTrees().compare(str(tmp_path), wanted)

        assert seen.files == dict.fromkeys(names, "differs")

    async def test_one_in_a_source_of_templates_is_refused_unread(self, tmp_path: Path) -> None:
        huge(tmp_path / "template")

        with little_is_read(), pytest.raises(FileError, match="which is the limit here"):
            await SystemTrees().read(str(tmp_path), 64 << 20)

    async def test_a_scaffold_writes_over_one(self, tmp_path: Path) -> None:
        (tmp_path / "src").mkdir()
        (tmp_path / "src/a.conf").write_text("a = 1\n")
        target = tmp_path / "out"
        resource = {
            "scaffold": [
                {str(target): {"ensure": "present", "source": "src", "engine": "go", "post": [{"*.conf": "sed -i s/1/2/"}]}}
            ]
        }  # fmt: skip
        await apply(tmp_path, resource)
        stable = await apply(tmp_path, resource)
        huge(target / "a.conf")

        event = await apply(tmp_path, resource)

        assert (stable.changed, event.changed, event.error) == (False, True, [])
        assert (target / "a.conf").read_text() == "a = 2\n"

    async def test_recorded_files_are_removed_unread(self, tmp_path: Path) -> None:
        (tmp_path / "src").mkdir()
        (tmp_path / "src/a.conf").write_text("a = 1\n")
        target = tmp_path / "out"
        properties = {"source": "src", "engine": "go"}
        await apply(tmp_path, {"scaffold": [{str(target): {"ensure": "present", **properties}}]})
        (tmp_path / "src/a.conf").unlink()
        (tmp_path / "src").rmdir()
        huge(target / "a.conf")

        event = await apply(tmp_path, {"scaffold": [{str(target): {"ensure": "absent", **properties}}]})

        assert (event.changed, event.error, target.exists()) == (True, [], False)


class ThisHost:
    """What a health check may look at this host with."""

    def __init__(self) -> None:
        self.files = SystemFiles()
        self.runner = SystemRunner()
        self.clock = FakeClock()

    def port(self, name: str) -> Any:
        raise AssertionError(f"nobody needs {name}")


class TestLooking:
    async def test_a_file_that_is_small_tells_its_digest_whatever_is_wanted(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"hello")

        (seen,) = await SystemFiles().inspect([f"{tmp_path}/a"], digest={f"{tmp_path}/a": [1]})

        assert (seen.sha256, seen.undigested) == (sha256(b"hello").hexdigest(), "")

    async def test_one_that_names_no_size_is_read(self) -> None:
        (seen,) = await SystemFiles().inspect(["/proc/version"], digest={"/proc/version": [3]})

        assert seen.sha256 == sha256(VERSION_TEXT).hexdigest()

    async def test_a_larger_file_reports_why_it_has_no_digest(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"x" * 1_048_577)

        (seen,) = await SystemFiles().inspect([f"{tmp_path}/a"], digest={f"{tmp_path}/a": [1]})

        assert (seen.kind, seen.sha256) == ("file", "")
        assert seen.undigested == "it has 1048577 bytes, more than 1048576"

    async def test_a_large_file_with_content_of_its_own_is_read_when_it_may_be(self, tmp_path: Path) -> None:
        path = huge(tmp_path / "a", 100 << 20, begin=os.urandom(1 << 20))

        (seen,) = await SystemFiles().inspect([str(path)], digest={str(path): [100 << 20]})

        assert seen.sha256

    def test_one_that_grows_while_it_is_read_is_not_read_forever(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a").write_bytes(b"x" * 2_000_000)
        monkeypatch.setattr(look_module, "READ_BYTES", 1_000_000)

        class Grows(CancelFlag):
            def check(self) -> None:
                with (tmp_path / "a").open("ab") as file:
                    file.write(b"x" * 1_000_000)

        seen, digest, why = look_module.digest_of(f"{tmp_path}/a", 5_000_000, Grows())

        assert (seen.st_size, digest, why) == (2_000_000, "", "it contains more than 5000000 bytes")

    async def test_a_rule_about_a_digest_reports_why_there_is_none(self, tmp_path: Path) -> None:
        path = huge(tmp_path / "a")
        host = ThisHost()
        rules = {"file": {str(path): {"exists": True, "sha256": "0" * 64, "size": HUGE}}}

        with little_is_read():
            result = await attempt(HealthCheck(goss_rules=rules, name="x", format="goss"), host)

        assert f"found nothing (it has {HUGE} bytes, more than" in result.output
        assert msgspec.to_builtins(result.status) != 0


class TestCopying:
    async def test_more_than_there_is_room_for_is_refused_before_a_byte_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(look_module, "HONEST_BYTES", 1 << 60)
        huge(tmp_path / "source")

        with little_is_read(), pytest.raises(FileError, match="are free; free some space") as caught:
            await SystemFiles().write(f"{tmp_path}/a", ContentRef(f"{tmp_path}/source"), mode=0o644)

        assert caught.value.errno == errno.ENOSPC
        assert os.listdir(tmp_path) == ["source"]

    def test_a_source_that_grows_all_the_time_is_copied_as_it_was(self, tmp_path: Path) -> None:
        (tmp_path / "source").write_bytes(b"x" * 3_000_000)

        class Grows(CancelFlag):
            def check(self) -> None:
                with (tmp_path / "source").open("ab") as file:
                    file.write(b"x" * 2_000_000)

        store_module.write_atomically(
            f"{tmp_path}/a", ContentRef(f"{tmp_path}/source"), "", "", 0o644, Grows()
        )

        assert (tmp_path / "a").stat().st_size == 3_000_000

    async def test_a_source_that_names_no_size_is_copied(self, tmp_path: Path) -> None:
        await SystemFiles().write(f"{tmp_path}/a", ContentRef("/proc/version"), mode=0o644)

        assert (tmp_path / "a").read_bytes() == VERSION_TEXT
