"""Runs of `directory` and their undo on a real file system: contents, modes and what was purged come back."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.app_expressions import make_expressions
from ccm_agent.engine.deps import EngineDeps
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.engine.run import LocalEngine
from ccm_agent.hiera.sources import Sources
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.ids import new_id, short_id
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.ports import DigestLimits, FileInfo
from ccm_agent.model.records.undo import identify_file, identify_symlink
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.file import TYPE as FILE
from ccm_agent.resources.file.providers.posix import PosixFile
from ccm_agent.resources.symlink import TYPE as SYMLINK
from ccm_agent.resources.symlink.providers.posix import PosixSymlink
from ccm_agent.storage.undo_store import UndoStore
from ccm_agent.system.files import SystemFiles
from ccm_agent.system.runner import SystemRunner
from ccm_agent.system.trees.trees import SystemTrees
from ccm_agent.testing.clock import FakeClock

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class ReadingFiles(SystemFiles):
    """Notes the paths whose content is read for a digest."""

    def __init__(self) -> None:
        super().__init__()
        self.digested: list[str] = []

    async def inspect(
        self, paths: Sequence[str], *, digest: bool | DigestLimits = True, follow: bool = True
    ) -> list[FileInfo]:
        found = await super().inspect(paths, digest=digest, follow=follow)
        self.digested += [look.path for look in found if look.sha256]
        return found


class Node:
    """An engine with an undo store, and a directory `tree` with a source beside the manifest."""

    def __init__(self, folder: Path, limit_bytes: int = 1 << 20) -> None:
        self.folder = folder
        self.tree, self.source = folder / "tree", folder / "source"
        self.store = UndoStore(
            folder / "state" / "undo", FakeClock(NOON), keep_s=86_400, limit_bytes=limit_bytes
        )
        self.store.open()
        files = self.files = ReadingFiles()
        self.engine = LocalEngine(
            EngineDeps(
                runner=SystemRunner(),
                files=files,
                clock=FakeClock(NOON),
                catalog=Catalog(),
                make_expressions=make_expressions,
                gather_facts=lambda more: dict(more),
                sources=lambda directory: Sources(files, directory=directory),
                directory=str(folder),
                port={"tree_editor": SystemTrees()}.__getitem__,
            )
        )
        self.events: list[TransactionEvent] = []
        for path, text in {
            "source/a": "new a\n",
            "source/sub/b": "new b\n",
            "tree/a": "old a\n",
            "tree/mine/x": "x\n",
            "tree/mine/y": "y\n",
        }.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        (folder / "tree" / "mine" / "x").chmod(0o600)
        (folder / "tree" / "mine").chmod(0o750)
        (folder / "tree" / "link").symlink_to("mine/x")

    async def apply(self, **properties: Any) -> str:
        run = new_id()
        wanted = {str(self.tree): {"source": "source", "purge": True} | properties}
        text = {"ccm": {"resources": [{"directory": [wanted]}]}}
        await self._run(ManifestSource(text=encode_message(text), name="site"), run)
        return run

    async def undo(self, run: str) -> str:
        again = new_id()
        await self._run(ManifestSource(name="undo", undo=await self.store.find(run)), again)
        return again

    async def _run(self, source: ManifestSource, run: str) -> None:
        self.events.clear()
        await self.engine.apply(
            source, ApplyOptions(run=run, undo_log=self.store, on_event=self.events.append)
        )

    @property
    def problems(self) -> list[str]:
        return [
            f"{one.name.removeprefix(str(self.tree))}: {error}" for one in self.events for error in one.error
        ]

    def picture(self) -> dict[str, tuple[str, str]]:
        """Modes and contents of everything in the directory."""
        found = {}
        for path in [self.tree, *self.tree.rglob("*")] if self.tree.exists() else []:
            seen = path.lstat()
            content = os.readlink(path) if path.is_symlink() else "" if path.is_dir() else path.read_text()
            found[str(path.relative_to(self.folder))] = stat.filemode(seen.st_mode), content
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({}, id="purge"),
        pytest.param({"ensure": "absent", "force": True}, id="removal"),
        pytest.param({"file_mode": "0611", "directory_mode": "0711"}, id="modes"),
        pytest.param({"purge": False, "recurse": True, "file_mode": "0611"}, id="modes of everything"),
        pytest.param({"purge": False, "source": "", "max_size": "0"}, id="a limit"),
    ],
)
async def test_everything_comes_back_and_the_undo_can_be_undone(
    node: Node, properties: dict[str, Any]
) -> None:
    before = node.picture()

    run = await node.apply(**properties)
    assert node.problems == []
    applied = node.picture()
    undone = await node.undo(run)
    assert node.problems == []
    restored = node.picture()
    await node.undo(undone)

    assert applied != before
    assert restored == before
    assert node.picture() == applied


async def test_a_new_directory_goes_with_what_the_run_put_there(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.tree = tmp_path / "fresh"

    run = await node.apply()
    made = node.picture()
    await node.undo(run)

    assert sorted(made) == ["fresh", "fresh/a", "fresh/sub", "fresh/sub/b"]
    assert (node.picture(), node.problems) == ({}, [])


async def test_what_changed_since_stays_and_the_rest_comes_back(node: Node) -> None:
    run = await node.apply()
    (node.tree / "a").write_text("someone else's\n")
    (node.tree / "sub" / "c").write_text("someone else's\n")

    await node.undo(run)

    assert (node.tree / "a").read_text() == "someone else's\n"
    assert (node.tree / "mine" / "x").read_text() == "x\n"
    assert sorted(path.name for path in (node.tree / "sub").iterdir()) == ["c"]
    assert [one.partition(":")[0] for one in node.problems] == ["/sub", "/a"]
    assert "changed since the run" in node.problems[0]


async def test_files_whose_attributes_change_are_read_once(node: Node) -> None:
    await node.apply(source="", purge=False, recurse=True, file_mode="0611")

    # after the change: an undo must notice another content, whose owner and mode it would otherwise change
    paths = [str(node.tree / name) for name in ("a", "mine/x", "mine/y")]
    assert sorted(path for path in node.files.digested if path.startswith(str(node.tree))) == paths


async def test_a_content_that_changed_after_its_mode_was_set_keeps_the_mode(node: Node) -> None:
    run = await node.apply(source="", purge=False, recurse=True, file_mode="0611")
    (node.tree / "a").write_text("planted\n")

    await node.undo(run)

    modes = {name: stat.S_IMODE((node.tree / name).stat().st_mode) for name in ("a", "mine/x")}
    assert modes == {"a": 0o611, "mine/x": 0o600}
    assert node.problems == [f"/a: changed since the run {short_id(run)}: its content"]


async def test_what_does_not_fit_is_named_and_the_rest_comes_back(tmp_path: Path) -> None:
    node = Node(tmp_path, limit_bytes=16)
    (node.tree / "mine" / "y").write_text("y" * 100)

    run = await node.apply()
    await node.undo(run)

    assert len(node.problems) == 1, node.problems
    problem = node.problems[0]
    assert problem.startswith("/mine/y: ")
    assert "its content is not kept" in problem
    assert (node.tree / "mine" / "x").read_text() == "x\n"


async def test_a_second_run_changes_nothing_and_records_nothing(node: Node) -> None:
    await node.apply()
    run = await node.apply()

    assert [one.changed for one in node.events] == [False]
    with pytest.raises(Exception, match="this node has no record of the run"):
        await node.store.find(run)


async def test_drift_is_repaired(node: Node) -> None:
    await node.apply()
    applied = node.picture()
    (node.tree / "a").write_text("drift")
    (node.tree / "sub" / "b").unlink()
    (node.tree / "added").touch()

    await node.apply()

    assert node.picture() == applied


@pytest.mark.parametrize("name", ["tree/a", "tree/mine", "tree/link", "tree/missing", "tree/dangling"])
async def test_parts_are_recognized_as_their_types_do(node: Node, name: str) -> None:
    (node.tree / "dangling").symlink_to("nowhere")
    path, files = str(node.folder / name), SystemFiles()

    async def look(*, follow: bool) -> FileInfo:
        return (await files.inspect([path], follow=follow))[0]

    file_state = await PosixFile(files, "/").status(FILE.properties(name=path))
    symlink_state = await PosixSymlink(files).status(SYMLINK.properties(name=path))
    assert FILE.undo is not None
    assert SYMLINK.undo is not None
    assert identify_file(await look(follow=True)) == FILE.undo.identify(file_state)
    assert identify_symlink(await look(follow=False)) == SYMLINK.undo.identify(symlink_state)
