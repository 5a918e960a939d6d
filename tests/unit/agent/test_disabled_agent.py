"""What an agent does, and does not do, while its node is disabled."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.agent.runs.admission import disable, enable
from ccm_agent.model.wire import (
    AGENT_DISABLED,
    AGENT_ENABLED,
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    NODE_FACTS,
    NODE_PING,
    NODE_STATUS,
    RESOURCE_ENSURE,
    Disabled,
    EnsureRequest,
    ManifestRequest,
    NodeRecord,
    Request,
)
from tests.support.agent import until, until_asked
from tests.unit.agent.test_manifest_reconciler import NODE, SITE, World

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
DISABLED = Disabled(since=NOON, until=NOON + timedelta(days=400), why="the disk is replaced", by="maria")
REASON = "disabled until 2027-12-26 12:00:00Z by maria: the disk is replaced"
HOUR = {"interval_s": 3600, "watch_interval_s": 60, "health_check_interval_s": 600}


@pytest.fixture
def blockbuster() -> None:
    """Tests play the operator, who has a process of his own: they may write files."""


@pytest.fixture
async def world(tmp_path: Path) -> World:
    one = World(tmp_path)
    one.files.put(SITE, "stable /a")
    await one.controller.listen()
    return one


async def record(world: World) -> NodeRecord | None:
    entry = await world.controller.bus.bucket("CCM_NODES").get(f"node.{NODE}")
    return msgspec.json.decode(entry.value, type=NodeRecord) if entry else None


async def ask(world: World, request: Request) -> tuple[str, str, str]:
    answer = await world.controller.answer(await world.controller.ask(request), NODE)
    return answer.state, answer.code, answer.reason


@pytest.mark.parametrize(
    "request_",
    [
        ManifestRequest(protocol=MANIFEST_APPLY, name="site", manifest="changed /a"),
        EnsureRequest(protocol=RESOURCE_ENSURE, type="file", properties={"name": "/a"}),
    ],
    ids=["apply", "ensure"],
)
async def test_the_changes_the_node_is_refused_with_the_reason(world: World, request_: Request) -> None:
    disable(world.folder, DISABLED)
    async with world.agent():
        answered = await ask(world, request_)

    assert answered == ("refused", "agent.disabled", REASON)
    assert world.engine.applied == []


@pytest.mark.parametrize(
    ("protocol", "state"),
    [
        (MANIFEST_PLAN, "accepted"),
        (MANIFEST_CHECK, "accepted"),
        (NODE_PING, "done"),
        (NODE_FACTS, "done"),
        (NODE_STATUS, "done"),
    ],
)
async def test_disabled_node_answers_requests_that_change_nothing(
    world: World, protocol: str, state: str
) -> None:
    disable(world.folder, DISABLED)
    async with world.agent():
        request: dict[str, Any] = {"protocol": protocol}
        asked = (
            ManifestRequest(**request, manifest="stable /a") if state == "accepted" else Request(**request)
        )

        answered = await ask(world, asked)

    assert answered == (state, "", "")


async def test_disabling_and_enabling_the_node_is_reported_to_all_listeners(world: World) -> None:
    async with world.agent() as one:
        disable(world.folder, DISABLED)
        await one.agent.reload_maintenance()
        disabled = await world.controller.said_like(AGENT_DISABLED)
        await until_asked(lambda: is_told(world, DISABLED))
        enable(world.folder)
        await one.agent.reload_maintenance()
        enabled = await world.controller.said_like(AGENT_ENABLED)
        await until_asked(lambda: is_told(world, None))

    assert (disabled["message"], disabled["details"]) == (
        REASON,
        {
            "since": "2026-11-21T12:00:00Z",
            "until": "2027-12-26T12:00:00Z",
            "why": "the disk is replaced",
            "by": "maria",
        },
    )
    assert (enabled["message"], enabled.get("details", {})) == ("enabled again", {})


async def checked(world: World, times: int) -> None:
    """Wait until checks have run so often."""
    await until(lambda: world.engine.actions.count("check") >= times)


async def is_told(world: World, disabled: Disabled | None) -> bool:
    found = await record(world)
    return found is not None and found.disabled == disabled


async def test_a_node_that_starts_disabled_says_so_with_its_first_word(world: World) -> None:
    disable(world.folder, DISABLED)
    seen: list[Disabled | None] = []
    async with world.agent(SITE):
        await until_asked(lambda: record(world))
        found = await record(world)
        assert found is not None
        seen.append(found.disabled)

    assert seen == [DISABLED]


async def test_nothing_is_applied_of_itself_but_checks_continue_and_heal_nothing(world: World) -> None:
    async with world.agent(SITE, **HOUR) as one:
        await world.applies(1)
        await world.idle(one)
        disable(world.folder, DISABLED)
        await one.agent.reload_maintenance()
        world.engine.critical = 1
        world.files.put(SITE, "stable /b")
        for checks in range(1, 9):
            await world.clock.advance(600)
            await checked(world, checks)
            await world.idle(one)

    assert set(world.engine.actions[1:]) == {"check"}


async def test_a_node_that_is_enabled_again_converges_at_once(world: World) -> None:
    disable(world.folder, DISABLED)
    async with world.agent(SITE, **HOUR) as one:
        await one.agent.reload_maintenance()
        before = list(world.engine.applied)
        enable(world.folder)
        await one.agent.reload_maintenance()
        [(source, _)] = await world.applies(1)

    assert before == []
    assert source.name == SITE


async def test_a_run_in_progress_ends_and_those_that_wait_are_refused(world: World) -> None:
    async with world.agent() as one:
        held = await world.controller.ask(
            ManifestRequest(protocol=MANIFEST_APPLY, name="held", manifest="wait /a\nchanged /b")
        )
        await world.engine.at_wait.wait()
        waiting = await world.controller.ask(
            ManifestRequest(protocol=MANIFEST_APPLY, name="waiting", manifest="changed /c")
        )
        await world.controller.answer(waiting, NODE)
        disable(world.folder, DISABLED)
        await one.agent.reload_maintenance()
        world.engine.go.set()

        summary = await world.controller.summary(held, NODE)
        second = await world.controller.answer(waiting, NODE, 2)

    assert summary["state"] == "changed"
    assert (second.state, second.code, second.reason) == ("refused", "agent.disabled", REASON)
    assert len(world.engine.applied) == 1


async def test_what_was_refused_stays_so_after_the_node_is_enabled(world: World) -> None:
    request = ManifestRequest(protocol=MANIFEST_APPLY, name="site", manifest="changed /a")
    disable(world.folder, DISABLED)
    async with world.agent() as one:
        run = await world.controller.ask(request)
        await world.controller.answer(run, NODE)
        enable(world.folder)
        await one.agent.reload_maintenance()

        await world.controller.ask(request)
        again = await world.controller.answer(run, NODE, 2)

    assert (again.state, again.code) == ("refused", "agent.disabled")


async def test_the_status_that_is_asked_for_says_that_the_node_is_disabled(world: World) -> None:
    disable(world.folder, DISABLED)
    async with world.agent():
        run = await world.controller.ask(Request(protocol=NODE_STATUS))
        async with asyncio.timeout(10):
            answer = await world.controller.answer(run, NODE)

    assert answer.body["disabled"] == msgspec.to_builtins(DISABLED)
