"""A run's state machine: what is heard, in whatever order and however often, and what time alone brings."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime

import msgspec
import pytest

from ccm_agent.model.outcome import (
    SESSION_START,
    SESSION_SUMMARY,
    TRANSACTION_EVENT,
    SessionStart,
    SessionSummary,
    TransactionEvent,
)
from ccm_agent.model.resource_diff import FileDiff, ResourceDiff
from ccm_agent.model.wire import SESSION_ANSWER, SESSION_PROGRESS, Answer, NodeState, Progress
from ccm_ctl.fleet.events.gaps import Gaps
from ccm_ctl.fleet.runs.node_run import READS, Event, EventReceived, PendingActions, StateChange
from ccm_ctl.fleet.runs.run import (
    ANSWER_WITHIN_S,
    ANSWERS_PER_S,
    LOST_AFTER_S,
    QUIET_S,
    READ_AGAIN_S,
    UNRECEIVED,
    Run,
)

RUN = "2zFXzzzzzzzzzzzzzzzzzzzzzzz"
AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def a_run(*expected: str, offline: tuple[str, ...] = (), asked: bool = True) -> Run:
    return Run(RUN, expected, offline, 0.0, asked=asked)


def answer(state: str, **more: object) -> Answer:
    return Answer(protocol=SESSION_ANSWER, state=state, **more)  # type: ignore[arg-type]


def progress(**more: object) -> Progress:
    return Progress(protocol=SESSION_PROGRESS, **more)  # type: ignore[arg-type]


def start(number: int = 1) -> SessionStart:
    return SessionStart(protocol=SESSION_START, event_id=f"e{number}", timestamp=AT, number=number)


def changed(number: int, name: str = "/etc/motd") -> TransactionEvent:
    return TransactionEvent(
        protocol=TRANSACTION_EVENT, event_id=f"e{number}", timestamp=AT, number=number, type="file", provider="posix",
        name=name, requested_ensure="present", final_ensure="present", duration=1, properties={}, status={}, error=[],
        changed=True, refreshed=False, failed=False, skipped=False, noop=False, unmet_requirements=[],
    )  # fmt: skip


def summary(number: int, state: str = "changed", **more: object) -> SessionSummary:
    return SessionSummary(
        protocol=SESSION_SUMMARY,
        event_id=f"e{number}",
        timestamp=AT,
        number=number,
        events_sent=number,
        state=state,
        **more,  # type: ignore[arg-type]
    )


def states(run: Run) -> dict[str, NodeState]:
    return {name: node.state for name, node in run.nodes.items()}


def numbers(run: Run) -> list[tuple[str, int]]:
    return [(news.node, news.event.number) for news in run.updates() if isinstance(news, EventReceived)]


def read(run: Run, node: str, stored: list[Event], now: float) -> None:
    """What the driver does with a `PendingActions.read`: all that the stream holds, then `read_done`."""
    for event in stored:
        run.happened(node, event, now)
    run.read_done([node], now)


def test_a_node_passes_through_all_states_to_its_end() -> None:
    run = a_run("web1")
    seen = [run.nodes["web1"].state]

    run.answered("web1", answer("accepted"), 0.1)
    run.happened("web1", start(), 0.2)
    run.happened("web1", changed(2), 0.3)
    done_before_the_summary = run.is_done
    run.happened("web1", summary(3), 0.4)
    news = run.updates()
    seen += [one.state for one in news if isinstance(one, StateChange)]

    assert seen == [NodeState.EXPECTED, NodeState.ACCEPTED, NodeState.RUNNING, NodeState.CHANGED]
    assert [one.event.number for one in news if isinstance(one, EventReceived)] == [1, 2, 3]
    assert (done_before_the_summary, run.is_done) == (False, True)
    assert run.updates() == []


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 2, 1, 3, 1, 3), (1, 3, 1, 2, 2)])
def test_events_are_given_on_once_and_by_number_in_whatever_order_they_come(order: tuple[int, ...]) -> None:
    run = a_run("web1")
    events: dict[int, Event] = {1: start(), 2: changed(2), 3: summary(3)}

    for number in order:
        run.happened("web1", events[number], 1.0)

    assert numbers(run) == [("web1", 1), ("web1", 2), ("web1", 3)]
    assert run.is_done


def test_answer_of_a_stopped_node_uses_a_state_that_older_controllers_know() -> None:
    run = a_run("web1")

    run.answered("web1", answer("done", outcome="failed", code="run.stopped"), 0.1)

    assert states(run) == {"web1": NodeState.STOPPED}


def test_a_node_that_a_stop_reached_before_the_request_is_unreachable_and_has_no_events() -> None:
    run = a_run("web1")

    run.answered("web1", answer("done", outcome="failed", code="run.unreceived"), 0.1)

    [node] = run.nodes.values()
    assert (node.state, node.reason) == (NodeState.UNREACHABLE, UNRECEIVED)
    assert not node.wants_summary
    assert run.is_ended


def test_a_late_answer_does_not_take_an_end_back() -> None:
    run = a_run("web1")
    run.happened("web1", start(), 0.1)
    run.happened("web1", summary(2, "stable"), 0.2)

    run.answered("web1", answer("accepted"), 0.3)
    run.progressed("web1", progress(), 0.4)

    assert states(run) == {"web1": NodeState.STABLE}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("refused", NodeState.REFUSED),
        ("superseded", NodeState.SUPERSEDED),
        ("expired", NodeState.EXPIRED),
    ],
)
def test_an_answer_can_be_the_end(state: str, expected: NodeState) -> None:
    run = a_run("web1")

    run.answered("web1", answer(state, reason="no longer matches", code="fleet.no_match"), 0.1)

    assert states(run) == {"web1": expected}
    assert (run.nodes["web1"].reason, run.nodes["web1"].code) == ("no longer matches", "fleet.no_match")
    assert run.is_done


def test_a_queued_node_waits_runs_and_ends() -> None:
    run = a_run("web1")

    run.answered("web1", answer("queued", position=2), 0.1)
    queued = (run.nodes["web1"].state, run.nodes["web1"].position)
    run.progressed("web1", progress(state="queued"), 5.0)
    waiting = run.nodes["web1"].state
    run.happened("web1", start(), 9.0)

    assert (queued, waiting) == ((NodeState.QUEUED, 2), NodeState.QUEUED)
    assert states(run) == {"web1": NodeState.RUNNING}


def test_the_request_is_repeated_for_silent_present_nodes_until_they_are_unreachable() -> None:
    run = a_run("web1", "web2", "web3", offline=("web3",))
    run.answered("web1", answer("accepted"), 0.1)

    asked = [at / 2 for at in range(1, 24) if run.tick(at / 2).resend == ["web2"]]

    # answers to the last one still count for two seconds
    assert asked == [1.5, 2.5, 4.5, 8.5]
    assert asked[-1] < ANSWER_WITHIN_S


def test_the_request_does_not_go_out_again_while_nodes_answer() -> None:
    run = a_run("web1", "web2", "web3")
    run.answered("web1", answer("accepted"), 0.9)
    before = run.tick(1.0).resend
    run.answered("web2", answer("accepted"), 1.8)

    asked = {at: run.tick(at).resend for at in (2.0, 2.7, 2.9)}

    assert before == []
    assert asked == {2.0: [], 2.7: [], 2.9: ["web3"]}


def test_a_large_fleet_is_given_more_time_to_answer_before_it_is_asked_again_or_given_up() -> None:
    nodes = [f"node{number}" for number in range(10 * ANSWERS_PER_S)]
    run = a_run(*nodes)

    asked = {at: len(run.tick(at).resend) for at in (3.0, 10.9, 11.0)}
    suspected = {at: len(run.tick(at).read) for at in (ANSWER_WITHIN_S + 9.9, ANSWER_WITHIN_S + 10)}

    assert asked == {3.0: 0, 10.9: 0, 11.0: len(nodes)}
    assert suspected == {ANSWER_WITHIN_S + 9.9: 0, ANSWER_WITHIN_S + 10: len(nodes)}


def test_no_node_is_unreachable_while_others_answer_for_the_first_time() -> None:
    run = a_run("web1", "web2", "web3")
    run.answered("web1", answer("accepted"), ANSWER_WITHIN_S - 0.5)

    early = run.tick(ANSWER_WITHIN_S).read
    late = run.tick(ANSWER_WITHIN_S - 0.5 + QUIET_S).read

    assert (early, late) == ([], ["web2", "web3"])


def test_a_node_whose_answer_was_lost_is_not_unreachable_when_the_stream_has_its_events() -> None:
    run = a_run("web1", "web2")
    run.tick(ANSWER_WITHIN_S)

    run.happened("web1", start(), ANSWER_WITHIN_S)
    run.read_done(["web1", "web2"], ANSWER_WITHIN_S)

    assert states(run) == {"web1": NodeState.RUNNING, "web2": NodeState.UNREACHABLE}


def test_a_node_that_reports_that_its_events_wait_is_not_lost() -> None:
    run = a_run("web1")
    run.answered("web1", answer("accepted"), 0.1)

    run.progressed("web1", progress(state="reporting", run_s=5.0), 5.0)
    run.progressed("web1", progress(state="reporting", run_s=10.0), 10.0)

    assert run.tick(LOST_AFTER_S + 1).read == []
    assert states(run)["web1"] is NodeState.RUNNING


def test_a_present_node_that_never_answers_is_unreachable_and_one_that_was_not_present_is_offline() -> None:
    run = a_run("web1", "web2", offline=("web2",))

    todo = [run.tick(at).read for at in (1.0, 2.0, ANSWER_WITHIN_S)]
    run.read_done(["web1"], ANSWER_WITHIN_S)

    assert todo == [[], [], ["web1"]]
    assert states(run) == {"web1": NodeState.UNREACHABLE, "web2": NodeState.OFFLINE}
    assert run.nodes["web1"].reason == "present, but silent for 10s"
    assert run.is_done


@pytest.mark.parametrize("offline", [(), ("web1",)])
def test_a_node_that_answers_after_being_given_up_is_followed(offline: tuple[str, ...]) -> None:
    run = a_run("web1", "web2", offline=offline)
    for at in (1.0, 2.0, ANSWER_WITHIN_S):
        run.tick(at)
    run.read_done(None, ANSWER_WITHIN_S)

    run.answered("web1", answer("accepted"), 11.0)

    assert states(run)["web1"] is NodeState.ACCEPTED
    assert run.nodes["web1"].reason == ""


def test_a_node_that_was_not_expected_joins_when_it_may() -> None:
    run = a_run("web1")

    run.answered("web9", answer("accepted"), 0.1)
    before = states(run)
    run.join("web9", 0.2)
    run.answered("web9", answer("accepted"), 0.2)

    assert before == {"web1": NodeState.EXPECTED}
    assert run.joined == ["web9"]
    assert states(run) == {"web1": NodeState.EXPECTED, "web9": NodeState.ACCEPTED}


@pytest.mark.parametrize("state", ["failed", "stable"])
def test_a_node_that_joined_changes_neither_the_counts_nor_the_end_of_the_run(state: str) -> None:
    run = a_run("web1")
    run.join("web9", 0.0)
    run.answered("web9", answer("accepted"), 0.1)
    run.happened("web1", start(), 0.2)
    run.happened("web1", summary(2, "stable"), 0.3)
    done = run.is_done

    run.happened("web9", start(), 0.4)
    run.happened("web9", summary(2, state), 0.5)

    assert done
    assert run.counts() == {NodeState.STABLE: 1}
    assert states(run) == {"web1": NodeState.STABLE, "web9": NodeState(state)}


def test_events_of_a_joined_node_are_read_during_the_run() -> None:
    run = a_run("web1")
    run.answered("web1", answer("accepted"), 0.1)
    run.join("web9", 0.0)
    run.happened("web9", summary(2), 0.1)

    todo = run.tick(0.7)

    assert todo == PendingActions(read=["web9"])


@pytest.mark.parametrize("number", [1_000_000, 1 << 40, 1 << 63])
def test_a_number_that_no_run_has_costs_no_memory(number: int) -> None:
    run = a_run("web1")
    run.happened("web1", start(), 0.0)
    tracemalloc.start()

    run.happened("web1", summary(number), 0.0)
    now = 0.0
    while run.tick(now := now + READ_AGAIN_S).read:
        read(run, "web1", [start(), summary(number)], now)
    lacking = run.nodes["web1"].lacking
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert run.is_done
    assert lacking == Gaps([(2, number - 1)])
    assert lacking.first(3) == [2, 3, 4]
    assert peak_bytes < 1 << 20


def test_texts_that_nodes_have_in_common_are_kept_once() -> None:
    names = [f"node{n}" for n in range(3)]
    run = a_run(*names)
    body = msgspec.json.encode(changed(1))

    for name in names:
        run.happened(name, msgspec.json.decode(body, type=TransactionEvent), 0.1)

    kept = [run.nodes[name].events[1] for name in names]
    assert kept == [changed(1)] * 3
    for field in ("protocol", "type", "provider", "name", "requested_ensure", "final_ensure", "node", "run"):
        assert len({id(getattr(event, field)) for event in kept}) == 1


def test_equal_diffs_of_many_nodes_are_kept_once() -> None:
    names = [f"web{i}" for i in range(50)]
    run = a_run(*names)

    for name in names:
        diff = ResourceDiff(
            files=[FileDiff(path="/etc/motd", text="+hello\n" if name != "web7" else "+bye\n")]
        )
        run.happened(name, msgspec.structs.replace(changed(1), diff=diff), 0.1)

    kept = [run.nodes[name].events[1].diff for name in names]
    assert len({id(diff) for diff in kept}) == 2
    assert kept[7] == ResourceDiff(files=[FileDiff(path="/etc/motd", text="+bye\n")])
    assert kept[0] == kept[49] == ResourceDiff(files=[FileDiff(path="/etc/motd", text="+hello\n")])


def test_a_negative_number_is_not_an_event() -> None:
    run = a_run("web1")

    run.happened("web1", changed(-1), 0.0)

    assert numbers(run) == []
    assert run.nodes["web1"].lacking == Gaps()


def test_a_run_ends_at_its_limit_though_its_nodes_tell_progress_forever() -> None:
    run = Run(RUN, ["web1", "web2"], [], 0.0, asked=True, limit_s=60)
    run.answered("web2", answer("refused"), 0.1)
    at = 0.0
    while not run.is_done and at < 100:
        at += 5
        run.progressed("web1", progress(run_s=at), at)
        run.tick(at)

    assert at == 60
    assert states(run) == {"web1": NodeState.LOST, "web2": NodeState.REFUSED}
    assert run.nodes["web1"].reason == "not finished after 60s; ccmctl stopped watching it"


def test_a_gap_is_not_looked_for_after_the_limit() -> None:
    run = Run(RUN, ["web1"], [], 0.0, asked=True, limit_s=60)
    run.happened("web1", summary(3), 59.9)

    before = run.is_done
    run.tick(60)

    assert (before, run.is_done, states(run)) == (False, True, {"web1": NodeState.CHANGED})


def test_repeated_progress_does_not_extend_the_wait() -> None:
    run = a_run("web1")
    told = progress(resource="exec#long", run_s=5)
    run.progressed("web1", told, 0.0)
    for at in (5.0, 10.0, 15.0):
        run.progressed("web1", told, at)

    todo = run.tick(LOST_AFTER_S)

    assert todo == PendingActions(read=["web1"])


def test_a_gap_is_read_from_the_stream_before_the_node_is_complete() -> None:
    run = a_run("web1")
    run.happened("web1", start(), 0.1)
    run.happened("web1", summary(3), 0.2)
    before = (states(run)["web1"], run.is_done, numbers(run))
    todo = run.tick(0.6)

    read(run, "web1", [start(), changed(2), summary(3)], 0.7)

    assert before == (NodeState.CHANGED, False, [("web1", 1)])
    assert todo == PendingActions(read=["web1"])
    assert numbers(run) == [("web1", 2), ("web1", 3)]
    assert run.is_done


def test_events_that_the_stream_never_stored_are_counted_as_missing_and_not_awaited() -> None:
    run = a_run("web1")
    run.happened("web1", start(), 0.0)
    run.happened("web1", summary(4), 0.0)
    run.happened("web1", changed(3), 0.0)
    now, reads = 0.0, 0
    while run.tick(now := now + READ_AGAIN_S).read:
        reads += 1
        read(run, "web1", [start(), changed(3), summary(4)], now)

    assert (reads, run.nodes["web1"].missing, run.is_done) == (READS, Gaps([(2, 2)]), True)
    assert numbers(run) == [("web1", 1), ("web1", 3), ("web1", 4)]


def test_a_missing_event_that_comes_after_all_is_shown_once() -> None:
    run = a_run("web1")
    run.happened("web1", start(), 0.0)
    run.happened("web1", summary(3), 0.0)
    now = 0.0
    while run.tick(now := now + READ_AGAIN_S).read:
        read(run, "web1", [], now)
    run.updates()

    run.happened("web1", changed(2), 9.0)
    run.happened("web1", changed(2), 9.1)

    assert numbers(run) == [("web1", 2)]
    assert run.nodes["web1"].missing == Gaps()


def test_a_node_that_accepted_and_fell_silent_is_lost_after_the_stream_was_asked() -> None:
    run = a_run("web1")
    run.happened("web1", start(), 1.0)
    run.progressed("web1", progress(resource="package#nginx", position=4, total=9), 6.0)

    early = run.tick(6.0 + LOST_AFTER_S - 0.1)
    todo = run.tick(6.0 + LOST_AFTER_S)
    still = run.nodes["web1"].state
    read(run, "web1", [start()], 6.1 + LOST_AFTER_S)

    assert (early, todo, still) == (PendingActions(), PendingActions(read=["web1"]), NodeState.RUNNING)
    assert states(run) == {"web1": NodeState.LOST}
    assert run.nodes["web1"].reason == "silent for 16s; it was last at package#nginx (4 of 9)"
    assert run.is_done


def test_a_summary_that_only_the_stream_has_saves_a_silent_node() -> None:
    run = a_run("web1")
    run.happened("web1", start(), 0.0)
    run.tick(LOST_AFTER_S)

    read(run, "web1", [start(), changed(2), summary(3)], LOST_AFTER_S)

    assert states(run) == {"web1": NodeState.CHANGED}


def test_a_lost_node_that_comes_back_has_the_state_of_its_summary() -> None:
    run = a_run("web1", "web2")
    run.happened("web1", start(), 0.0)
    run.happened("web1", changed(2), 0.0)
    run.tick(LOST_AFTER_S)
    run.read_done(["web1"], LOST_AFTER_S)
    lost = (states(run)["web1"], run.nodes["web1"].reason)

    run.happened("web1", summary(3, "failed", reason="interrupted"), 30.0)

    assert lost == (NodeState.LOST, "silent for 16s; it last reported file#/etc/motd")
    assert (states(run)["web1"], run.nodes["web1"].reason) == (NodeState.FAILED, "interrupted")


def test_progress_keeps_a_node_alive() -> None:
    run = a_run("web1")
    run.answered("web1", answer("accepted"), 0.0)

    todos = []
    for at in (5.0, 10.0, 15.0, 20.0, 25.0):
        run.progressed("web1", progress(resource="exec#long", run_s=at), at)
        todos.append(run.tick(at + 4))

    assert todos == [PendingActions()] * 5
    assert states(run) == {"web1": NodeState.RUNNING}


def test_timeouts_pause_while_the_broker_is_away() -> None:
    run = a_run("web1", "web2")
    run.answered("web1", answer("accepted"), 0.5)

    run.away(0.8)
    away = [run.tick(at) for at in (1.0, 60.0)]
    run.back(60.8)
    after = run.tick(60.8)
    run.read_done(None, 60.9)
    resent = run.tick(61.6)
    later = run.tick(60.8 + LOST_AFTER_S - 0.1)

    assert away == [PendingActions(), PendingActions()]
    assert after == PendingActions(read_all=True)
    assert resent == PendingActions(resend=["web2"])
    assert "web1" not in later.read
    assert states(run)["web1"] is NodeState.ACCEPTED


def test_a_run_handled_before_ends_as_recorded_in_the_ledger_and_its_events_are_read() -> None:
    run = a_run("web1")

    run.answered("web1", answer("done", outcome="changed"), 0.1)
    done = run.is_done
    todo = run.tick(0.6)
    read(run, "web1", [start(), changed(2), summary(3)], 0.7)

    assert (done, todo) == (False, PendingActions(read=["web1"]))
    assert run.is_done
    assert numbers(run) == [("web1", 1), ("web1", 2), ("web1", 3)]


def test_record_of_a_lost_node_counts_until_the_node_returns() -> None:
    run = a_run("web1", asked=False)
    run.happened("web1", start(), 0.0)
    run.happened("web1", changed(2), 0.0)
    run.read_done(None, 0.0)

    run.ended("web1", NodeState.LOST, "silent for 16s", "", 0.1)
    lost = (states(run), run.is_done)
    run.progressed("web1", progress(resource="exec#x"), 0.2)

    assert lost == ({"web1": NodeState.LOST}, True)
    assert states(run) == {"web1": NodeState.RUNNING}
    assert run.nodes["web1"].reason == ""


def test_a_watcher_reads_the_stream_first_and_sends_no_request() -> None:
    run = a_run("web1", "web2", "web3", "web4", offline=("web3",), asked=False)
    first = run.tick(0.0)
    for event in (start(), changed(2), summary(3)):
        run.happened("web1", event, 0.1)
    run.ended("web2", NodeState.REFUSED, "disabled", "agent.disabled", 0.1)
    run.ended("web1", NodeState.LOST, "", "", 0.1)
    run.read_done(None, 0.1)

    silent = [run.tick(at) for at in (1.0, 2.0, 10.0)]
    run.tick(LOST_AFTER_S)
    run.read_done(["web4"], LOST_AFTER_S)

    assert first == PendingActions(read_all=True)
    assert silent == [PendingActions()] * 3
    assert states(run) == {
        "web1": NodeState.CHANGED,
        "web2": NodeState.REFUSED,
        "web3": NodeState.OFFLINE,
        "web4": NodeState.UNREACHABLE,
    }
    assert run.counts() == {
        NodeState.CHANGED: 1,
        NodeState.REFUSED: 1,
        NodeState.UNREACHABLE: 1,
        NodeState.OFFLINE: 1,
    }


@pytest.mark.parametrize(
    ("numbers_of", "reason", "expected"),
    [
        ({"failed_resources": 1}, "", NodeState.FAILED),
        ({}, "interrupted", NodeState.FAILED),
        ({"changed_resources": 2}, "", NodeState.CHANGED),
        ({}, "", NodeState.STABLE),
    ],
)
def test_state_of_a_summary_without_one_is_derived_from_its_counts(
    numbers_of: dict[str, int], reason: str, expected: NodeState
) -> None:
    run = a_run("web1")

    run.happened("web1", summary(1, state="", reason=reason, **numbers_of), 0.1)

    assert states(run) == {"web1": expected}
