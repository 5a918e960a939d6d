"""A node applies a saved plan if nothing has changed since, or nothing at all; on a bus in memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.model.outcome import SessionSummary, TransactionEvent
from ccm_agent.model.wire import MANIFEST_APPLY, MANIFEST_PLAN, ManifestRequest
from tests.support.agent import (
    NODE,
    FakeEngine,
    Running,
    agent_ports,
    agent_settings,
    memory_bus,
    running,
)
from tests.unit.agent.test_checkpoint import Node

TEXT = "changed /a\nstable /b"
DATA = "kv://CCM_DATA/common"


class Host(FakeEngine):
    """An engine on a host whose files and data a test changes."""

    def __init__(self, modes: dict[str, str], revisions: dict[str, int]) -> None:
        super().__init__()
        self.modes = modes
        self.revisions = revisions

    async def apply(self, source: ManifestSource, options: ApplyOptions) -> SessionSummary:
        tell = options.on_event

        async def with_state(event: TransactionEvent) -> None:
            event.status = {"name": event.name, "mode": self.modes.get(event.name, "0644")}
            waiting = tell(event) if tell is not None else None
            if waiting is not None:
                await waiting

        summary = await super().apply(source, replace(options, on_event=with_state))
        summary.data_revisions = dict(self.revisions)
        return summary

    @property
    def looks(self) -> list[bool]:
        """Of each time that a manifest was given to it, whether only to look."""
        return [options.noop for _, options in self.applied]


class PlanNode(Node):
    """One node that keeps plans; what changes on the host stays changed when the agent restarts."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.modes: dict[str, str] = {}
        self.revisions = {DATA: 3}

    @contextlib.asynccontextmanager
    async def agent(self, **settings: Any) -> AsyncIterator[Running]:
        """The next agent, with an engine of its own."""
        self.engine: Host = Host(self.modes, self.revisions)
        ports = agent_ports(memory_bus(self.broker, NODE), self.engine, self.clock)
        async with running(agent_settings(self.folder, NODE, **settings), ports) as one:
            yield one

    async def plan(self, text: str = TEXT, **fields: Any) -> str:
        """A plan that the node keeps; its run."""
        request = ManifestRequest(protocol=MANIFEST_PLAN, manifest=text, name="site", keep=True, **fields)
        run = await self.controller.ask(request)
        assert (await self.controller.summary(run, NODE))["found"]
        self.engine.applied.clear()
        return run

    async def apply(self, plan: str, text: str = TEXT, **fields: Any) -> dict[str, Any]:
        """Apply a plan; the summary."""
        return await self.controller.summary(await self.ask(plan, text, **fields), NODE)

    async def ask(self, plan: str, text: str = TEXT, **fields: Any) -> str:
        """Ask for the apply of a plan."""
        request = ManifestRequest(protocol=MANIFEST_APPLY, manifest=text, name="site", plan=plan, **fields)
        return await self.controller.ask(request)

    def assert_refused(self, summary: dict[str, Any], why: str) -> None:
        """It has only looked, and says why."""
        assert (summary["state"], summary["code"]) == ("failed", "run.plan")
        assert why in summary["reason"]
        assert all(self.engine.looks)


@pytest.fixture
async def at(tmp_path: Path) -> PlanNode:
    one = PlanNode(tmp_path)
    await one.controller.listen()
    return one


async def test_a_plan_is_applied_after_one_more_look_that_is_not_reported(at: PlanNode) -> None:
    async with at.agent():
        plan = await at.plan()
        summary = await at.apply(plan)

        assert (summary["state"], summary["changed_resources"]) == ("changed", 1)
        assert at.engine.looks == [True, False]
        assert await at.numbers(summary["run"]) == [1, 2, 3]


async def test_a_second_apply_finds_what_the_first_has_changed(at: PlanNode) -> None:
    async with at.agent():
        plan = await at.plan()
        await at.apply(plan)
        at.modes["/a"] = "0600"
        at.engine.applied.clear()

        at.assert_refused(
            await at.apply(plan), f"since the plan {plan[:8]}, these have changed: file#/a; plan again"
        )


async def test_a_plan_that_changed_nothing_may_be_applied_twice(at: PlanNode) -> None:
    async with at.agent():
        plan = await at.plan("stable /a")

        states = [(await at.apply(plan, "stable /a"))["state"] for _ in range(2)]

    assert states == ["stable", "stable"]


async def test_data_of_another_revision_are_named(at: PlanNode) -> None:
    async with at.agent():
        plan = await at.plan(data=[DATA])
        at.revisions[DATA] = 4

        at.assert_refused(await at.apply(plan, data=[DATA]), f"these have changed: {DATA}; plan again")


@pytest.mark.parametrize(
    ("text", "data"), [("changed /a\nstable /b\nchanged /c", []), (TEXT, ["kv://CCM_DATA/other"])]
)
async def test_another_manifest_under_the_name_of_the_plan_is_refused(
    at: PlanNode, text: str, data: list[str]
) -> None:
    async with at.agent():
        plan = await at.plan()

        summary = await at.apply(plan, text, data=data)

        assert (summary["state"], summary["code"]) == ("failed", "run.plan")
        assert all(at.engine.looks)


