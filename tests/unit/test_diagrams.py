"""The diagrams of the docs show the states, and the changes between them, that the code makes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from ccm_agent.model.bundle import Bundle
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY, SessionStart, SessionSummary
from ccm_agent.model.wire import (
    CARRIED_OUT,
    DISABLED,
    SESSION_ANSWER,
    SESSION_PROGRESS,
    WAITING,
    Answer,
    AnswerState,
    Assignment,
    AssignmentState,
    Disabled,
    NodeRecord,
    NodeState,
    Presence,
    Progress,
)
from ccm_ctl.fleet.assignments.assignments import Standing
from ccm_ctl.fleet.assignments.convergence import EXPIRED, REFUSED, AbsentSince, judge
from ccm_ctl.fleet.nodes.nodes import Node
from ccm_ctl.fleet.runs.run import LIMIT_S, LOST_AFTER_S, Run
from tests.support.diagrams import START, TOP, StateDiagram, fences, read_state_diagram

AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NODE = "web1"

Step = Callable[[Run], None]


def diagram_of(page: str) -> StateDiagram:
    [text] = fences((TOP / "docs" / page).read_text())
    return read_state_diagram(text)


def test_flowchart_is_read_as_boxes_and_arrows() -> None:
    text = 'flowchart TB\n  start((" ")) -- x --> one\n  one <-- y --> more["two<br>three"]\n  more -. z .-> one\n'

    assert read_state_diagram(text) == StateDiagram(
        boxes={START: set(), "one": {"one"}, "more": {"two", "three"}},
        edges={(START, "one"), ("one", "more"), ("more", "one")},
    )


def test_line_without_a_labeled_arrow_is_not_overlooked() -> None:
    with pytest.raises(AssertionError, match="one --> two"):
        read_state_diagram("flowchart TB\n  one --> two\n")


def answered(state: str, outcome: str = "") -> Step:
    return lambda run: run.answered(NODE, Answer(protocol=SESSION_ANSWER, state=state, outcome=outcome), 1)


def progressed(state: str) -> Step:
    return lambda run: run.progressed(NODE, Progress(protocol=SESSION_PROGRESS, state=state), 1)


def summarized(state: str) -> Step:
    summary = SessionSummary(
        protocol=SESSION_SUMMARY, event_id="e", timestamp=AT, number=1, events_sent=1, state=state
    )
    return lambda run: run.happened(NODE, summary, 1)


def started(run: Run) -> None:
    run.happened(NODE, SessionStart(protocol=SESSION_START, event_id="e", timestamp=AT, number=1), 1)


def silent(run: Run) -> None:
    run.tick(LOST_AFTER_S + 2)
    run.read_done([NODE], LOST_AFTER_S + 2)


def asked_again(run: Run) -> None:
    run.ask([NODE], 1)


def rollout_ends(run: Run) -> None:
    run.skip("aborted")


def watched_too_long(run: Run) -> None:
    run.tick(LIMIT_S + 1)


STEPS: list[Step] = [
    *(answered(state) for state in AnswerState if state is not AnswerState.DONE),
    *(answered("done", state) for state in (*CARRIED_OUT, "refused", "superseded", "expired")),
    *map(progressed, ("queued", "running")),
    *map(summarized, CARRIED_OUT),
    started,
    silent,
    asked_again,
    rollout_ends,
    watched_too_long,
]
"""All that can happen to a node in a run."""


def new_runs() -> list[Run]:
    """A run as it begins: for a node that is online, that is not, and in a later wave."""
    return [
        Run("r", [NODE], offline, 0.0, asked=True, planned=planned)
        for offline, planned in (((), ()), ((NODE,), ()), ((), (NODE,)))
    ]


def transitions() -> set[tuple[NodeState, NodeState]]:
    """Each change of state that one step makes. Nothing of a run is sent after the node has ended in it."""
    ended = {*CARRIED_OUT, NodeState.REFUSED, NodeState.SUPERSEDED, NodeState.EXPIRED}
    ways: dict[NodeState, tuple[int, list[Step]]] = {
        run.nodes[NODE].state: (begin, []) for begin, run in enumerate(new_runs())
    }
    found: set[tuple[NodeState, NodeState]] = set()
    fresh = list(ways)
    while fresh:
        state = fresh.pop()
        begin, way = ways[state]
        for step in [] if state in ended else STEPS:
            run = new_runs()[begin]
            for one in [*way, step]:
                one(run)
            after = run.nodes[NODE].state
            found.add((state, after))
            if after not in ways:
                ways[after] = begin, [*way, step]
                fresh.append(after)
    return found - {(state, state) for state in NodeState}


def test_diagram_of_a_run_has_every_state() -> None:
    assert diagram_of("contributing/runs.md").states == {str(state) for state in NodeState}


def test_diagram_of_a_run_begins_as_runs_begin() -> None:
    diagram = diagram_of("contributing/runs.md")

    drawn = {end for begin, end in diagram.edges if begin == START}

    assert drawn == {diagram.box(run.nodes[NODE].state) for run in new_runs()}


def test_every_change_of_state_in_a_run_is_a_way_through_the_diagram() -> None:
    diagram = diagram_of("contributing/runs.md")

    missing = [
        (begin, end)
        for begin, end in transitions()
        if diagram.box(end) not in diagram.reachable(diagram.box(begin))
    ]

    assert missing == []


def test_every_arrow_in_the_diagram_of_a_run_is_a_change_that_happens() -> None:
    diagram = diagram_of("contributing/runs.md")
    happens = {(diagram.box(begin), diagram.box(end)) for begin, end in transitions()}

    assert {edge for edge in diagram.edges if edge[0] != START} - happens == set()


def test_states_of_the_diagram_that_have_no_arrow_out_are_final() -> None:
    diagram = diagram_of("contributing/runs.md")

    ends = {box for box in diagram.boxes if all(begin != box for begin, _ in diagram.edges)}

    assert {state for box in ends for state in diagram.boxes[box]} == {
        *CARRIED_OUT,
        NodeState.REFUSED,
        NodeState.SUPERSEDED,
        NodeState.EXPIRED,
    }


def standings() -> set[str]:
    """Each state of a node for an assignment."""
    found = set()
    told_states = (*CARRIED_OUT, WAITING, DISABLED, EXPIRED, REFUSED)
    for state, number, is_present, is_disabled, conflict, pending, is_late in itertools.product(
        told_states, (1, 2), (True, False), (True, False), ("", "taken"), ([], ["exec#x"]), (True, False)
    ):
        told = AssignmentState(key="all.web", revision=1, state=state, refresh_pending=pending)
        record = NodeRecord(
            node=NODE,
            assignments={"web": told},
            conflict=conflict,
            disabled=Disabled(since=AT) if is_disabled else None,
        )
        presence = Presence(node=NODE, time=AT) if is_present else None
        assignment = Assignment(
            name="web",
            scope="all",
            bundle=Bundle(digest="d", size_bytes=1),
            deadline=AT - timedelta(hours=1) if is_late else None,
        )
        standing = Standing(key="all.web", revision=number, number=number, written=1, assignment=assignment)
        away = None if is_present else AbsentSince(AT)
        found.add(judge(Node(name=NODE, record=record, presence=presence), standing, AT, away, {}).state)
    return {str(state) for state in found}


def test_diagram_of_an_assignment_has_every_state() -> None:
    assert diagram_of("concepts/assignments.md").states == standings()


def test_table_of_an_assignment_explains_every_state_of_its_diagram() -> None:
    page = (TOP / "docs/concepts/assignments.md").read_text()
    table = page.partition("| State | Meaning | Exit code |\n")[2].partition("\n\n")[0].splitlines()[1:]

    assert {line.split("`")[1] for line in table} == diagram_of("concepts/assignments.md").states
