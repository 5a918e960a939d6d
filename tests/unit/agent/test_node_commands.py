"""An operator disables, enables and converges a node from afar."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.agent.desired.loop import ConvergenceResult
from ccm_agent.agent.desired.origins import SourcePorts
from ccm_agent.agent.events.publisher import ProgressSender
from ccm_agent.agent.process.context import AgentContext
from ccm_agent.agent.requests.node_commands import (
    TEXT_LIMIT,
    WAITING_LIMIT,
    NodeCommands,
    convergence_end,
)
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import CcmError, Refusal
from ccm_agent.model.ids import new_id
from ccm_agent.model.records.maintenance import LockChange
from ccm_agent.model.records.policy import Principal
from ccm_agent.model.wire import (
    AGENT_CONVERGE,
    AGENT_DISABLED,
    AGENT_ENABLED,
    AGENT_LOCKED,
    AGENT_UNLOCKED,
    MANIFEST_APPLY,
    NODE_CONVERGE,
    NODE_DISABLE,
    NODE_ENABLE,
    NODE_STATUS,
    SESSION_PROGRESS,
    Answer,
    MaintenanceRequest,
    ManifestRequest,
)
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.memory_bus import MemoryBroker
from tests.support.agent import (
    NODE,
    WAIT_S,
    Controller,
    FakeClock,
    FakeEngine,
    Running,
    agent_ports,
    agent_settings,
    memory_bus,
    running,
    until,
)

MARIA = "maria (unverified)"


class Stage:
    """A node with a manifest of its own, and a controller."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.broker = MemoryBroker(self.clock.now)
        self.engine = FakeEngine()
        self.files = FakeFiles()
        self.files.put("/etc/site.yaml", "changed /a")
        self.controller = Controller(memory_bus(self.broker, "op"))

    @asynccontextmanager
    async def agent(self, *manifests: str) -> AsyncIterator[Running]:
        """An agent that has applied its manifests, if there are any."""
        bus = memory_bus(self.broker, NODE)
        self.engine = FakeEngine()
        sources = SourcePorts(files=self.files, download=None, objects=bus.objects)  # type: ignore[arg-type]
        ports = agent_ports(bus, self.engine, self.clock, sources=sources)
        settings = agent_settings(self.folder, NODE, manifests=manifests, change_pause_s=0)
        if not self.controller.heard:
            await self.controller.listen()
        async with running(settings, ports) as one:
            await until(lambda: len(self.engine.applied) == len(manifests) and not one.agent.is_busy)
            yield one

    async def ask(self, protocol: str, run: str = "", **fields: Any) -> Answer:
        """What the node answers first."""
        fields = {"requester": "maria"} | fields
        request = MaintenanceRequest(protocol=protocol, run=run, **fields)
        return await self.controller.answer(await self.controller.ask(request), NODE)

    async def locks(self) -> list[dict[str, Any]]:
        """The locks in the node's status."""
        found: list[dict[str, Any]] = (await self.ask(NODE_STATUS)).body["locks"]
        return found

    def told(self, protocol: str) -> list[tuple[str, dict[str, Any]]]:
        """Message and details of the agent's events of a kind."""
        subject = event_subject(protocol, NODE)
        return [(body["message"], body["details"]) for said, body in self.controller.heard if said == subject]


