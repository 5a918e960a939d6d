"""kill -9 in each phase of an apply: what was done is told, nothing is told twice, and the node converges again by itself."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.subjects import request_subject, run_pattern
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_SUMMARY, TRANSACTION_EVENT
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.wire import MANIFEST_APPLY, SESSION_ANSWER, ManifestRequest
from tests.support.faults import FaultyAgent, add_faulty, assert_converges, by_run, told
from tests.support.fleet import Fleet, a_file, a_gate, manifest
from tests.support.signing import OwnRequests

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

INTERRUPTED = "failed: interrupted"


@pytest.fixture
def agent(site: Fleet, name: str) -> FaultyAgent:
    """An agent that is not started yet."""
    return add_faulty(site, name)


def outcome(fleet: Fleet, agent: FaultyAgent, run: str) -> tuple[str, int]:
    """How a run ended, and how many changes were told of it."""
    events = by_run(told(fleet, agent.name))[run]
    (end,) = [event for event in events if event["protocol"] == SESSION_SUMMARY]
    changes = [event for event in events if event["protocol"] == TRANSACTION_EVENT and event["changed"]]
    assert end.get("changed_resources", 0) == len(changes)
    return f"{end['state']}: {end.get('reason', '')}".removesuffix(": "), len(changes)


@pytest.mark.parametrize(
    ("point", "becomes"),
    [
        pytest.param("before start", None, id="before anything is told"),
        pytest.param("after start", (INTERRUPTED, 0), id="before the first resource"),
        pytest.param("before resource", (INTERRUPTED, 0), id="a resource is changed and that is not told"),
        pytest.param("after resource", (INTERRUPTED, 1), id="between two resources"),
        pytest.param("before summary", (INTERRUPTED, 2), id="after the last resource, before the summary"),
        pytest.param("after summary", ("changed", 2), id="the summary is in the spool and not sent"),
        pytest.param("before sent", ("changed", 2), id="the summary is sent and that is not written down"),
        pytest.param("after sent", ("changed", 2), id="the summary is acknowledged"),
    ],
)
def test_agent_killed_during_a_run_that_it_started(
    site: Fleet, agent: FaultyAgent, point: str, becomes: tuple[str, int] | None
) -> None:
    agent.wants("1", a_file("second"))
    agent.die(point)
    agent.start()
    agent.wait_killed(site)

    agent.start()

    site.wait_for(lambda: agent.ended, "the next process to apply")
    assert_converges(site, agent, "1")
    assert agent.has("x", "second")
    first = next(iter(by_run(told(site, agent.name))))
    if becomes is None:
        assert agent.ended == [first], "the run that nobody heard of is not told"
    else:
        assert outcome(site, agent, first) == becomes


def test_killed_within_a_resource(site: Fleet, agent: FaultyAgent) -> None:
    agent.wants("1", a_gate(), a_file("after"))
    agent.start()
    site.wait_for(lambda: (agent.files / "at-go").exists(), "the run to stand at the gate")

    agent.kill()
    site.open_gates(agent.name)
    agent.start()

    assert_converges(site, agent, "x", "after")
    first = next(iter(by_run(told(site, agent.name))))
    assert outcome(site, agent, first) == (INTERRUPTED, 1)


async def ask(fleet: Fleet, agent: FaultyAgent, run: str) -> dict[str, Any]:
    """
    Send a request as the controller does, again and again, until the agent says how it ended or is dead of it.

    Returns:
        The answer, {} from the dead.
    """
    text = manifest(a_file("asked"), a_file("asked-too"))
    request = ManifestRequest(protocol=MANIFEST_APPLY, run=run, name="asked", manifest=text)
    answers: list[dict[str, Any]] = []

    def hear(event: StoredEvent) -> None:
        if event.subject.startswith(SESSION_ANSWER):
            answers.append(json.loads(event.body))

    async with Connection(settings_for(fleet.url)) as connection, asyncio.timeout(60):
        await connection.connect_now()
        await NatsEvents(connection).follow(run_pattern(run), hear)
        while agent.process is not None and agent.process.poll() is None:
            await OwnRequests(connection).publish(
                request_subject(MANIFEST_APPLY, f"node.{agent.name}"), msgspec.json.encode(request)
            )
            await asyncio.sleep(0.1)
            ends = [answer for answer in answers if answer["state"] == "done"]
            if ends:
                return ends[0]
    return {}


@pytest.mark.parametrize(
    ("points", "becomes"),
    [
        pytest.param(["before taken"], ("changed", 2), id="before it is written down"),
        pytest.param(["after taken"], ("changed", 2), id="it is written down and not answered"),
        pytest.param(["before begun"], ("changed", 2), id="it is answered and not begun"),
        pytest.param(["after begun"], (INTERRUPTED, 0), id="it is begun and nothing is told"),
        pytest.param(["after resource"], (INTERRUPTED, 1), id="between two resources"),
        pytest.param(["before ended"], ("changed", 2), id="its summary is in the spool, its end not in the ledger"),
        pytest.param(["after ended"], ("changed", 2), id="its end is in the ledger"),
        pytest.param(
            ["after resource", "before summary"], (INTERRUPTED, 1), id="and again before recovery tells the end"
        ),
        pytest.param(
            ["after resource", "after summary"], (INTERRUPTED, 1), id="and again before the ledger knows of recovery"
        ),
        pytest.param(["after begun", "before summary", "before ended"], (INTERRUPTED, 0), id="three times"),
    ],
)  # fmt: skip
def test_killed_in_a_run_that_was_asked_for(
    site: Fleet, agent: FaultyAgent, points: list[str], becomes: tuple[str, int]
) -> None:
    run = new_id()
    agent.wants("1")
    for point in points:
        agent.die(f"{point} {run}")
        agent.start()
        asyncio.run(ask(site, agent, run))
        agent.wait_killed(site)

    agent.start()
    answer = asyncio.run(ask(site, agent, run))

    assert_converges(site, agent, "1")
    assert outcome(site, agent, run) == becomes
    assert f"{answer['outcome']}: {answer.get('reason', '')}".removesuffix(": ") == becomes[0]


def test_agent_killed_before_it_began_a_step_of_a_rollout_does_not_begin_after_the_abort(
    site: Fleet, agent: FaultyAgent
) -> None:
    agent.wants("1")
    agent.start()
    site.wait_present([agent.name])
    assert_converges(site, agent, "1")
    agent.die("before begun")
    path = site.write("step.yaml", manifest(a_file("step")))
    driver = site.begin("apply", path, "-t", f"node={agent.name}", "--yes", "--json", "--batch", "1")
    agent.wait_killed(site)
    run = driver.so_far.run

    aborted = site.ctl("run", "abort", run)
    agent.start()
    site.wait_for(lambda: run in by_run(told(site, agent.name)), "the node to report its end")
    again = site.ctl("run", "abort", run)
    driver.end()

    assert (aborted.code, f"no answer to the stop: {agent.name};" in aborted.err) == (0, True), aborted.err
    assert (again.code, again.err) == (0, "")
    assert outcome(site, agent, run) == (INTERRUPTED, 0)
    assert not agent.has("x", "step")


def test_node_that_was_killed_in_a_run_is_shown_as_failed_from_its_return_on(site: Fleet, name: str) -> None:
    site.add(name, interval="1h")
    agent = site.agents[name]
    assert site.ctl("exec", "-t", f"node={name}", "--yes", "--", "true").code == 0
    path = site.write("gated.yaml", manifest(a_gate(), a_file("after")))
    applying = site.begin("apply", path, "-t", f"node={name}", "--yes", "--json")
    site.wait_for(lambda: (agent.files / "at-go").exists(), "the run to stand at the gate")

    agent.kill()
    agent.open_gates()
    agent.start()

    done = applying.end()
    site.wait_for(
        lambda: last_run(site, name) == (done.run, "failed"), "its record to show the interrupted run"
    )
    [why] = site.ctl("why", name, "--json").named("why")
    assert (done.states, done.reasons) == ({name: "failed"}, {name: "interrupted"})
    assert why["state"] == "failed"
    assert why["reason"].endswith(": its last run failed: interrupted.")
    assert last_run(site, name, "show") == (done.run, "failed")


def test_run_that_ended_just_before_a_kill_is_shown_as_the_last_one(site: Fleet, name: str) -> None:
    site.add(name, interval="1h", heartbeat="1h")
    agent = site.agents[name]

    runs = [site.ctl("exec", "-t", f"node={name}", "--yes", "--json", "--", "true").run for _ in range(2)]
    agent.kill()
    agent.start()

    site.wait_for(lambda: last_run(site, name) == (runs[1], "changed"), "its record to show the last run")


def last_run(fleet: Fleet, node: str, verb: str = "list") -> tuple[str, str]:
    """The last run of a node and its state, as `ccmctl node list` or `node show` has it."""
    words = ["node", "list"] if verb == "list" else ["node", "show", node]
    [one] = [one for one in fleet.ctl(*words, "--json").records if one.get("node") == node]
    return one.get("last_run", ""), one.get("last_state", "")
