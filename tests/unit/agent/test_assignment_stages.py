"""The next revision of an assignment: what a node has before a rollout releases it, afterwards, and at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.wire import (
    AGENT_REFUSED,
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    Assignment,
    AssignmentStage,
    ManifestRequest,
)
from tests.support.assignments import NODE, World

KEY = "all.site"
NUMBER = 100


@pytest.fixture
async def world(tmp_path: Path) -> World:
    one = World(tmp_path)
    await one.controller.listen()
    return one


async def revision(world: World, text: str, **fields: Any) -> Assignment:
    return Assignment(name="site", scope="all", bundle=await world.operator.bundle(text), **fields)


async def hold(world: World, current: Assignment, **fields: Any) -> Assignment:
    """Store a document that holds the next revision beside the current one; the next one."""
    following = await revision(world, "changed /new", number=NUMBER, **fields)
    document = msgspec.structs.replace(current, next=following)
    await world.operator.write(KEY, msgspec.to_builtins(document))
    return following


async def release(world: World, number: int = NUMBER, protocol: str = MANIFEST_APPLY) -> dict[str, Any]:
    """Ask for the next revision; how the run ended."""
    request = ManifestRequest(protocol=protocol, name="site", stage=AssignmentStage(key=KEY, number=number))
    return await world.controller.summary(await world.controller.ask(request), NODE)


async def test_node_keeps_the_current_revision_until_a_request_releases_the_next_one(world: World) -> None:
    async with world.agent() as one:
        current = await world.operator.assign("site", "stable /old")
        await world.operator.stands("site", "stable")
        following = await hold(world, msgspec.structs.replace(current, number=1))
        await world.pass_s(300)
        await world.runs(2)
        await world.idle(one)
        before = list(world.engine.runs)

        summary = await release(world)
        state = await world.operator.stands("site", "changed", revision=NUMBER)
        await world.idle(one)
        after = list(world.engine.runs)
        await world.pass_s(300)
        await world.runs(4)
        await world.idle(one)

    assert before == [("stable /old", "assignment")] * 2
    assert after[2:] == [("changed /new", "request")], "the loop adopts the run of the rollout"
    assert world.engine.runs[3:] == [("changed /new", "assignment")], "at the next interval"
    assert state.run == summary["run"]
    assert (summary["state"], state.digest) == ("changed", following.bundle.digest)


async def test_node_keeps_the_released_revision_after_a_restart_and_when_the_rollout_completes(
    world: World,
) -> None:
    async with world.agent() as one:
        current = await world.operator.assign("site", "stable /old")
        await world.operator.stands("site", "stable")
        following = await hold(world, msgspec.structs.replace(current, number=1))
        await release(world)
        await world.operator.stands("site", "changed", revision=NUMBER)
        await world.idle(one)
    count = len(world.engine.runs)

    async with world.agent() as one:
        await world.runs(count + 1)
        await world.operator.write(KEY, msgspec.to_builtins(following))
        await world.operator.assign("marker", "stable /marker")
        await world.operator.stands("marker", "stable")
        await world.idle(one)

    assert world.engine.runs[count:] == [("changed /new", "assignment"), ("stable /marker", "assignment")]


async def test_release_of_a_revision_that_is_gone_fails_and_applies_nothing(world: World) -> None:
    async with world.agent():
        current = await world.operator.assign("site", "stable /old")
        await world.operator.stands("site", "stable")
        await hold(world, msgspec.structs.replace(current, number=1))

        summary = await release(world, NUMBER + 1)

    assert (summary["state"], summary["code"]) == ("failed", "assignment.superseded")
    assert [text for text, _ in world.engine.runs] == ["stable /old"]


@pytest.mark.parametrize("protocol", [MANIFEST_PLAN, MANIFEST_CHECK])
async def test_a_plan_or_a_check_releases_nothing(world: World, protocol: str) -> None:
    async with world.agent() as one:
        current = await world.operator.assign("site", "stable /old")
        await world.operator.stands("site", "stable")
        await hold(world, msgspec.structs.replace(current, number=1))
        before = list(world.engine.runs)

        summary = await release(world, protocol=protocol)
        await world.operator.assign("marker", "stable /marker")
        await world.operator.stands("marker", "stable")
        await world.idle(one)

    assert (summary["state"], summary["code"]) == ("failed", "bus.protocol")
    assert [run for run in world.engine.runs if run not in before] == [("stable /marker", "assignment")]


async def test_release_fails_where_the_nodes_own_assignment_of_the_name_takes_precedence(
    world: World,
) -> None:
    async with world.agent():
        await world.operator.assign("site", "stable /own", scope=f"node.{NODE}")
        await world.operator.stands("site", "stable")
        await hold(world, await revision(world, "stable /old"))

        summary = await release(world)

    assert (summary["state"], summary["code"]) == ("failed", "assignment.outranked")
    assert [text for text, _ in world.engine.runs] == ["stable /own"]


async def test_release_fails_where_another_assignment_manages_the_same(world: World) -> None:
    async with world.agent():
        await world.operator.assign("other", "stable /new")
        await world.operator.stands("other", "stable")
        await hold(world, await revision(world, "stable /old", where="false"))

        summary = await release(world)

    assert (summary["state"], summary["code"]) == ("failed", "assignment.conflict")
    assert [text for text, _ in world.engine.runs] == ["stable /new"]


async def test_document_with_a_number_below_its_stamp_does_not_let_an_older_one_in(world: World) -> None:
    async with world.agent():
        document = msgspec.to_builtins(await revision(world, "stable /old", number=1))
        await world.operator.write(KEY, document, number=50)
        await world.operator.stands("site", "stable")

        replayed = msgspec.to_builtins(await revision(world, "changed /replayed"))
        await world.operator.write(KEY, replayed, number=20)
        told = await world.controller.said(event_subject(AGENT_REFUSED, NODE))

    assert told["details"] == {"refused": f"CCM_ASSIGNMENTS/{KEY}"}
    assert [text for text, _ in world.engine.runs] == ["stable /old"]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"name": "other"}, id="of another name"),
        pytest.param({"scope": "fact.role.web"}, id="of another scope"),
        pytest.param({"number": 0}, id="without a number"),
        pytest.param({"mode": "plan"}, id="a plan"),
    ],
)
async def test_document_with_the_next_revision_of_another_assignment_is_refused(
    world: World, fields: dict[str, Any]
) -> None:
    async with world.agent():
        following = msgspec.structs.replace(await revision(world, "changed /new", number=NUMBER), **fields)
        document = msgspec.structs.replace(await revision(world, "changed /old"), next=following)
        await world.operator.write(KEY, msgspec.to_builtins(document))
        told = await world.controller.said(event_subject(AGENT_REFUSED, NODE))

    assert (told["details"], world.engine.applied) == ({"refused": f"CCM_ASSIGNMENTS/{KEY}"}, [])
