"""Runs and their undo on a real file system: content, mode and owner come back, and nothing else is touched."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.app_expressions import make_expressions
from ccm_agent.engine.deps import EngineDeps
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.engine.run import LocalEngine
from ccm_agent.hiera.sources import Sources
from ccm_agent.model.errors import FileError
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.ids import new_id, short_id
from ccm_agent.model.outcome import SessionSummary, TransactionEvent
from ccm_agent.model.ports import ContentRef, FileInfo
from ccm_agent.model.records.undo import CHANGED_SINCE, NOT_UNDONE
from ccm_agent.resources.catalog import Catalog
from ccm_agent.storage.undo_store import UndoStore
from ccm_agent.system.accounts import AccountNames
from ccm_agent.system.files import SystemFiles
from ccm_agent.system.runner import SystemRunner
from ccm_agent.testing.clock import FakeClock

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
OWNER, GROUP = AccountNames().user(os.geteuid()), AccountNames().group(os.getegid())


class FilesThatFail(SystemFiles):
    """Files of this host, except that copies into the undo store fail."""

    async def write(self, path: str, content: bytes | ContentRef, **options: Any) -> list[FileInfo]:
        if "/undo/content/" in path:
            raise FileError(f"{path}: cannot be written: No space left on device")
        return await super().write(path, content, **options)


class FilesThatAreSwapped(SystemFiles):
    """Files of this host, except that another process replaces a file before it is copied into the undo store."""

    async def write(self, path: str, content: bytes | ContentRef, **options: Any) -> list[FileInfo]:
        if "/undo/content/" in path and isinstance(content, ContentRef):
            await super().write(content.path, b"another file\n", mode=0o644)
        return await super().write(path, content, **options)


@dataclass
class Node:
    """An engine with an undo store, and what its last run told."""

    folder: Path
    files: SystemFiles = field(default_factory=SystemFiles)
    limit_bytes: int = 1 << 20
    events: list[TransactionEvent] = field(default_factory=list)
    runs: int = 0

    def __post_init__(self) -> None:
        self.store = UndoStore(
            self.folder / "state" / "undo", FakeClock(NOON), keep_s=86_400, limit_bytes=self.limit_bytes
        )
        self.store.open()
        self.engine = LocalEngine(
            EngineDeps(
                runner=SystemRunner(),
                files=self.files,
                clock=FakeClock(NOON),
                catalog=Catalog(),
                make_expressions=make_expressions,
                gather_facts=lambda more: dict(more),
                sources=lambda directory: Sources(self.files, directory=directory),
                directory=str(self.folder),
                port={}.__getitem__,
            )
        )

    def path(self, name: str) -> Path:
        return self.folder / "box" / name

    def put(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def resource(self, name: str, **fields: Any) -> dict[str, Any]:
        given = {"ensure": "present", "owner": OWNER, "group": GROUP, "mode": "0644"} | fields
        wanted = {key: value for key, value in given.items() if value is not None}
        return {"file": [{str(self.path(name)): wanted}]}

    async def apply(self, *resources: dict[str, Any], data: Mapping[str, Any] | None = None) -> str:
        """Apply resources; the run."""
        run = self._new_run()
        hierarchy = {"order": ["default"], "secret": ["password"]}
        text = {"data": dict(data or {}), "hierarchy": hierarchy, "ccm": {"resources": list(resources)}}
        summary = await self._run(ManifestSource(text=encode_message(text), name="site"), run)
        assert not summary.reason, summary.reason
        return run

    async def undo(self, run: str, *, noop: bool = False, diff: bool = False) -> str:
        """Undo a run; the run that does so."""
        own = self._new_run()
        record = await self.store.find(run)
        await self._run(ManifestSource(name=f"undo {run}", undo=record), own, noop=noop, diff=diff)
        return own

    async def _run(self, source: ManifestSource, run: str, **fields: Any) -> SessionSummary:
        self.events.clear()
        options = ApplyOptions(run=run, undo_log=self.store, on_event=self.events.append, **fields)
        return await self.engine.apply(source, options)

    def _new_run(self) -> str:
        self.runs += 1
        return new_id(NOON + timedelta(seconds=self.runs))

    def outcomes(self) -> list[tuple[str, str]]:
        return [(Path(one.name).name, one.outcome.value) for one in self.events]

    def told(self) -> Sequence[tuple[str, list[str]]]:
        return [(one.code, one.error) for one in self.events]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "box").mkdir()
    return Node(tmp_path)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o7777


async def test_content_and_mode_come_back_and_new_files_go(node: Node) -> None:
    changed, removed = node.put("changed", "old\n", 0o640), node.put("removed", "gone\n", 0o600)
    run = await node.apply(
        node.resource("changed", content="new\n"),
        node.resource("new", content="new\n"),
        {"file": [{str(removed): {"ensure": "absent"}}]},
        node.resource("folder", ensure="directory", mode="0755"),
        node.resource("folder/inner", content="x"),
    )
    assert [one.outcome.value for one in node.events] == ["changed"] * 5

    await node.undo(run)

    assert node.outcomes() == [
        ("inner", "changed"),
        ("folder", "changed"),
        ("removed", "changed"),
        ("new", "changed"),
        ("changed", "changed"),
    ]
    assert (changed.read_text(), mode_of(changed)) == ("old\n", 0o640)
    assert (removed.read_text(), mode_of(removed)) == ("gone\n", 0o600)
    assert sorted(os.listdir(node.folder / "box")) == ["changed", "removed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_the_owner_comes_back(node: Node) -> None:
    path = node.put("owned", "same\n")
    os.chown(path, 65534, 65534)
    run = await node.apply(node.resource("owned", content=None, mode="0600"))
    assert path.stat().st_uid == 0

    await node.undo(run)

    seen = path.stat()
    assert (seen.st_uid, seen.st_gid, mode_of(path), path.read_text()) == (65534, 65534, 0o644, "same\n")


async def test_a_change_of_the_mode_alone_keeps_no_content(node: Node) -> None:
    path = node.put("script", "#!/bin/sh\n", 0o644)
    run = await node.apply(node.resource("script", content=None, mode="0755"))

    await node.undo(run)

    assert mode_of(path) == 0o644
    assert os.listdir(node.store.folder) == []


async def test_a_plan_of_an_undo_shows_the_diff_and_changes_nothing(node: Node) -> None:
    path = node.put("motd", "old\n")
    run = await node.apply(node.resource("motd", content="new\n"))
    node.folder.chmod(0o755)
    node.folder.parent.chmod(0o755)

    await node.undo(run, noop=True, diff=True)

    assert path.read_text() == "new\n"
    assert [one.noop_message for one in node.events] == ["Would have created the file"]
    diff = node.events[0].diff
    assert diff is not None
    assert (diff.files[0].added, diff.files[0].removed) == (1, 1)


@pytest.mark.parametrize("what", ["content", "mode", "removed", "link", "directory"])
async def test_what_changed_since_the_run_is_not_touched_and_reported(node: Node, what: str) -> None:
    path = node.put("motd", "old\n")
    run = await node.apply(node.resource("motd", content="new\n"))
    match what:
        case "content":
            path.write_text("edited\n")
        case "mode":
            path.chmod(0o600)
        case "removed":
            path.unlink()
        case "link":
            path.rename(node.path("elsewhere"))
            path.symlink_to("elsewhere")
        case "directory":
            path.unlink()
            path.mkdir()
    before = (path.is_symlink(), path.is_dir(), path.exists() and path.is_file() and path.read_text())

    await node.undo(run)

    assert (path.is_symlink(), path.is_dir(), path.exists() and path.is_file() and path.read_text()) == before
    (event,) = node.events
    if what == "directory":
        assert event.failed
    else:
        assert (event.outcome.value, event.code) == ("skipped", CHANGED_SINCE)
        assert event.error[0].startswith(f"changed since the run {short_id(run)}: its ")


async def test_an_edit_between_the_plan_and_the_undo_is_seen(node: Node) -> None:
    path = node.put("motd", "old\n")
    run = await node.apply(node.resource("motd", content="new\n"))
    await node.undo(run, noop=True)
    path.write_text("edited\n")

    await node.undo(run)

    assert (path.read_text(), node.events[0].code) == ("edited\n", CHANGED_SINCE)


async def test_what_is_already_as_before_is_stable(node: Node) -> None:
    path = node.put("motd", "old\n")
    run = await node.apply(node.resource("motd", content="new\n"))
    path.write_text("old\n")

    await node.undo(run)

    assert node.outcomes() == [("motd", "stable")]


async def test_the_undo_of_an_undo_applies_the_change_again(node: Node) -> None:
    path = node.put("motd", "old\n", 0o640)
    run = await node.apply(node.resource("motd", content="new\n"), node.resource("new", content="n"))
    undone = await node.undo(run)

    await node.undo(undone)

    assert (path.read_text(), mode_of(path), node.path("new").read_text()) == ("new\n", 0o644, "n")


async def test_a_command_is_named_and_not_run_again(node: Node) -> None:
    mark = node.path("mark")
    run = await node.apply(
        {"exec": [{f"/bin/sh -c 'echo x >> {mark}'": {}}]}, node.resource("motd", content="new\n")
    )

    await node.undo(run)

    assert mark.read_text() == "x\n"
    assert node.told() == [("", []), (NOT_UNDONE, ["changes of the type `exec` are not recorded"])]
    assert not node.path("motd").exists()


async def test_a_new_directory_with_files_of_others_stays(node: Node) -> None:
    run = await node.apply(
        node.resource("folder", ensure="directory", mode="0755"), node.resource("folder/mine", content="x")
    )
    other = node.put("folder/other", "y\n")
    await node.undo(run, noop=True)
    assert node.outcomes() == [("mine", "changed"), ("folder", "changed")]

    await node.undo(run)

    assert node.outcomes() == [("mine", "changed"), ("folder", "skipped")]
    assert node.told()[1] == (
        CHANGED_SINCE,
        [f"changed since the run {short_id(run)}: this directory contains other files"],
    )
    assert sorted(os.listdir(other.parent)) == ["other"]


async def test_symlinks_trees_and_special_bits_are_reported(node: Node) -> None:
    target = node.put("target", "t\n")
    node.path("link").symlink_to(target)
    node.put("tree/inner", "i\n")
    node.put("special", "s\n").chmod(0o4755)
    run = await node.apply(
        node.resource("link", content="file\n"),
        {"file": [{str(node.path("tree")): {"ensure": "absent", "force": True}}]},
        node.resource("special", content="new\n"),
    )

    await node.undo(run)

    assert [one.error for one in node.events] == [
        ["its mode was 4755, and setuid, setgid and sticky bits are not restored"],
        ["it was a directory, and its content was not kept"],
        [f"it was a symlink to {target}, and symlinks are not restored"],
    ]
    assert {one.code for one in node.events} == {NOT_UNDONE}
    assert node.path("link").read_text() == "file\n"


async def test_a_name_that_looks_like_a_template_is_taken_as_it_is(node: Node) -> None:
    path = node.put("${ 1 + 1 }", "old\n")
    escaped = "{{ '${' }} 1 + 1 }"
    run = await node.apply(node.resource(escaped, content="new\n"))
    assert path.read_text() == "new\n"

    await node.undo(run)

    assert path.read_text() == "old\n"


async def test_a_full_disk_does_not_stop_the_change(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    node = Node(tmp_path, files=FilesThatFail())
    path = node.put("motd", "old\n")
    run = await node.apply(node.resource("motd", content="new\n"))
    assert path.read_text() == "new\n"

    await node.undo(run)

    assert path.read_text() == "new\n"
    assert node.events[0].code == NOT_UNDONE
    assert node.events[0].error[0].startswith("its content could not be kept: ")


async def test_a_content_that_is_not_the_one_that_was_looked_at_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    node = Node(tmp_path, files=FilesThatAreSwapped())
    node.put("motd", "old\n")
    run = await node.apply(node.resource("motd", content="new\n"))

    await node.undo(run)

    assert node.events[0].error == ["its content is not kept: it changed while it was copied"]
    assert os.listdir(node.store.folder) == []


async def test_content_beyond_the_limit_is_not_kept_and_the_change_is_made(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    node = Node(tmp_path, limit_bytes=3 << 20)
    path = node.put("big", "x" * (2 << 20))
    other = node.put("other", "y" * (2 << 20))
    run = await node.apply(node.resource("big", content="new\n"), node.resource("other", content="new\n"))

    await node.undo(run)

    assert (path.stat().st_size, other.read_text()) == (2 << 20, "new\n")
    assert node.events[0].error == [
        "its content is not kept: this run would need more than 3 MiB (`undo_max_mib`)"
    ]


async def test_an_undo_that_needs_room_keeps_what_it_still_has_to_restore(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    node = Node(tmp_path, limit_bytes=3 << 20)
    names = ["one", "two"]
    for name in names:
        node.put(name, name * (1 << 18))
    run = await node.apply(*[node.resource(name, content=f"new {name} " * (1 << 17)) for name in names])

    await node.undo(run)

    assert node.outcomes() == [("two", "changed"), ("one", "changed")]
    assert [node.path(name).read_text() for name in names] == [name * (1 << 18) for name in names]


async def test_kept_content_is_for_the_owner_alone_and_is_checked_before_it_is_used(node: Node) -> None:
    path = node.put("motd", "old\n")
    run = await node.apply(node.resource("motd", content="new\n"))
    (kept,) = (node.folder / "state" / "undo" / "content").iterdir()
    assert mode_of(kept) == 0o600
    kept.write_text("bad\n")

    await node.undo(run)

    assert path.read_text() == "new\n"
    assert node.events[0].failed
    assert "checksum mismatch" in node.events[0].error[0]


async def test_lines_that_were_private_or_have_secrets_of_the_undone_run_are_not_shown() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = await asyncio.to_thread(open_to_everyone, Path(name))
        node = await asyncio.to_thread(Node, folder)
        node.put("public", "old\n")
        node.put("private", "quiet 1\n", 0o600)
        node.put("db.conf", "password=hunter22\n")
        run = await node.apply(
            node.resource("public", content="new\n"),
            node.resource("private", content="quiet 2\n"),
            node.resource("db.conf", content="password={{ Data.password }}\n"),
            data={"password": "hunter23"},
        )

        undone = await node.undo(run, diff=True)

        shown = {Path(one.name).name: one.diff.files[0].text for one in node.events if one.diff}
        assert shown == {"public": "@@ -1 +1 @@\n-new\n+old\n", "private": "", "db.conf": ""}
        for one in (run, undone):
            found = {Path(entry.name).name: entry.is_secret for entry in (await node.store.find(one)).entries}
            assert found == {"public": False, "private": True, "db.conf": True}


def open_to_everyone(folder: Path) -> Path:
    """A folder whose files every user may read, and with a place for them."""
    folder.chmod(0o755)
    (folder / "box").mkdir()
    return folder
