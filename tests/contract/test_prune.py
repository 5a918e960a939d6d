"""`prune` on a real file system: what a run created goes with its resource, and nothing else does."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.app_expressions import make_expressions
from ccm_agent.engine.deps import EngineDeps
from ccm_agent.engine.request import ApplyOptions, ManifestSource, StopFlag
from ccm_agent.engine.run import LocalEngine
from ccm_agent.hiera.sources import Sources
from ccm_agent.model.errors import ManifestError
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.ids import new_id, short_id
from ccm_agent.model.outcome import PRUNE_PLANNED, RELEASED, SessionSummary, TransactionEvent
from ccm_agent.model.ports import ContentRef, FileInfo
from ccm_agent.model.selection import ResourceSelection
from ccm_agent.resources.catalog import Catalog
from ccm_agent.sessions.creation_ledger import CreationLedger
from ccm_agent.storage.undo_store import UndoStore
from ccm_agent.system.accounts import AccountNames
from ccm_agent.system.files import SystemFiles
from ccm_agent.system.runner import SystemRunner
from ccm_agent.system.trees.trees import SystemTrees
from ccm_agent.testing.clock import FakeClock
from tests.unit.engine.test_policy import grant

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
OWNER, GROUP = AccountNames().user(os.geteuid()), AccountNames().group(os.getegid())
SCOPE = "assignment web"


class Killed(BaseException):
    """The process ends here."""


class MortalFiles(SystemFiles):
    """Files of this host. The process ends before or after one of the changes below a folder."""

    def __init__(self, box: Path, kill_at: int, *, is_after: bool) -> None:
        super().__init__()
        self._box = str(box)
        self._left = kill_at
        self._is_after = is_after

    async def write(self, path: str, content: bytes | ContentRef, **options: Any) -> list[FileInfo]:
        self._kill(path, is_after=False)
        found = await super().write(path, content, **options)
        self._kill(path, is_after=True)
        return found

    async def remove(self, path: str, **options: Any) -> None:
        self._kill(path, is_after=False)
        await super().remove(path, **options)
        self._kill(path, is_after=True)

    def _kill(self, path: str, *, is_after: bool) -> None:
        if path.startswith(self._box) and is_after == self._is_after:
            self._left -= 1
            if not self._left:
                raise Killed


@dataclass
class Node:
    """An engine with an undo store and a folder of ledgers, and what its last run told."""

    folder: Path
    files: SystemFiles = field(default_factory=SystemFiles)
    events: list[TransactionEvent] = field(default_factory=list)
    notes: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    runs: int = 0

    def __post_init__(self) -> None:
        self.box = self.folder / "box"
        self.box.mkdir(exist_ok=True)
        self.ledgers = self.folder / "creations"
        self.undo = UndoStore(self.folder / "undo", FakeClock(NOON), keep_s=86_400, limit_bytes=1 << 20)
        self.undo.open()
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
                port={"tree_editor": SystemTrees()}.__getitem__,
                creations=self.ledgers,
            )
        )

    def file(self, name: str, content: str = "x\n", **fields: Any) -> dict[str, Any]:
        given = {"ensure": "present", "owner": OWNER, "group": GROUP, "mode": "0644", "content": content}
        return {"file": [{str(self.box / name): given | fields}]}

    def directory(self, name: str) -> dict[str, Any]:
        given = {"ensure": "directory", "owner": OWNER, "group": GROUP, "mode": "0755"}
        return {"file": [{str(self.box / name): given}]}

    def put(self, name: str, content: str) -> Path:
        path = self.box / name
        path.write_text(content)
        return path

    async def apply(
        self, *resources: dict[str, Any], prune: str = "apply", max_prune: int = 10, **options: Any
    ) -> SessionSummary:
        """Apply the manifest with these resources, and one that is always there."""
        document = {
            "ccm": {
                "prune": prune,
                "max_prune": max_prune,
                "resources": [self.file("anchor"), *resources],
            }
        }
        return await self.run(ManifestSource(text=encode_message(document), name="web"), **options)

    async def run(self, source: ManifestSource, scope: str = SCOPE, **fields: Any) -> SessionSummary:
        self.events.clear()
        self.notes.clear()
        self.runs += 1
        options = ApplyOptions(
            run=new_id(NOON + timedelta(seconds=self.runs)),
            scope=scope,
            undo_log=self.undo,
            on_event=self.events.append,
            on_note=lambda level, message, found: self.notes.append((message, dict(found))),
            **fields,
        )
        return await self.engine.apply(source, options)

    def there(self) -> list[str]:
        return sorted(set(os.listdir(self.box)) - {"anchor"})

    def pruned(self) -> list[tuple[str, str, str]]:
        """Name, outcome and code of each event of a resource that is not in the manifest."""
        return [
            (Path(one.name).name, one.outcome.value, one.code)
            for one in self.events
            if one.pruned or one.code == RELEASED
        ]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_what_a_run_created_is_removed_when_it_leaves_the_manifest(node: Node) -> None:
    created = await node.apply(node.directory("d"), node.file("d/a"), node.file("b"))

    summary = await node.apply()

    assert node.there() == []
    assert summary.state == "changed"
    assert node.pruned() == [("b", "changed", ""), ("a", "changed", ""), ("d", "changed", "")]
    assert node.events[1].pruned == (f"created by the run {short_id(created.run)}, no longer in the manifest")
    assert (await node.apply()).state == "stable"
    assert node.pruned() == []


async def test_an_undo_brings_back_what_was_pruned_and_the_next_run_leaves_it(node: Node) -> None:
    await node.apply(node.directory("d"), node.file("d/a", "kept\n", mode="0640"))
    pruned = await node.apply()
    record = await node.undo.find(pruned.run)

    await node.run(ManifestSource(name="undo", undo=record), scope="request undo")

    path = node.box / "d" / "a"
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("kept\n", 0o640)
    assert (await node.apply()).state == "stable"
    assert path.exists()


async def test_a_file_that_was_there_before_is_released(node: Node) -> None:
    path = node.put("old", "old\n")
    await node.apply(node.file("old", "new\n"))

    summary = await node.apply()

    assert path.read_text() == "new\n"
    assert summary.state == "stable"
    assert node.pruned() == [("old", "skipped", RELEASED)]
    assert node.events[-1].error == ["no longer in the manifest, and not removed: it existed before"]
    await node.apply()
    assert node.pruned() == []


async def test_a_file_that_changed_since_is_released_and_one_that_we_changed_is_removed(node: Node) -> None:
    await node.apply(node.file("edited"), node.file("ours", "1\n"))
    await node.apply(node.file("edited"), node.file("ours", "2\n"))
    node.put("edited", "by hand\n")

    await node.apply()

    assert node.there() == ["edited"]
    assert sorted(node.pruned()) == [("edited", "skipped", RELEASED), ("ours", "changed", "")]


async def test_a_directory_with_files_of_others_stays(node: Node) -> None:
    await node.apply(node.directory("d"))
    node.put("d/foreign", "x")

    await node.apply()

    assert node.there() == ["d"]
    assert node.pruned() == [("d", "skipped", RELEASED)]


@pytest.mark.parametrize("prune", ["plan", "apply"])
async def test_a_plan_lists_removals_and_changes_nothing(node: Node, prune: str) -> None:
    await node.apply(node.file("a"), node.file("b"))
    node.put("b", "by hand\n")
    before = {path.name: path.read_bytes() for path in node.ledgers.glob("*.ledger")}

    summary = await node.apply(prune=prune, noop=True)

    assert node.there() == ["a", "b"]
    assert {path.name: path.read_bytes() for path in node.ledgers.glob("*.ledger")} == before
    planned = ("a", "skipped", PRUNE_PLANNED) if prune == "plan" else ("a", "changed", "")
    assert node.pruned() == [("b", "skipped", RELEASED), planned]
    assert summary.changed_resources == (prune == "apply")
    (event,) = [one for one in node.events if one.pruned]
    text = event.noop_message or event.error[0]
    assert text.endswith(", no longer in the manifest")
    assert text.startswith("Would have removed" if prune == "apply" else "would be removed: ")


async def test_with_plan_an_apply_lists_them_too_and_is_stable(node: Node) -> None:
    await node.apply(node.file("a"), prune="plan")

    for _ in range(2):
        summary = await node.apply(prune="plan")

        assert (node.there(), summary.state) == (["a"], "stable")
        assert node.pruned() == [("a", "skipped", PRUNE_PLANNED)]

    await node.apply()
    assert node.there() == []


async def test_without_prune_nothing_is_recorded_or_removed(node: Node) -> None:
    await node.apply(node.file("a"), prune="off")
    await node.apply(prune="off")
    await node.apply()

    assert node.there() == ["a"]
    assert node.pruned() == []


@pytest.mark.parametrize("noop", [False, True])
async def test_more_removals_than_allowed_fail_and_remove_nothing(node: Node, noop: bool) -> None:
    names = ["a", "b", "c"]
    await node.apply(*(node.file(name) for name in names))

    summary = await node.apply(max_prune=2, noop=noop)

    assert node.there() == names
    assert (summary.state, summary.code) == ("failed", "run.prune")
    assert summary.reason.startswith("nothing was removed: 3 resources are no longer in the manifest")
    assert (await node.apply(max_prune=3)).state == "changed"
    assert node.there() == []


async def test_only_a_complete_run_prunes(node: Node) -> None:
    await node.apply(node.file("a"))
    stop = StopFlag()

    def end(name: str, position: int, total: int) -> None:
        stop.set("stopped by anna")

    failing = node.file("none/x")
    child = {"apply": [{"child.yaml": {"control": {"if": "false"}}}]}
    for resources, options, why in (
        ((failing,), {}, "a resource failed"),
        ((), {"selection": ResourceSelection(only=(f"file#{node.box}/anchor",))}, "only selected resources"),
        ((child,), {}, "not all resources"),
        ((), {"stop": stop, "on_resource": end}, "the run was stopped"),
    ):
        await node.apply(*resources, **options)

        (note,) = [found for message, found in node.notes if message == "Nothing is pruned"]
        assert str(note["reason"]).startswith(why)
        assert node.there() == ["a"]

    await node.apply()
    assert node.there() == []


async def test_a_resource_that_control_excludes_is_still_in_the_manifest(node: Node) -> None:
    await node.apply(node.file("a"))

    await node.apply(node.file("a", control={"if": "false"}))

    assert node.there() == ["a"]


async def test_what_another_source_manages_is_released(node: Node) -> None:
    await node.apply(node.file("moved"), node.file("gone"))
    other = encode_message({"ccm": {"resources": [node.file("moved")]}})
    managed = await node.engine.managed(ManifestSource(text=other, name="other"), ApplyOptions())

    def elsewhere(found: Collection[str] | None) -> Callable[[], Awaitable[Collection[str] | None]]:
        async def find() -> Collection[str] | None:
            return found

        return find

    await node.apply(managed_elsewhere=elsewhere(None))
    assert node.there() == ["gone", "moved"]

    await node.apply(managed_elsewhere=elsewhere(managed))
    assert node.there() == ["moved"]
    assert node.pruned() == [("moved", "skipped", RELEASED), ("gone", "changed", "")]


async def test_what_another_ledger_has_is_released(node: Node) -> None:
    await node.apply(node.file("moved"))
    other = encode_message({"ccm": {"prune": "apply", "resources": [node.file("moved", "y\n")]}})
    await node.run(ManifestSource(text=other, name="other"), scope="assignment other")

    await node.apply()

    assert node.there() == ["moved"]


async def test_while_another_ledger_is_damaged_nothing_is_removed(node: Node) -> None:
    await node.apply(node.file("moved"), node.file("gone"))
    (own,) = node.ledgers.glob("*.ledger")
    other = encode_message({"ccm": {"prune": "apply", "resources": [node.file("moved", "y\n")]}})
    await node.run(ManifestSource(text=other, name="other"), scope="assignment other")
    (ledger,) = set(node.ledgers.glob("*.ledger")) - {own}
    intact = ledger.read_bytes()
    ledger.write_bytes(intact[:40] + b"#" + intact[41:])

    await node.apply()
    assert node.there() == ["gone", "moved"]
    reason = str(dict(node.notes)["Nothing is pruned"]["reason"])
    assert reason.startswith(f"{ledger}: the record of another manifest cannot be used: line 1 is damaged; ")

    ledger.write_bytes(intact)
    await node.apply()
    assert node.there() == ["moved"]


async def test_the_policy_of_the_node_limits_removals(node: Node) -> None:
    await node.apply(node.file("a"))
    (node.box / "anchor").touch()
    limits = grant(f"only: {{types: [file], paths: [{node.box}/anchor]}}")

    summary = await node.apply(grant=limits)

    assert node.there() == ["a"]
    assert (summary.state, node.pruned()) == ("failed", [("a", "failed", "policy.path")])


async def test_a_locked_resource_is_removed_when_the_lock_is_gone(node: Node) -> None:
    await node.apply(node.file("a"))

    await node.apply(lock=lambda names: "it is locked" if names[0].endswith("/a") else "")
    assert node.there() == ["a"]

    await node.apply()
    assert node.there() == []


async def test_a_tree_goes_with_its_resource_and_what_was_there_stays(node: Node) -> None:
    source = node.folder / "tree"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "one").write_text("1\n")
    (source / "two").write_text("2\n")
    (node.box / "www").mkdir()
    node.put("www/mine", "mine\n")
    tree = {"directory": [{str(node.box / "www"): {"ensure": "present", "source": str(source)}}]}
    await node.apply(tree)
    assert sorted(os.listdir(node.box / "www")) == ["mine", "sub", "two"]

    await node.apply()

    assert os.listdir(node.box / "www") == ["mine"]


async def test_a_file_stays_while_an_edit_of_it_is_in_the_manifest(node: Node) -> None:
    path = str(node.box / "conf")

    await node.apply(node.file("conf", "", replace=False), {"edit": [{path: {"line": "a"}}]})
    await node.apply({"edit": [{path: {"line": "a"}}]})
    assert node.there() == ["conf"]

    await node.apply()
    assert node.there() == []


async def test_a_secret_is_in_no_ledger_and_no_diff(node: Node) -> None:
    await node.apply(node.file("key", "hunter2-hunter2\n", sensitive=True))
    ledger = b"".join(path.read_bytes() for path in node.ledgers.glob("*.ledger"))

    await node.apply(diff=True)

    assert node.there() == []
    assert b"hunter2" not in ledger
    assert all("hunter2" not in str(encode_message(one)) for one in node.events)
    kept = [(Path(node.undo.folder) / name).read_bytes() for name in os.listdir(node.undo.folder)]
    assert all(b"hunter2" not in content for content in kept)


@pytest.mark.parametrize("scope", ["request site", "request web.yaml"])
async def test_a_request_without_an_assignment_is_refused(node: Node, scope: str) -> None:
    text = encode_message({"ccm": {"prune": "apply", "resources": [node.file("a")]}})

    with pytest.raises(ManifestError, match="needs an assignment or a local file"):
        await node.run(ManifestSource(text=text, name="web"), scope=scope)
    planned = await node.run(ManifestSource(text=text, name="web"), scope=scope, noop=True)

    assert node.there() == []
    assert "only runs of an assignment list the resources that `prune` would remove" in planned.warnings[0]


async def test_a_local_manifest_has_a_record_by_its_path(node: Node) -> None:
    path = node.folder / "site.yaml"

    async def apply(*resources: dict[str, Any]) -> SessionSummary:
        path.write_bytes(encode_message({"ccm": {"prune": "apply", "resources": list(resources)}}))
        return await node.run(ManifestSource(path="site.yaml"), scope="")

    await apply(node.file("anchor"), node.file("a"))
    await apply(node.file("anchor"))

    assert node.there() == []


async def test_a_child_manifest_counts_and_has_no_prune_of_its_own(node: Node) -> None:
    child = node.folder / "child.yaml"
    nested: dict[str, Any] = {"apply": [{str(child): {}}]}
    child.write_bytes(encode_message({"ccm": {"resources": [node.file("a"), node.file("b")]}}))
    await node.apply(nested)
    child.write_bytes(encode_message({"ccm": {"resources": [node.file("a")]}}))
    await node.apply(nested)
    assert node.there() == ["a"]

    child.write_bytes(encode_message({"ccm": {"prune": "apply", "resources": [node.file("c")]}}))
    summary = await node.apply(nested)

    assert summary.state == "failed"
    assert node.there() == ["a"]


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda text: text[:40] + b"#" + text[41:], id="a damaged line"),
        pytest.param(lambda text: text.split(b"\n", 1)[1], id="no header"),
        pytest.param(lambda text: b"\x00" * 200 + b"\n" + text, id="foreign bytes"),
    ],
)
async def test_a_damaged_ledger_is_set_aside_and_removes_nothing(
    node: Node, harm: Callable[[bytes], bytes]
) -> None:
    await node.apply(node.file("a"))
    (ledger,) = node.ledgers.glob("*.ledger")
    ledger.write_bytes(harm(ledger.read_bytes()))

    await node.apply(node.file("b"))

    assert node.there() == ["a", "b"]
    assert "The record of what was created is not used" in dict(node.notes)
    assert len(list(node.ledgers.glob("*.damaged"))) == 1
    await node.apply()
    assert node.there() == ["a"]


async def test_the_ledger_of_another_manifest_removes_nothing(node: Node) -> None:
    await node.apply(node.file("a"))
    (ledger,) = node.ledgers.glob("*.ledger")
    other = encode_message({"ccm": {"prune": "apply", "resources": [node.file("anchor")]}})
    source = ManifestSource(text=other, name="other")
    ledger.rename(CreationLedger(node.ledgers, "assignment other").path)

    await node.run(source, scope="assignment other")

    assert node.there() == ["a"]
    assert "The record of what was created is not used" in dict(node.notes)


async def test_a_ledger_that_other_users_can_write_stops_the_run(node: Node) -> None:
    await node.apply(node.file("a"))
    node.ledgers.chmod(0o777)

    summary = await node.apply()

    assert (summary.state, node.there(), node.events) == ("failed", ["a"], [])
    assert "other users can write there" in summary.reason


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kill_at", range(1, 5))
async def test_a_kill_while_files_are_created_forgets_none(
    tmp_path: Path, kill_at: int, is_after: bool
) -> None:
    (tmp_path / "box").mkdir()
    mortal = Node(tmp_path, MortalFiles(tmp_path / "box", kill_at, is_after=is_after))
    names = ["a", "b", "c"]
    with pytest.raises(Killed):
        await mortal.apply(*(mortal.file(name) for name in names))

    node = Node(tmp_path, runs=10)
    await node.apply(*(node.file(name) for name in names))
    assert node.there() == names
    await node.apply()

    assert node.there() == []


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kill_at", range(1, 4))
async def test_a_kill_while_files_are_removed_removes_none_twice(
    tmp_path: Path, kill_at: int, is_after: bool
) -> None:
    first = Node(tmp_path)
    await first.apply(*(first.file(name) for name in ("a", "b", "c")))
    mortal = Node(tmp_path, MortalFiles(tmp_path / "box", kill_at, is_after=is_after), runs=10)
    with pytest.raises(Killed):
        await mortal.apply()
    gone = {"a", "b", "c"} - set(mortal.there())
    assert len(gone) == kill_at - (not is_after)
    for name in gone:
        mortal.put(name, "another program's\n")

    node = Node(tmp_path, runs=20)
    await node.apply()

    assert node.there() == sorted(gone)
