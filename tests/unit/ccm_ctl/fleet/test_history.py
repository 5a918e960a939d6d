"""Runs on record."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.subjects import encode_token
from ccm_agent.model.errors import ProtocolError, RunError
from ccm_agent.model.records.run_records import NodeEnd, RunEnds, RunRecord, RunState, RunTargets
from ccm_agent.model.wire import Answer, NodeState
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.ports import Bucket, Fleet
from ccm_ctl.fleet.runs import history as module
from ccm_ctl.fleet.runs.history import History, restore_ends
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.run_signatures import digest_nodes
from tests.support.controller import NOW, fleet_on
from tests.support.signing import OWN

A, B, C = "2zFXa" + "0" * 22, "2zFXb" + "0" * 22, "2zGYc" + "0" * 22


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker(now=lambda: NOW)


@pytest.fixture
def fleet(broker: MemoryBroker) -> Fleet:
    return fleet_on(MemoryBus(broker, "op"))


@pytest.fixture
def other(broker: MemoryBroker) -> Fleet:
    """Another operator."""
    return fleet_on(MemoryBus(broker, "mallory"))


@pytest.fixture
def bucket(fleet: Fleet) -> Bucket:
    return fleet.runs


async def runs_of(fleet: Fleet, most: int = 9) -> list[str]:
    return [record.run for record, *_ in (await History(fleet).newest(most)).runs]


def a_record(run: str, minutes: int = 0) -> RunRecord:
    time = NOW + timedelta(minutes=minutes)
    return RunRecord(run=run, action="apply", name="motd", requester="op", time=time)


async def test_a_run_is_kept_whole_in_pieces(
    fleet: Fleet, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE_NODES", 2)
    nodes = [f"n{number}" for number in range(25)]
    history = History(fleet)

    await history.begin(a_record(A), nodes, {"n1", "n24"}, OWN)
    recorded = await history.load(A)

    whole = replace(a_record(A), nodes_digest=digest_nodes(nodes, ["n1", "n24"]))
    assert (recorded.record, recorded.nodes, recorded.offline) == (whole, nodes, ["n1", "n24"])
    assert recorded.state == RunState(run=A, time=NOW)
    assert len([key for key in await bucket.keys() if ".targets." in key]) == 13


async def test_programs_of_one_operator_do_not_remove_the_ends_that_each_other_recorded(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE_NODES", 1)
    history = History(fleet)
    await history.begin(a_record(A), ["a", "b", "c"], [], OWN)
    driver, watcher = (Run(A, ["a", "b", "c"], [], 0.0, asked=True) for _ in range(2))
    driver.ended("a", NodeState.UNREACHABLE, "no answer", "", 0.0)
    driver.ended("b", NodeState.UNREACHABLE, "no answer", "", 0.0)
    watcher.answered("b", Answer(protocol="", state="accepted"), 0.0)
    watcher.ended("c", NodeState.REFUSED, "disabled", "", 0.0)

    await history.finish(driver)
    await history.keep_ends(watcher)

    assert {node: end.state for node, end in (await history.load(A)).ends.items()} == {
        "a": "unreachable",
        "c": "refused",
    }


async def test_end_states_that_no_stream_stores_are_recorded_and_read_back(fleet: Fleet) -> None:
    history = History(fleet)
    await history.begin(a_record(A), ["a", "b", "c"], ["b"], OWN)
    run = Run(A, ["a", "b", "c"], ["b"], 0.0, asked=True)
    run.ended("a", NodeState.REFUSED, "disabled", "agent.disabled", 0.0)
    run.join("d", 0.0)
    run.ended("d", NodeState.EXPIRED, "late", "", 0.0)

    await history.finish(run)
    recorded = await history.load(A)
    again = Run(A, recorded.nodes, recorded.offline, 0.0, asked=False)
    restore_ends(again, recorded, 0.0)

    assert recorded.ends == {
        "a": NodeEnd(state="refused", reason="disabled", code="agent.disabled"),
        "b": NodeEnd(state="offline"),
    }
    assert recorded.state == RunState(
        run=A,
        state="done",
        time=NOW,
        counts={"expected": 1, "refused": 1, "offline": 1},
        joined=["d"],
    )
    assert {name: node.state for name, node in again.nodes.items()} == {
        "a": NodeState.REFUSED,
        "b": NodeState.OFFLINE,
        "c": NodeState.EXPECTED,
    }


async def test_runs_are_found_by_id_beginning_and_newest(fleet: Fleet) -> None:
    history = History(fleet)
    for run in (A, B, C):
        await history.begin(a_record(run), [], [], OWN)

    found = [await history.find(word) for word in (A, "2zG", "last", "2zFXb")]
    newest = await runs_of(fleet, 2)

    assert found == [A, C, C, B]
    assert newest == [C, B]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("2zFX", f"run `2zFX` is ambiguous: 2 runs begin with it, such as {B} and {A}; use more characters"),
        ("nope", "there is no run `nope`; `ccmctl run list` lists the newest runs"),
    ],
)
async def test_a_beginning_that_does_not_tell_is_an_error(fleet: Fleet, word: str, said: str) -> None:
    history = History(fleet)
    await history.begin(a_record(A), [], [], OWN)
    await history.begin(a_record(B, 1), [], [], OWN)

    with pytest.raises(RunError) as caught:
        await history.find(word)

    assert str(caught.value) == said


async def test_without_any_run_last_is_an_error(fleet: Fleet) -> None:
    with pytest.raises(RunError):
        await History(fleet).find("last")


async def test_a_state_is_changed_whatever_else_the_operator_does(fleet: Fleet, bucket: Bucket) -> None:
    history = History(fleet)
    await history.begin(a_record(A), [], [], OWN)
    others = iter(["joined-by-another"])

    def change(state: RunState) -> None:
        for other in others:  # another program writes between our reading and our writing, once
            written = b'{"run":"%s","joined":["%s"]}' % (A.encode(), other.encode())
            bucket._write(f"op.{A}.state", written)  # type: ignore[attr-defined]
        state.state = "stopping"

    written = await history.change(A, change)

    assert (written.state, written.joined) == ("stopping", ["joined-by-another"])


async def test_an_invalid_record_is_named(fleet: Fleet, bucket: Bucket) -> None:
    await bucket.put(f"op.{A}.request", b"[]")

    with pytest.raises(ProtocolError, match=f"^op.{A}.request: not a valid record: "):
        await History(fleet).load(A)


async def test_a_run_that_never_went_out_is_forgotten(fleet: Fleet, bucket: Bucket) -> None:
    history = History(fleet)
    await history.begin(a_record(A), ["a"], [], OWN)
    await history.begin(a_record(B), ["a"], [], OWN)

    await history.forget(A)

    assert await runs_of(fleet) == [B]
    assert all(key.startswith(f"op.{B}.") for key in await bucket.keys())


FORMER = {
    f"{A}.targets.0": b'{"run":"%s","nodes":["a","b"],"offline":["b"]}' % A.encode(),
    f"{A}.state": b'{"run":"%s","state":"done","time":"2026-11-21T11:00:00Z","counts":{"changed":1}}' % A.encode(),
    f"{A}.request": b'{"run":"%s","action":"apply","name":"motd","requester":"alice","time":"2026-11-21T11:00:00Z",'
    b'"subjects":["io.choria.ccm.v1.manifest.apply.request.all"],"request":{"manifest":"ccm: {}"},"nodes":2}' % A.encode(),
    f"{A}.ends.0": b'{"run":"%s","nodes":{"b":{"state":"offline"}}}' % A.encode(),
}  # fmt: skip
"""What a controller of before wrote, which had no operator in its keys."""


async def test_a_record_of_an_older_controller_is_read(fleet: Fleet, bucket: Bucket) -> None:
    for key, value in FORMER.items():
        await bucket.put(key, value)
    await History(fleet).begin(a_record(B), [], [], OWN)

    listed = await History(fleet).newest(9)
    recorded = await History(fleet).load(await History(fleet).find("2zFXa"))

    assert [(record.run, record.requester) for record, *_ in listed.runs] == [(B, "op"), (A, "alice")]
    assert listed.left_out == []
    assert (recorded.nodes, recorded.offline, recorded.record.requester) == (["a", "b"], ["b"], "alice")
    assert (recorded.state.state, recorded.ends) == ("done", {"b": NodeEnd(state="offline")})


async def test_a_run_of_an_older_controller_can_be_stopped_and_closed(fleet: Fleet, bucket: Bucket) -> None:
    for key, value in FORMER.items():
        await bucket.put(key, value.replace(b'"done"', b'"running"'))

    def stop(state: RunState) -> None:
        state.state = "stopping"

    await History(fleet).change(A, stop)
    recorded = await History(fleet).load(A)

    assert (recorded.state.state, recorded.state.stopped_by) == ("stopping", "op")


async def test_of_two_records_of_one_run_the_first_counts(fleet: Fleet, other: Fleet) -> None:
    await History(fleet).begin(a_record(A), ["a"], [], OWN)
    forged = RunRecord(run=A, action="plan", name="theirs", requester="op")
    await History(other).begin(forged, ["evil"], [], OWN)

    recorded = await History(fleet).load(A)
    [(record, state, closed_by, unverified)] = (await History(fleet).newest(9)).runs

    whole = replace(a_record(A), nodes_digest=digest_nodes(["a"], []))
    assert (recorded.record, recorded.nodes) == (whole, ["a"])
    assert (record, state.state, closed_by, unverified) == (whole, "running", "", "")


async def test_last_is_the_operators_own_newest_run(fleet: Fleet, other: Fleet) -> None:
    with pytest.raises(RunError, match="no run is on record here yet"):
        await History(other).find("last")
    await History(fleet).begin(a_record(A), ["a"], [], OWN)

    with pytest.raises(RunError, match="has no run on record"):
        await History(other).find("last")

    await History(other).begin(a_record(B), ["a"], [], OWN)
    assert [await History(one).find("last") for one in (fleet, other)] == [A, B]


async def test_the_requester_is_the_owner_of_the_key(fleet: Fleet, other: Fleet) -> None:
    """The body may say any name; the broker lets an operator write under his own."""
    await History(other).begin(a_record(A), [], [], OWN)

    recorded = await History(fleet).load(A)

    assert recorded.record.requester == "mallory"


async def test_another_operator_stops_and_closes_a_run_in_his_own_name(fleet: Fleet, other: Fleet) -> None:
    await History(fleet).begin(a_record(A), ["a", "b"], [], OWN)
    before = {entry.key: entry for entry in await fleet.runs.entries("op.")}

    def stop(state: RunState) -> None:
        state.state, state.stopped_by = "stopping", "op"

    await History(other).change(A, stop)
    stopped = await History(fleet).load(A)
    run = Run(A, ["a", "b"], [], 0.0, asked=False)
    run.ended("a", NodeState.REFUSED, "disabled", "", 0.0)
    await History(other).finish(run)
    closed = await History(fleet).load(A)

    assert (stopped.state.state, stopped.state.stopped_by, stopped.closed_by) == ("stopping", "mallory", "")
    assert (closed.state.state, closed.closed_by) == ("done", "mallory")
    assert closed.state.counts == {"expected": 1, "refused": 1}
    assert closed.ends == {"a": NodeEnd(state="refused", reason="disabled")}
    assert {entry.key: entry for entry in await fleet.runs.entries("op.")} == before


async def test_the_operator_of_a_run_overrides_other_operators(fleet: Fleet, other: Fleet) -> None:
    await History(fleet).begin(a_record(A), ["a", "b"], [], OWN)
    ended = {"a": NodeState.REFUSED, "b": NodeState.LOST}
    for writer, node in ((other, "b"), (fleet, "a")):
        run = Run(A, ["a", "b"], [], 0.0, asked=False)
        run.ended("a", ended[node], "", "", 0.0)
        await History(writer).finish(run)

    recorded = await History(fleet).load(A)

    assert (recorded.ends["a"].state, recorded.closed_by) == ("refused", "")
    assert recorded.state.counts == {"expected": 1, "refused": 1}


BAD = {
    "not a key of ours": ("mallory.what", b"{}"),
    "a record without end": (f"mallory.{A}.request", b'{"run":'),
    "another run's record": (f"mallory.{A}.request", b'{"run":"%s","action":"apply","name":"x"}' % C.encode()),
    "a state that is not a state": (f"mallory.{A}.state", b'{"run":"%s","counts":"x"}' % A.encode()),
    "a number that no run has": (f"mallory.{A}.state", b'{"run":"%s","counts":{"changed":%s}}' % (A.encode(), b"9" * 300)),
    "a state of the operator's own run": (f"mallory.{B}.state", b"[]"),
    "a piece without a number": (f"mallory.{B}.targets.x", b"{}"),
    "a piece of a high number": (f"mallory.{B}.targets.{'9' * 5000}", b"{}"),
    "a state of before": (f"{C}.state", b'{"run":"%s","counts":"x"}' % C.encode()),
    "a request of before": (f"{C}.request", b"[]"),
}  # fmt: skip


@pytest.mark.parametrize(("key", "value"), BAD.values(), ids=BAD)
async def test_a_bad_record_hides_no_other_one(fleet: Fleet, bucket: Bucket, key: str, value: bytes) -> None:
    await History(fleet).begin(a_record(B), ["a"], [], OWN)
    await bucket.put(f"{C}.state", b'{"run":"%s"}' % C.encode())
    await bucket.put(key, value)

    listed = await History(fleet).newest(9)

    assert [record.run for record, *_ in listed.runs] == [B]
    assert listed.left_out in ([key], [])
    assert await History(fleet).find("2zFXb") == B
    assert (await History(fleet).load(B)).nodes == ["a"]


@pytest.mark.parametrize(("key", "value"), BAD.values(), ids=BAD)
async def test_the_newest_run_is_found_beside_a_bad_record(
    fleet: Fleet, bucket: Bucket, key: str, value: bytes
) -> None:
    await bucket.put(key, value)
    await History(fleet).begin(a_record(B), ["a"], [], OWN)

    assert await History(fleet).find("last") == B


async def test_a_record_from_the_future_is_not_the_last_run_forever(
    fleet: Fleet, bucket: Bucket, broker: MemoryBroker
) -> None:
    now = [NOW]
    broker.now = lambda: now[0]  # type: ignore[method-assign]
    await bucket.put(f"{C}.state", b'{"run":"%s","time":"9999-01-01T00:00:00Z"}' % C.encode())
    await bucket.put(f"mallory.{A}.request", msgspec.json.encode(a_record(A, 10**6)))
    now[0] += timedelta(minutes=1)
    await History(fleet).begin(a_record(B), ["a"], [], OWN)

    assert await History(fleet).find("last") == B


async def test_invalid_node_names_are_left_out(fleet: Fleet, bucket: Bucket) -> None:
    await History(fleet).begin(a_record(A), [], [], OWN)
    names = ["a", "web" + "9" * 5000, "\x1b[2J", "../x"]
    ends = RunEnds(run=A, nodes={name: NodeEnd(state="failed") for name in names})
    await bucket.put(f"op.{A}.targets.0", msgspec.json.encode(RunTargets(run=A, nodes=names, offline=names)))
    await bucket.put(f"mallory.{A}.ends.0", msgspec.json.encode(ends))

    recorded = await History(fleet).load(A)

    assert (recorded.nodes, recorded.offline, list(recorded.ends)) == (["a"], ["a"], ["a"])


@pytest.mark.parametrize("operator", ["maria", "maria@example.com", "x" * 300, A])
async def test_an_operator_writes_below_one_token(broker: MemoryBroker, operator: str) -> None:
    fleet = fleet_on(MemoryBus(broker, operator))
    await History(fleet).begin(a_record(B), ["a"], [], OWN)
    run = Run(B, ["a"], ["a"], 0.0, asked=True)
    await History(fleet).finish(run)

    recorded = await History(fleet).load(B)
    keys = await fleet.runs.keys()

    assert {key.split(".")[0] for key in keys} == {encode_token(operator)}
    assert recorded.record.requester == (operator if len(operator) < 100 else encode_token(operator))
    assert (recorded.state.state, recorded.closed_by, list(recorded.ends)) == ("done", "", ["a"])
