"""A run that the agent's restart parts in two; on a bus in memory."""

import asyncio
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ccm_agent.agent.events.run_report import Checkpoint
from ccm_agent.agent.process.composition import make_runs
from ccm_agent.agent.process.context import AgentContext
from ccm_agent.agent.runs.run_queue import LocalRun, QueuedRun
from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.outcome import SessionSummary
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest
from ccm_agent.testing.memory_bus import MemoryBroker
from tests.support.agent import (
    NODE,
    FakeClock,
    FakeEngine,
    OneNode,
    Running,
    agent_ports,
    agent_settings,
    memory_bus,
)

TEXT = "stable /a\nfailed /b\nwait /c\nchanged /d"
RUN = "2zpHrpdTbDOhSGCXGJpE8YbGvyx"


class Node(OneNode):
    """One node whose agent is restarted, and a controller."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.file = folder / "continuation.json"

    async def begin(self, manifest: str = TEXT, **fields: Any) -> str:
        """A run that stands at its third resource."""
        request = ManifestRequest(protocol=MANIFEST_APPLY, manifest=manifest, name="site", **fields)
        run = await self.controller.ask(request)
        await self.engine.at_wait.wait()
        return run

    async def restart(self, agent: Running) -> None:
        """End the agent as a service manager does that starts another; the resource in hand ends when the agent knows."""
        agent.is_restart = True
        asked = asyncio.Event()

        async def restarts() -> bool:
            asked.set()
            return agent.is_restart

        agent.restarts = restarts  # type: ignore[method-assign]
        agent.stop.set()
        await asked.wait()
        await asyncio.sleep(0)
        self.engine.go.set()
        await agent.task

    async def numbers(self, run: str) -> list[int]:
        """Numbers of the events of a run that the stream holds."""
        return [one["number"] for one in await self.controller.stored(run)]


async def node(folder: Path) -> Node:
    one = Node(folder)
    await one.controller.listen()
    return one


async def test_a_restart_parts_a_run_and_the_next_process_ends_it(tmp_path: Path) -> None:
    at = await node(tmp_path)
    async with at.agent() as agent:
        began = at.clock.now()
        run = await at.begin()
        at.clock.pass_s(3)
        await at.restart(agent)
        assert await at.numbers(run) == [1, 2]

    at.clock.pass_s(2)
    async with at.agent():
        summary = msgspec.convert(await at.controller.summary(run, NODE), SessionSummary)

        names = [event.name for event in at.engine.applied[0][1].done]
        assert names == ["/a", "/b", "/c"]
        assert (summary.state, summary.reason, summary.manifest) == ("failed", "", "site")
        assert (summary.total_resources, summary.stable_resources, summary.changed_resources) == (4, 2, 1)
        assert [one.resource for one in summary.failed] == ["file#/b"]
        assert (summary.start_time, summary.total_duration) == (began, 5_000_000_000)
        assert (await at.numbers(run), summary.events_sent) == ([1, 2, 3, 4], 4)


async def test_the_request_that_comes_again_meanwhile_is_answered_and_not_applied(tmp_path: Path) -> None:
    at = await node(tmp_path)
    async with at.agent() as agent:
        run = await at.begin("wait /a\nchanged /b")
        await at.restart(agent)

    async with at.agent():
        await at.controller.summary(run, NODE)
        await at.controller.ask(ManifestRequest(protocol=MANIFEST_APPLY, manifest=TEXT, run=run))

        assert (await at.controller.answer(run, NODE, 2)).outcome == "changed"
        assert len(at.engine.applied) == 1


async def test_a_deadline_is_for_the_beginning(tmp_path: Path) -> None:
    at = await node(tmp_path)
    async with at.agent() as agent:
        run = await at.begin(deadline=at.clock.now() + timedelta(minutes=1))
        await at.restart(agent)
    at.clock.pass_s(3600)

    async with at.agent():
        assert (await at.controller.summary(run, NODE))["total_resources"] == 4


async def test_a_stop_ends_the_run(tmp_path: Path) -> None:
    at = await node(tmp_path)
    async with at.agent() as agent:
        run = await at.begin()
        agent.stop.set()
        await asyncio.sleep(0)
        at.engine.go.set()

        assert (await at.controller.summary(run, NODE))["reason"] == "interrupted: the agent was stopped"
        assert not at.file.exists()


async def test_a_kill_after_the_restart_interrupts_the_run_and_begins_nothing_again(tmp_path: Path) -> None:
    at = await node(tmp_path)
    async with at.agent() as agent:
        run = await at.begin("wait /a\nwait /b\nchanged /c")
        await at.restart(agent)
    async with at.agent() as agent:
        await at.engine.at_wait.wait()
        await agent.kill()

    async with at.agent():
        assert (await at.controller.summary(run, NODE))["reason"] == "interrupted"
        assert at.engine.applied == []


async def test_unreadable_checkpoint_is_an_interrupted_run(tmp_path: Path) -> None:
    at = await node(tmp_path)
    async with at.agent() as agent:
        run = await at.begin()
        await at.restart(agent)
    await asyncio.to_thread(at.file.write_text, '{"run": 1}')

    async with at.agent():
        assert (await at.controller.summary(run, NODE))["reason"] == "interrupted"
        assert at.engine.applied == []


async def test_checkpoint_of_an_unknown_run_is_dropped(tmp_path: Path) -> None:
    at = await node(tmp_path)
    left = Checkpoint(run=RUN, number=1, began=at.clock.now())
    await asyncio.to_thread(at.file.write_bytes, msgspec.json.encode(left))

    async with at.agent():
        assert not at.file.exists()


async def test_a_run_of_the_nodes_own_is_reported_as_far_as_it_came_and_counts_as_left(
    tmp_path: Path,
) -> None:
    engine, clock = FakeEngine(), FakeClock()
    ports = agent_ports(memory_bus(MemoryBroker(), NODE), engine, clock)
    context = await asyncio.to_thread(
        partial(AgentContext, agent_settings(tmp_path, NODE), ports, version="0.1.0")
    )
    await asyncio.to_thread(context.spool.open)
    worker = make_runs(context).executor
    ended: asyncio.Future[SessionSummary | None] = asyncio.get_running_loop().create_future()
    own = LocalRun(source=ManifestSource(text=b"changed /a\nwait /b\nchanged /c", name="site"), ended=ended)
    request = ManifestRequest(protocol=MANIFEST_APPLY, run=RUN, name="site")
    running = asyncio.create_task(
        worker.execute(QueuedRun(run=RUN, action="apply", name="site", request=request, own=own))
    )
    await engine.at_wait.wait()

    worker.pause()
    engine.go.set()

    assert await running is None
    told = await asyncio.to_thread(context.spool.load_summary, RUN)
    context.spool.close()
    assert told is not None
    summary = msgspec.json.decode(told.body, type=SessionSummary)
    assert (summary.state, summary.changed_resources, summary.total_resources) == ("changed", 1, 2)
    assert (summary.reason, summary.code) == (
        "interrupted by a restart of the agent, which starts it again",
        "run.paused",
    )
    assert ended.result() is None


async def test_a_disk_that_takes_nothing_ends_the_run_and_says_so(tmp_path: Path) -> None:
    at = await node(tmp_path)
    await asyncio.to_thread(at.file.with_name("continuation.json.new").mkdir)
    async with at.agent() as agent:
        run = await at.begin()
        await at.restart(agent)

        summary = await at.controller.summary(run, NODE)
        assert (summary["state"], summary["total_resources"]) == ("failed", 3)
        assert "continuation.json: cannot write: Is a directory" in summary["reason"]