async def test_node_is_disabled_until_a_time_and_says_the_operator_and_the_reason(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    until_time = at.clock.now() + timedelta(hours=8)
    async with at.agent():
        answer = await at.ask(NODE_DISABLE, why="the disk is replaced", until=until_time)
        run = await at.controller.ask(ManifestRequest(protocol=MANIFEST_APPLY, manifest="changed /a"))
        refused = await at.controller.answer(run, NODE)
        await at.controller.said(event_subject(AGENT_DISABLED, NODE))

    sentence = f"disabled until 2026-11-21 20:00:00Z by {MARIA}: the disk is replaced"
    assert (answer.state, answer.body["disabled"]["by"]) == ("done", MARIA)
    assert (refused.state, refused.code, refused.reason) == ("refused", "agent.disabled", sentence)
    [(message, details)] = at.told(AGENT_DISABLED)
    assert (message, details["by"], details["why"]) == (sentence, MARIA, "the disk is replaced")


async def test_node_that_is_enabled_again_says_who_did_it(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    async with at.agent():
        await at.ask(NODE_DISABLE, why="x")
        first = await at.ask(NODE_ENABLE, why="the disk is new", requester="anna")
        second = await at.ask(NODE_ENABLE)
        await at.controller.said(event_subject(AGENT_ENABLED, NODE))
        run = await at.controller.ask(ManifestRequest(protocol=MANIFEST_APPLY, manifest="changed /a"))
        applied = await at.controller.answer(run, NODE)

    assert [one.body for one in (first, second)] == [{"was_disabled": True}, {"was_disabled": False}]
    assert applied.state == "accepted"
    details = {"by": "anna (unverified)", "why": "the disk is new"}
    assert at.told(AGENT_ENABLED) == [("enabled by anna (unverified): the disk is new", details)]


async def test_request_that_is_delivered_again_does_not_disable_again(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    async with at.agent():
        first = await at.ask(NODE_DISABLE, why="x")
        await at.ask(NODE_ENABLE)
    async with at.agent():
        again = MaintenanceRequest(protocol=NODE_DISABLE, run=first.run, why="x", requester="maria")
        await at.controller.ask(again)
        second = await at.controller.answer(first.run, NODE, 2)
        run = await at.controller.ask(ManifestRequest(protocol=MANIFEST_APPLY, manifest="changed /a"))
        applied = await at.controller.answer(run, NODE)

    assert (second.state, second.outcome, applied.state) == ("done", "done", "accepted")


async def test_disabling_needs_a_reason_and_a_time_to_come(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    async with at.agent():
        without = await at.ask(NODE_DISABLE, why=" ")
        past = await at.ask(NODE_DISABLE, why="x", until=at.clock.now() - timedelta(seconds=1))
        long = await at.ask(NODE_DISABLE, why="x" * 10_000)

    assert [(one.state, one.code) for one in (without, past)] == [
        ("refused", "maintenance.why"),
        ("refused", "maintenance.past"),
    ]
    assert len(long.body["disabled"]["why"]) == TEXT_LIMIT


async def test_node_converges_now_and_answers_at_the_end_with_what_came_of_it(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    async with at.agent("/etc/site.yaml"):
        accepted = await at.ask(NODE_CONVERGE, why="after the fix")
        done = await at.controller.answer(accepted.run, NODE, 2)
        await at.controller.said(event_subject(AGENT_CONVERGE, NODE))

    [ended] = done.body["ended"]
    assert (accepted.state, done.state, done.body["count"]) == ("accepted", "done", 1)
    assert (ended["name"], ended["state"], ended["changed"]) == ("/etc/site.yaml", "changed", 1)
    assert ended["run"] == at.engine.applied[1][1].run
    assert at.told(AGENT_CONVERGE) == [
        (f"converges now, requested by {MARIA}: after the fix", {"by": MARIA, "why": "after the fix"})
    ]


async def test_disabled_node_refuses_to_converge(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    async with at.agent("/etc/site.yaml"):
        await at.ask(NODE_DISABLE, why="x")
        answer = await at.ask(NODE_CONVERGE)

    assert (answer.state, answer.code) == ("refused", "agent.disabled")
    assert len(at.engine.applied) == 1


class Slow:
    """Commands of a node whose convergence ends when a test says so."""

    def __init__(self, folder: Path) -> None:
        self.go = asyncio.Event()
        self.begun = 0
        self.answers: dict[str, dict[str, Any] | CcmError] = {}
        broker = MemoryBroker()
        self.controller = Controller(memory_bus(broker, "op"))
        ports = agent_ports(memory_bus(broker, NODE), FakeEngine(), FakeClock())
        context = AgentContext(agent_settings(folder, NODE), ports, version="1.0.0")
        context.spool.open()
        sender = ProgressSender(NODE, ports.events)
        self.commands = NodeCommands(context.admission, context.events, sender, self.converge, context.clock)

    async def converge(self) -> list[ConvergenceResult]:
        self.begun += 1
        await self.go.wait()
        return [ConvergenceResult(name="site", state="stable", reason="x" * 9999)]

    async def answer(self, run: str, body: dict[str, Any], refusal: CcmError | None) -> None:
        self.answers[run] = refusal or body

    async def ask(self, run: str) -> None:
        request = MaintenanceRequest(protocol=NODE_CONVERGE, run=run)
        assert await self.commands.by_protocol()[NODE_CONVERGE](request, Principal(name="maria")) is None


async def test_requests_during_a_convergence_are_served_together_by_the_next(tmp_path: Path) -> None:
    at = await asyncio.to_thread(Slow, tmp_path)
    first, second, third = new_id(), new_id(), new_id()
    await at.controller.listen()
    task = asyncio.create_task(at.commands.run(at.answer, 0.01), name="commands")
    try:
        await at.ask(first)
        await until(lambda: at.begun == 1)
        for run in (first, second, third, second):
            await at.ask(run)
        progress = await at.controller.said(event_subject(SESSION_PROGRESS, NODE, first))
        at.go.set()
        async with asyncio.timeout(WAIT_S):
            await until(lambda: len(at.answers) == 3)
    finally:
        task.cancel()

    assert (progress["run"], at.begun) == (first, 2)
    assert {len(msgspec.json.encode(one)) < 1000 for one in at.answers.values()} == {True}


async def test_only_some_requests_to_converge_wait(tmp_path: Path) -> None:
    at = await asyncio.to_thread(Slow, tmp_path)
    codes = []
    for number in range(WAITING_LIMIT + 1):
        try:
            await at.ask(f"r{number}")
        except Refusal as err:
            codes.append(err.code)

    assert codes == ["queue.full"]


# -- locks of resources


def locked(*resources: str, why: str = "new certificate", release: bool = False) -> LockChange:
    return LockChange(resources=list(resources), why=why, release=release)


async def test_locked_resource_is_left_alone_until_its_time_and_the_node_says_who_and_why(
    tmp_path: Path,
) -> None:
    at = Stage(tmp_path)
    end = at.clock.now() + timedelta(hours=8)
    async with at.agent():
        answer = await at.ask(NODE_DISABLE, lock=locked("service#nginx"), until=end)
        await at.controller.said(event_subject(AGENT_LOCKED, NODE))
        run = await at.controller.ask(ManifestRequest(protocol=MANIFEST_APPLY, manifest="changed /a"))
        await at.controller.summary(run, NODE)
        why = at.engine.applied[-1][1].lock
        assert why is not None
        before = why(["service#nginx"]), why(["service#web"])
        record = await at.locks()
        at.clock.pass_s(8 * 3600)
        after = why(["service#nginx"])

    sentence = f"locked until 2026-11-21 20:00:00Z by {MARIA}: new certificate"
    assert (answer.state, answer.body) == ("done", {"locked": ["service#nginx"]})
    assert (before, after) == ((sentence, ""), "")
    assert [(lock["resource"], lock["by"]) for lock in record] == [("service#nginx", MARIA)]
    assert [message for message, _ in at.told(AGENT_LOCKED)] == [f"service#nginx {sentence}"]


async def test_node_with_a_locked_resource_is_not_disabled(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    async with at.agent():
        await at.ask(NODE_DISABLE, lock=locked("service#nginx"), until=at.clock.now() + timedelta(hours=8))
        run = await at.controller.ask(ManifestRequest(protocol=MANIFEST_APPLY, manifest="changed /a"))
        applied = await at.controller.answer(run, NODE)

    assert (applied.state, at.told(AGENT_DISABLED)) == ("accepted", [])


async def test_lock_outlives_the_agent_and_is_released_by_name_or_with_all_others(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    end = at.clock.now() + timedelta(hours=8)
    async with at.agent():
        await at.ask(NODE_DISABLE, lock=locked("service#a", "service#b", "service#c"), until=end)
    async with at.agent():
        kept = [lock["resource"] for lock in await at.locks()]
        by_name = await at.ask(NODE_DISABLE, lock=locked("service#b", "service#x", release=True))
        others = await at.ask(NODE_DISABLE, lock=locked(release=True, why="done"))
        left = await at.locks()
        await until(lambda: len(at.told(AGENT_UNLOCKED)) == 2)

    assert kept == ["service#a", "service#b", "service#c"]
    assert (by_name.body, others.body) == (
        {"unlocked": ["service#b"]},
        {"unlocked": ["service#a", "service#c"]},
    )
    assert left == []
    assert [message for message, _ in at.told(AGENT_UNLOCKED)] == [
        f"service#b unlocked by {MARIA}: new certificate",
        f"service#a and 1 more unlocked by {MARIA}: done",
    ]


@pytest.mark.parametrize(
    ("lock", "days", "code"),
    [
        pytest.param(locked("service#a"), 31, "lock.time", id="for longer than a month"),
        pytest.param(locked("service#a"), None, "lock.time", id="without an end"),
        pytest.param(locked("nginx"), 1, "lock.resource", id="not a resource"),
        pytest.param(locked("service#" + "x" * 600), 1, "lock.resource", id="a name that is too long"),
        pytest.param(locked(), 1, "lock.resource", id="nothing"),
        pytest.param(locked(*(f"file#/{n}" for n in range(101))), 1, "lock.many", id="too many"),
        pytest.param(locked("service#a", why=" "), 1, "maintenance.why", id="without a reason"),
    ],
)
async def test_contradictory_lock_is_refused(
    tmp_path: Path, lock: LockChange, days: int | None, code: str
) -> None:
    at = Stage(tmp_path)
    async with at.agent():
        end = at.clock.now() + timedelta(days=days) if days else None
        answer = await at.ask(NODE_DISABLE, lock=lock, until=end)
        left = await at.locks()

    assert (answer.state, answer.code, left) == ("refused", code, [])


async def test_locks_that_cannot_be_read_lock_everything_until_the_node_is_unlocked(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    tmp_path.joinpath("locks.json").write_text("[{")
    async with at.agent():
        run = await at.controller.ask(ManifestRequest(protocol=MANIFEST_APPLY, manifest="changed /a"))
        await at.controller.summary(run, NODE)
        why = at.engine.applied[-1][1].lock
        assert why is not None
        end = at.clock.now() + timedelta(hours=8)
        answer = await at.ask(NODE_DISABLE, lock=locked("service#a"), until=end)
        before = why(["file#/a"])
        await at.ask(NODE_DISABLE, lock=locked(release=True))
        after = why(["file#/a"])

    assert (answer.state, answer.code) == ("refused", "lock.unreadable")
    assert before.startswith(f"all resources are locked: {tmp_path}/locks.json cannot be read: ")
    assert after == ""


def test_agent_that_does_not_know_locks_finds_no_reason_and_refuses() -> None:
    request = MaintenanceRequest(protocol=NODE_DISABLE, lock=locked("service#a"))

    assert "why" not in msgspec.to_builtins(request)


@pytest.mark.parametrize(
    ("body", "end"),
    [
        pytest.param({"was_disabled": True}, ("", ""), id="of another command"),
        pytest.param({"ended": []}, ("stable", ""), id="nothing to converge on"),
        pytest.param(
            {"ended": [{"name": "a", "state": "stable"}, {"name": "b", "state": "changed"}]},
            ("changed", ""),
            id="the worst",
        ),
        pytest.param(
            {
                "ended": [
                    {"name": "a", "state": "changed"},
                    {"name": "b", "state": "failed", "reason": "no such file"},
                ]
            },
            ("failed", "b: no such file"),
            id="a failure with its reason",
        ),
        pytest.param(
            {"ended": [{"name": "a", "state": "refused", "reason": "a conflict"}]},
            ("failed", "a: a conflict"),
            id="a source that refused has not converged",
        ),
    ],
)
def test_a_convergence_ends_as_its_worst_source(body: dict[str, Any], end: tuple[str, str]) -> None:
    assert convergence_end(body) == end


async def test_a_convergence_that_is_asked_for_again_answers_its_end(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    async with at.agent("/etc/site.yaml"):
        request = MaintenanceRequest(protocol=NODE_CONVERGE, requester="maria")
        run = await at.controller.ask(request)
        first = await at.controller.answer(run, NODE, 2)
        await at.controller.ask(MaintenanceRequest(protocol=NODE_CONVERGE, run=run, requester="maria"))
        again = await at.controller.answer(run, NODE, 3)

    assert [(one.state, one.outcome) for one in (first, again)] == [("done", "changed")] * 2
    assert ("ended" in first.body, again.body) == (True, {})
