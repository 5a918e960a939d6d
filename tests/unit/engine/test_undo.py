"""An undo as the engine runs it: policy, locks, stops, and changes whose end is not known."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from ccm_agent.engine.request import ManifestSource, StopFlag
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import Outcome
from ccm_agent.model.records.undo import CHANGED_SINCE, Identity, UndoEntry, UndoRecord
from ccm_agent.policy.grant import Grant
from tests.support.engine import Board, bench, note_type
from tests.unit.engine.test_policy import RESTRICTED, Stage, grant

RUN = new_id(datetime(2026, 11, 21, 12, tzinfo=UTC))
PUT = {"ensure": "present", "owner": "root", "group": "root", "mode": "0644", "content": "old"}


class Memory:
    """An undo log in memory."""

    folder = "/kept"
    file_limit_bytes = 1 << 20

    def __init__(self) -> None:
        self.told: list[tuple[str, str, Identity | None]] = []

    async def make_room(self, run: str, size_bytes: int, *, undone: str = "") -> str:
        return ""

    async def before(self, run: str, entry: UndoEntry) -> None:
        self.told.append(("before", entry.name, None))

    async def after(self, run: str, entry: UndoEntry, *, has_changed: bool) -> None:
        self.told.append(("changed" if has_changed else "same", entry.name, entry.left))

    async def close(self, run: str) -> None:
        self.told.append(("close", run, None))


def undo_of(*entries: UndoEntry) -> ManifestSource:
    return ManifestSource(name="undo", undo=UndoRecord(run=RUN, folder="/kept", entries=list(entries)))


def entry(name: str, left: Identity | None = None, **fields: object) -> UndoEntry:
    return UndoEntry(type="file", name=name, properties=PUT, left=left, **fields)  # type: ignore[arg-type]


ABSENT: Identity = {"ensure": "absent", "link": ""}


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (grant("only: {types: [file], paths: [/srv/**]}"), "policy.path"),
        (grant("forbid: {types: [file]}"), "policy.type"),
    ],
)
async def test_the_policy_of_the_node_limits_an_undo_too(limits: Grant, code: str) -> None:
    at = Stage()

    await at.on.engine.apply(undo_of(entry("/etc/motd", ABSENT)), at.on.options(grant=limits))

    assert at.told == [("file#/etc/motd", "failed", code)]
    assert "/etc/motd" not in at.on.files.nodes


async def test_kept_contents_may_be_read_under_a_policy_that_limits_sources() -> None:
    at = Stage()
    content = "0" * 64
    at.on.files.put(f"/kept/{content}", "old")
    source = {key: value for key, value in PUT.items() if key != "content"} | {"source": content}
    one = replace(entry("/srv/a", ABSENT), properties=source)
    limits = grant("only: {types: [file], paths: [/srv/**], sources: [/nowhere/**]}")

    await at.on.engine.apply(undo_of(one), at.on.options(grant=limits))

    assert at.told == [("file#/srv/a", "changed", "")]
    assert at.on.files.nodes["/srv/a"].content == b"old"


async def test_an_operator_who_may_only_plan_gets_a_plan() -> None:
    at = Stage()

    await at.on.engine.apply(undo_of(entry("/srv/a", ABSENT)), at.on.options(grant=RESTRICTED, noop=True))

    assert [(one.outcome, one.noop_message) for one in at.events] == [
        (Outcome.CHANGED, "Would have created the file")
    ]
    assert "/srv/a" not in at.on.files.nodes


async def test_a_locked_resource_is_not_undone() -> None:
    at = Stage()

    await at.on.engine.apply(
        undo_of(entry("/srv/a", ABSENT)), at.on.options(lock=lambda names: f"{names[0]} is locked")
    )

    assert [(one.outcome, one.error) for one in at.events] == [(Outcome.SKIPPED, ["file#/srv/a is locked"])]


async def test_an_undo_that_is_stopped_leaves_the_rest() -> None:
    at = Stage()
    stop = StopFlag()

    def end(name: str, position: int, total: int) -> None:
        if position == 2:
            stop.set("stopped by anna", by="anna")

    summary = await at.on.engine.apply(
        undo_of(entry("/srv/a", ABSENT), entry("/srv/b", ABSENT), entry("/srv/c", ABSENT)),
        at.on.options(stop=stop, on_resource=end),
    )

    assert (summary.state, summary.stopped_by) == ("stopped", "anna")
    assert [one.outcome for one in at.events] == [Outcome.CHANGED, Outcome.SKIPPED, Outcome.SKIPPED]


async def test_a_resource_with_another_identity_is_left_alone() -> None:
    at = Stage()
    at.on.files.put("/srv/a", "edited")

    await at.on.engine.apply(undo_of(entry("/srv/a", ABSENT)), at.on.options())

    assert at.told == [("file#/srv/a", "skipped", CHANGED_SINCE)]
    assert at.on.files.nodes["/srv/a"].content == b"edited"


async def test_a_change_is_on_record_before_it_is_made_and_its_end_after_it() -> None:
    board, memory = Board(), Memory()
    on = bench(note_type(board), board=board)

    await on.engine.apply(
        ManifestSource(text=b"ccm: {resources: [{note: [{a: {text: x}}]}]}", name="m"),
        on.options(run=RUN, undo_log=memory),
    )

    assert memory.told == [("before", "a", None), ("changed", "a", None), ("close", RUN, None)]


@pytest.mark.parametrize("mode", ["noop", "health_check_only"])
async def test_a_plan_and_a_check_record_nothing(mode: str) -> None:
    memory, on = Memory(), bench()

    await on.engine.apply(
        ManifestSource(text=b"ccm: {resources: [{note: [{a: {text: x}}]}]}", name="m"),
        on.options(run=RUN, undo_log=memory, **{mode: True}),
    )

    assert memory.told == []


async def test_a_failed_change_records_what_it_left() -> None:
    at, memory = Stage(), Memory()
    at.on.files.put("/srv/a", "old")
    at.on.files.refuses["/srv/a"] = "the disk is on fire"

    await at.apply(
        "file: {name: /srv/a, ensure: present, owner: root, group: root, mode: '0644', content: new}",
        run=RUN,
        undo_log=memory,
    )

    assert at.events[0].failed
    assert [one[:2] for one in memory.told] == [("before", "/srv/a"), ("same", "/srv/a"), ("close", RUN)]
