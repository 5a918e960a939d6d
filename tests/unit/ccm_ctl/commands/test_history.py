"""`ccmctl history` and `ccmctl state`: one node's past, from the stream."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START, TRANSACTION_EVENT, SessionStart
from ccm_agent.model.wire import AGENT_STARTUP, AgentEvent
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.commands.nodes.history import format_session_starter
from ccm_ctl.fleet.nodes.node_past import PastSession
from tests.support.authorship import Root
from tests.support.controller import NOW, Desk, FakeNode, event, planned_change

ESCAPE = "/etc/\x1b[2Jmotd"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """web1 was planned, changed by an operator, found stable by its assignment, and failed in a schedule."""
    path = tmp_path / "motd.yaml"
    path.write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
    web1 = FakeNode("web1", {"role": "web"}, [event(ESCAPE, 2, noop_message="Would have created the file")])
    desk = Desk(web1)
    desk.ccmctl("apply", str(path), "--all", "--noop")
    web1.does = [event(ESCAPE, 2), event("/etc/issue", 3)]
    desk.ccmctl("apply", str(path), "--all", "--yes")
    _converge(desk, [], "interval", "base")
    _converge(desk, [event("/etc/issue", 2, failed=True, error=["disk full"])], "schedule", "nightly")
    return desk


def _converge(desk: Desk, does: list, cause: str, origin: str) -> None:
    async def begin(broker: MemoryBroker) -> None:
        desk.hooks.remove(begin)
        desk.nodes[0].does = does
        await desk.nodes[0].converge(broker, new_id(), cause, origin)

    desk.hooks.append(begin)
    desk.ccmctl("nodes")


def test_history_names_what_changed_and_who_caused_it(desk: Desk) -> None:
    said = desk.ccmctl("history", "web1")

    assert (said.code, said.screen) == (
        0,
        "1 session changed nothing; --all shows them\n"
        "the stream of events begins at 2026-11-21 12:00:00Z; older events are removed\n"
        "2026-11-21 12:00:00Z RUN plan motd by op: would change in T\n"
        "    file#/etc/\\x1b[2Jmotd: Would have created the file\n"
        "2026-11-21 12:00:00Z RUN apply motd by op: changed in T\n"
        "    file#/etc/\\x1b[2Jmotd changed\n"
        "    file#/etc/issue changed\n"
        "2026-11-21 12:00:00Z RUN apply motd by schedule nightly: failed in T\n"
        "    file#/etc/issue failed: disk full\n",
    )


def test_a_planned_change_of_a_file_that_exists_is_not_called_created(tmp_path: Path) -> None:
    path, page = tmp_path / "motd.yaml", tmp_path / "run.html"
    path.write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
    desk = Desk(FakeNode("web1", {}, [planned_change("/etc/motd", 2)]))
    desk.ccmctl("apply", str(path), "--all", "--noop")

    history = desk.ccmctl("history", "web1").out
    desk.ccmctl("report", "last", "--html", str(page))

    assert "    file#/etc/motd: Would have changed content\n" in history
    assert "Would have changed content" in page.read_text()
    assert "created" not in history + page.read_text()


def test_history_shows_quiet_sessions_when_asked(desk: Desk) -> None:
    said = desk.ccmctl("history", "web1", "--all")

    assert " RUN apply motd by assignment base (interval): stable in T\n" in said.screen


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        pytest.param("interval", "assignment base (started by op, interval)", id="the trigger is named"),
        pytest.param("assignment", "assignment base (started by op)", id="and not the word assignment again"),
    ],
)
def test_the_starter_of_a_run_of_an_assignment_is_named_in_one_pair_of_parentheses(
    cause: str, words: str
) -> None:
    start = SessionStart(
        protocol=SESSION_START, event_id=new_id(), timestamp=NOW, node="web1", run=new_id(), number=1,
        cause=cause, origin="base", requester="op",
    )  # fmt: skip

    assert format_session_starter(PastSession(run=start.run, time=NOW, start=start)) == words


def test_history_for_programs_has_each_event(desk: Desk) -> None:
    sessions = desk.ccmctl("history", "web1", "--all", "--json").named("session")

    assert [(one["cause"], one.get("origin"), one["state"], len(one["events"])) for one in sessions] == [
        ("request", None, "changed", 1),
        ("request", None, "changed", 2),
        ("assignment", "base", "stable", 0),
        ("schedule", "nightly", "failed", 1),
    ]


def test_history_includes_events_of_the_agent(desk: Desk) -> None:
    async def say(broker: MemoryBroker) -> None:
        desk.hooks.remove(say)
        started = AgentEvent(
            protocol=AGENT_STARTUP,
            event_id=new_id(),
            timestamp=NOW,
            node="web1",
            message="agent 1.2.3 started",
        )
        subject = event_subject(AGENT_STARTUP, "web1")
        await MemoryBus(broker, "web1").events.publish(subject, new_id(), msgspec.json.encode(started))

    desk.hooks.append(say)

    assert "2026-11-21 12:00:00Z agent startup: agent 1.2.3 started\n" in desk.ccmctl("history", "web1").out


@pytest.mark.parametrize("command", ["history", "state"])
def test_node_that_is_not_there_is_named_with_the_nearest(desk: Desk, command: str) -> None:
    said = desk.ccmctl(command, "web11")

    assert (said.code, said.err) == (1, "ccmctl: web11: there is no such node, did you mean web1?\n")


def test_state_is_what_the_newest_event_of_each_resource_says(desk: Desk) -> None:
    said = desk.ccmctl("state", "web1")

    assert (said.code, said.screen) == (
        0,
        "events are stored since 2026-11-21 12:00:00Z\n"
        "motd: failed just now (run RUN)\n"
        "RESOURCE               STATE    OUTCOME  WHEN      CHANGED BY\n"
        "file#/etc/\\x1b[2Jmotd  present  changed  just now  op, run RUN\n"
        "file#/etc/issue        present  failed   just now  op, run RUN\n\n",
    )


def test_state_counts_resources_that_no_event_names(desk: Desk) -> None:
    _converge(desk, [], "interval", "base")

    assert "1 resource without an event: unchanged since the stream began\n" in (
        desk.ccmctl("state", "web1").out
    )


def test_the_state_of_a_future_time_is_refused(desk: Desk) -> None:
    said = desk.ccmctl("state", "web1", "--at", "2036-11-20T00:00Z")

    assert (said.code, said.out) == (1, "")
    assert "the time is in the future" in said.err


def test_state_before_the_stream_begins_is_not_known(desk: Desk) -> None:
    said = desk.ccmctl("state", "web1", "--at", "2026-11-20T00:00Z")

    assert (said.code, said.out) == (3, "no state is known for web1 at 2026-11-20 00:00:00Z\n")


def test_state_does_not_count_what_another_wrote_in_the_name_of_a_node(tmp_path: Path) -> None:
    path = tmp_path / "motd.yaml"
    path.write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
    root = Root()
    desk = Desk(FakeNode("web1", {}, [event("/etc/motd", 2)], root=root), trust=root.trust())
    applied = desk.ccmctl("apply", str(path), "--all", "--yes", "--json")
    run = applied.named("run")[0]["run"]

    async def forge(broker: MemoryBroker) -> None:
        desk.hooks.remove(forge)
        forged = msgspec.structs.replace(event("/etc/shadow", 9), node="web1", run=run)
        subject = event_subject(TRANSACTION_EVENT, "web1", run)
        await MemoryBus(broker, "web1").events.publish(subject, new_id(), msgspec.json.encode(forged))

    desk.hooks.append(forge)

    assert [one["resource"] for one in desk.ccmctl("state", "web1", "--json").named("state")] == [
        "file#/etc/motd"
    ]
    assert "[forged]" in desk.ccmctl("history", "web1").out