@pytest.mark.parametrize("plan", ["2zpHrpdTbDOhSGCXGJpE8YbGvyx", "../../etc/passwd", "x" * 5000])
async def test_a_plan_that_the_node_does_not_have_changes_nothing(at: PlanNode, plan: str) -> None:
    async with at.agent():
        at.assert_refused(await at.apply(plan), "this node does not have the plan")
        assert at.engine.looks == []


async def test_a_plan_older_than_a_day_is_refused_whatever_its_file_says(at: PlanNode) -> None:
    async with at.agent():
        plan = await at.plan()
        at.clock.pass_s(86_401)

        at.assert_refused(await at.apply(plan), "this node does not have the plan")


@pytest.mark.parametrize(
    "body", ["", "[" * 100_000, '{"run": 1}', '{"run":"RUN","saved":"2026-11-21T12:00:00","digest":""}']
)
async def test_a_kept_plan_that_is_damaged_counts_as_none(at: PlanNode, body: str) -> None:
    async with at.agent():
        plan = await at.plan()
        (kept,) = await asyncio.to_thread(lambda: list(at.folder.glob("plans/*.json")))
        await asyncio.to_thread(kept.write_text, body.replace("RUN", plan))

        at.assert_refused(await at.apply(plan), "this node does not have the plan")


async def test_a_kept_plan_of_another_run_counts_as_none(at: PlanNode) -> None:
    async with at.agent():
        first, second = await at.plan(), await at.plan("changed /c")
        files = at.folder / "plans"
        await asyncio.to_thread((files / f"{first}.json").replace, files / f"{second}.json")

        at.assert_refused(await at.apply(second, "changed /c"), "this node does not have the plan")


async def test_a_plan_that_failed_is_not_kept(at: PlanNode) -> None:
    async with at.agent():
        request = ManifestRequest(protocol=MANIFEST_PLAN, manifest="failed /a", name="site", keep=True)
        run = await at.controller.ask(request)

        assert "found" not in await at.controller.summary(run, NODE)
        at.assert_refused(await at.apply(run, "failed /a"), "this node does not have the plan")


async def test_a_comparison_that_fails_changes_nothing(at: PlanNode) -> None:
    async with at.agent():
        plan = await at.plan()

        summary = await at.apply(plan, "broken /a")

        assert (summary["state"], "changed_resources" in summary) == ("failed", False)
        assert all(at.engine.looks)


async def test_stored_state_has_no_content_of_resources(at: PlanNode) -> None:
    async with at.agent():
        plan = await at.plan()

    kept = await asyncio.to_thread((at.folder / "plans" / f"{plan}.json").read_text)
    assert sorted(json.loads(kept)) == ["data", "data_revisions", "digest", "resources", "run", "saved"]
    assert all(len(one) == 64 for one in json.loads(kept)["resources"].values())


async def test_a_restart_between_plan_and_apply_changes_nothing_about_it(at: PlanNode) -> None:
    async with at.agent():
        plan = await at.plan()
    async with at.agent():
        assert (await at.apply(plan))["state"] == "changed"
        assert at.engine.looks == [True, False]


async def wait_in_look(at: PlanNode) -> tuple[str, str]:
    """A plan and the run that applies it, which stands in the comparison."""
    text = "wait /a\nchanged /b"
    at.engine.go.set()
    plan = await at.plan(text)
    at.engine.go.clear()
    at.engine.at_wait.clear()
    run = await at.ask(plan, text)
    await at.engine.at_wait.wait()
    return plan, run


@pytest.mark.parametrize("has_moved", [False, True])
async def test_a_restart_during_the_comparison_leaves_it_to_the_next_process(
    at: PlanNode, has_moved: bool
) -> None:
    async with at.agent() as agent:
        plan, run = await wait_in_look(at)
        await at.restart(agent)
        assert [one for one in await at.controller.stored(run) if one.get("changed")] == []
    if has_moved:
        at.modes["/b"] = "0600"

    async with at.agent():
        at.engine.go.set()
        summary = await at.controller.summary(run, NODE)

    if has_moved:
        at.assert_refused(summary, f"since the plan {plan[:8]}, these have changed: file#/b; plan again")
    else:
        assert (summary["state"], summary["changed_resources"]) == ("changed", 1)
        assert at.engine.looks == [True, False]


async def test_an_agent_that_is_killed_during_the_comparison_has_changed_nothing(at: PlanNode) -> None:
    async with at.agent() as agent:
        _, run = await wait_in_look(at)
        await agent.kill()

    async with at.agent():
        summary = await at.controller.summary(run, NODE)

        assert (summary["reason"], "changed_resources" in summary) == ("interrupted", False)
        assert at.engine.looks == []


async def test_a_stop_during_the_comparison_changes_nothing(at: PlanNode) -> None:
    async with at.agent() as agent:
        _, run = await wait_in_look(at)
        agent.stop.set()
        await asyncio.sleep(0)
        at.engine.go.set()

        summary = await at.controller.summary(run, NODE)

    assert (summary["state"], "changed_resources" in summary) == ("failed", False)
