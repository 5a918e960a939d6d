"""Runs on record."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ccm_agent.model.errors import ProtocolError, RunError
from ccm_agent.model.wire import NodeEnd, NodeState, RunRecord, RunState
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus, MemoryKeyValue
from ccm_ctl.fleet import history as module
from ccm_ctl.fleet.history import History, restore_ends
from ccm_ctl.fleet.run import Run
from tests.support.controller import NOW

A, B, C = "2zFXa" + "0" * 22, "2zFXb" + "0" * 22, "2zGYc" + "0" * 22


@pytest.fixture
def bucket() -> MemoryKeyValue:
    return MemoryBus(MemoryBroker(), "op").bucket("CCM_RUNS")


def a_record(run: str, minutes: int = 0) -> RunRecord:
    return RunRecord(run=run, action="apply", name="motd", time=NOW + timedelta(minutes=minutes))


async def test_a_run_is_kept_whole_in_pieces(bucket: MemoryKeyValue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_NODES", 2)
    nodes = [f"n{number}" for number in range(25)]
    history = History(bucket)

    await history.begin(a_record(A), nodes, {"n1", "n24"})
    recorded = await history.load(A)

    assert (recorded.record, recorded.nodes, recorded.offline) == (a_record(A), nodes, ["n1", "n24"])
    assert recorded.state == RunState(run=A, time=NOW)
    assert len([key for key in await bucket.keys() if ".targets." in key]) == 13


async def test_what_no_stream_tells_is_kept_and_given_back(bucket: MemoryKeyValue) -> None:
    history = History(bucket)
    await history.begin(a_record(A), ["a", "b", "c"], ["b"])
    run = Run(A, ["a", "b", "c"], ["b"], 0.0, asked=True)
    run.ended("a", NodeState.REFUSED, "disabled", "agent.disabled", 0.0)
    run.ended("d", NodeState.EXPIRED, "late", "", 0.0)

    await history.finish(run)
    recorded = await history.load(A)
    again = Run(A, recorded.nodes, recorded.offline, 0.0, asked=False)
    restore_ends(again, recorded, 0.0)

    assert recorded.ends == {
        "a": NodeEnd(state="refused", reason="disabled", code="agent.disabled"),
        "b": NodeEnd(state="offline"),
        "d": NodeEnd(state="expired", reason="late"),
    }
    assert recorded.state == RunState(
        run=A,
        state="done",
        time=NOW,
        counts={"expected": 1, "refused": 1, "expired": 1, "offline": 1},
        joined=["d"],
    )
    assert {name: node.state for name, node in again.nodes.items()} == {
        "a": NodeState.REFUSED,
        "b": NodeState.OFFLINE,
        "c": NodeState.EXPECTED,
        "d": NodeState.EXPIRED,
    }


async def test_runs_are_found_by_id_beginning_and_newest(bucket: MemoryKeyValue) -> None:
    history = History(bucket)
    for run, minutes in ((A, 0), (B, 5), (C, 2)):
        await history.begin(a_record(run, minutes), [], [])

    found = [await history.find(word) for word in (A, "2zG", "last", "2zFXb")]
    newest = [record.run for record, _ in await history.newest(2)]

    assert found == [A, C, B, B]
    assert newest == [B, C]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("2zFX", f"2zFX: 2 runs begin so, {B} and {A} among them; write more of it"),
        ("nope", "nope: there is no such run; `ccmctl run list` shows which there are"),
    ],
)
async def test_a_beginning_that_does_not_tell_is_an_error(
    bucket: MemoryKeyValue, word: str, said: str
) -> None:
    history = History(bucket)
    await history.begin(a_record(A), [], [])
    await history.begin(a_record(B, 1), [], [])

    with pytest.raises(RunError) as caught:
        await history.find(word)

    assert str(caught.value) == said


async def test_without_any_run_there_is_no_last(bucket: MemoryKeyValue) -> None:
    with pytest.raises(RunError):
        await History(bucket).find("last")


async def test_a_state_is_changed_whoever_else_does(bucket: MemoryKeyValue) -> None:
    history = History(bucket)
    await history.begin(a_record(A), [], [])
    others = iter(["joined-by-another"])

    def change(state: RunState) -> None:
        for other in others:  # somebody writes between our reading and our writing, once
            bucket._write(f"{A}.state", b'{"run":"%s","joined":["%s"]}' % (A.encode(), other.encode()))
        state.state = "stopping"

    written = await history.change(A, change)

    assert (written.state, written.joined) == ("stopping", ["joined-by-another"])


async def test_what_is_no_record_is_named(bucket: MemoryKeyValue) -> None:
    await bucket.put(f"{A}.request", b"[]")

    with pytest.raises(ProtocolError, match=f"^{A}.request: not what belongs there: "):
        await History(bucket).load(A)


async def test_a_run_that_never_went_out_is_forgotten(bucket: MemoryKeyValue) -> None:
    history = History(bucket)
    await history.begin(a_record(A), ["a"], [])
    await history.begin(a_record(B), ["a"], [])

    await history.forget(A)

    assert [record.run for record, _ in await history.newest(9)] == [B]
    assert all(key.startswith(B) for key in await bucket.keys())
