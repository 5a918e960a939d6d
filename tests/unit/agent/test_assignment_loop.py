"""When an assignment is applied besides its interval: a critical check, and data that it follows."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest

from ccm_agent.agent.runs.admission import disable
from ccm_agent.model.outcome import TRANSACTION_EVENT
from ccm_agent.model.wire import AssignmentState, Disabled
from tests.support.agent import until, until_asked
from tests.support.assignments import START, World

DAY = 86_400.0
COMMON, SITE = "kv://CCM_DATA/common", "kv://CCM_DATA/site"


@pytest.fixture
async def world(tmp_path: Path) -> World:
    one = World(tmp_path)
    await one.controller.listen()
    return one


async def checked(world: World, checks: int, healed: int) -> None:
    """Ten minutes pass, and so many checks and applies that follow from them have been begun in all."""
    await world.pass_s(600)
    # the time at which a check is acted upon is read after its end
    await until(lambda: world.engine.actions.count("check") >= checks)
    await until(lambda: world.engine.actions.count("health") >= healed)


# -- checks


async def test_a_critical_check_is_acted_upon_twice_an_hour(world: World) -> None:
    world.engine.critical = 1
    async with world.agent(interval_s=30 * DAY, health_check_interval_s=600) as one:
        await world.operator.assign("site", "stable /a")
        await world.operator.stands("site", "stable")
        for checks, healed in enumerate((1, 2, 2, 2, 2, 2, 3), 1):
            await world.idle(one)
            await checked(world, checks, healed)
        await world.idle(one)

    assert world.engine.actions[:7] == ["assignment", "check", "health", "check", "health", "check", "check"]
    assert world.engine.actions.count("health") == 3


async def test_a_check_that_finds_nothing_changes_nothing_that_is_reported(world: World) -> None:
    async with world.agent(interval_s=30 * DAY, health_check_interval_s=600) as one:
        await world.operator.assign("site", "failed /a")
        before = await world.operator.stands("site", "failed")
        await world.idle(one)
        await checked(world, 1, 0)
        await world.idle(one)

    after = (await world.operator.record()).assignments["site"]
    assert (world.engine.actions, after) == (["assignment", "check"], before)


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        pytest.param({"mode": "plan"}, {"health_check_interval_s": 600}, id="in plan mode"),
        pytest.param({}, {}, id="without an interval of their own"),
    ],
)
async def test_checks_are_not_run(world: World, fields: dict[str, str], settings: dict[str, float]) -> None:
    world.engine.critical = 1
    async with world.agent(interval_s=900, **settings) as one:
        await world.operator.assign("site", "stable /a", **fields)
        await world.operator.stands("site", "stable")
        await world.idle(one)
        for _ in range(3):
            await world.pass_s(600)
            await world.idle(one)
        await until(lambda: len(world.engine.applied) >= 2)

    assert set(world.engine.actions) == {"assignment"}


async def test_a_disabled_node_is_checked_and_left_alone(world: World) -> None:
    world.engine.critical = 1
    async with world.agent(interval_s=30 * DAY, health_check_interval_s=600) as one:
        await world.operator.assign("site", "stable /a")
        await world.operator.stands("site", "stable")
        await world.idle(one)
        disabled = Disabled(since=START, why="debugging", by="ann")
        await asyncio.to_thread(disable, world.folder, disabled)
        await one.agent.reload_maintenance()
        await world.operator.stands("site", "disabled")
        await checked(world, 1, 0)
        await world.idle(one)
        await checked(world, 2, 0)

    assert world.engine.actions == ["assignment", "check", "check"]


# -- data


async def following(world: World, word: str = "stable") -> AssignmentState:
    """An assignment that follows a document stands, and was applied."""
    world.engine.revisions = {COMMON: await world.operator.bus.bucket("CCM_DATA").put("common", b"data: {}")}
    await world.operator.assign("site", f"{word} /a", data=[COMMON])
    return await world.operator.stands("site", word)


async def test_data_that_it_follows_wakes_it_and_other_data_do_not(world: World) -> None:
    data = world.operator.bus.bucket("CCM_DATA")
    async with world.agent(interval_s=30 * DAY) as one:
        await following(world)
        await world.idle(one)
        await data.put("other", b"data: {}")
        world.engine.revisions = {COMMON: await data.put("common", b"data: {a: 1}")}
        await world.runs(2)
        await world.idle(one)
        world.engine.revisions = {COMMON: await data.put("common", b"data: {a: 2}")}
        await world.runs(3)
        await world.idle(one)

    assert world.engine.actions == ["assignment"] * 3


async def reports(world: World, revisions: dict[str, int]) -> bool:
    """The node's record says that its last run read these."""
    return (await world.operator.record()).assignments["site"].data_revisions == revisions


async def test_node_reports_the_revisions_that_its_last_run_read(world: World) -> None:
    data = world.operator.bus.bucket("CCM_DATA")
    async with world.agent(interval_s=30 * DAY) as one:
        read = (await following(world)).data_revisions
        first = world.engine.revisions[COMMON]
        await world.idle(one)
        second = await data.put("common", b"data: {a: 1}")
        world.engine.revisions = {COMMON: second}
        await world.runs(2)
        await until_asked(lambda: reports(world, {COMMON: second}))
        again = (await world.operator.stands("site", "stable")).data_revisions

    assert (read, again) == ({COMMON: first}, {COMMON: second})


async def test_run_that_fails_on_its_data_reports_the_revision_that_it_was_to_read(world: World) -> None:
    data = world.operator.bus.bucket("CCM_DATA")
    async with world.agent(interval_s=30 * DAY) as one:
        world.engine.revisions = {COMMON: await data.put("common", b"data: {}")}
        await following(world)
        await world.idle(one)
        world.engine.fails_to_load = True
        bad = await data.put("common", b"data: {a: 1}")
        failed = await world.operator.stands("site", "failed")
        await world.idle(one)

    assert failed.data_revisions == {COMMON: bad}


async def test_pinned_data_are_reported_by_the_revision_of_the_bucket_alone(world: World) -> None:
    data = world.operator.bus.bucket("CCM_DATA")
    async with world.agent(interval_s=30 * DAY) as one:
        pinned = await data.put("common", b"data: {}")
        world.engine.revisions = {COMMON: pinned}
        await world.operator.assign("site", "stable /a", data=[COMMON], data_revision=pinned)
        told = await world.operator.stands("site", "stable")
        await world.idle(one)

    assert (told.data_revision, told.data_revisions) == (pinned, {})


async def test_pinned_data_do_not_wake_it(world: World) -> None:
    data = world.operator.bus.bucket("CCM_DATA")
    async with world.agent(interval_s=900) as one:
        pinned = await data.put("common", b"data: {}")
        world.engine.revisions = {COMMON: pinned}
        await world.operator.assign("site", "stable /a", data=[COMMON], data_revision=pinned)
        await world.operator.stands("site", "stable")
        await world.idle(one)
        await data.put("common", b"data: {a: 1}")
        world.engine.revisions = {}
        await world.operator.assign("other", "stable /b")
        await world.operator.stands("other", "stable")
        await world.idle(one)

    assert [text for text, _ in world.engine.runs] == ["stable /a", "stable /b"]


async def test_configured_document_is_watched_after_the_first_read(world: World) -> None:
    data = world.operator.bus.bucket("CCM_DATA")
    async with world.agent(interval_s=30 * DAY) as one:
        world.engine.revisions = {SITE: await data.put("site", b"data: {}")}
        await world.operator.assign("site", "stable /a")
        await world.operator.stands("site", "stable")
        await world.idle(one)
        world.engine.revisions = {SITE: await data.put("site", b"data: {a: 1}")}
        await world.runs(2)
        await world.idle(one)

    assert world.engine.actions == ["assignment"] * 2


async def test_a_change_while_it_is_applied_is_applied_afterwards(world: World) -> None:
    data = world.operator.bus.bucket("CCM_DATA")
    async with world.agent(interval_s=30 * DAY) as one:
        world.engine.revisions = {COMMON: await data.put("common", b"data: {}")}
        await world.operator.assign("site", "wait /a", data=[COMMON])
        await world.engine.at_wait.wait()
        world.engine.revisions = {COMMON: await data.put("common", b"data: {a: 1}")}
        world.engine.go.set()
        await world.runs(2)
        await world.idle(one)

    assert world.engine.actions == ["assignment"] * 2


async def test_the_changes_while_the_broker_was_away_is_taken_at_the_next_connection(world: World) -> None:
    data = world.operator.bus.bucket("CCM_DATA")
    async with world.agent(interval_s=30 * DAY) as one:
        await following(world)
        await world.idle(one)
        deliver, world.broker.deliver = world.broker.deliver, lambda message: None  # type: ignore[method-assign]
        world.engine.revisions = {COMMON: await data.put("common", b"data: {a: 1}")}
        world.broker.deliver = deliver  # type: ignore[method-assign]
        world.broker.stop()
        world.broker.start()
        await world.runs(2)
        await world.idle(one)

    assert world.engine.actions == ["assignment"] * 2


async def test_a_broker_recreated_counts_from_1_and_wakes_it_anyway(world: World) -> None:
    data = world.operator.bus.bucket("CCM_DATA")
    async with world.agent(interval_s=30 * DAY) as one:
        await following(world)
        await world.idle(one)
        kept = list(world.broker.buckets["CCM_ASSIGNMENTS"])
        world.broker.stop()
        world.broker.make_anew()
        world.broker.buckets["CCM_ASSIGNMENTS"].extend(kept)
        await world.runs(2)
        await world.idle(one)
        await data.put("common", b"data: {a: 1}")
        await world.runs(3)
        await world.idle(one)

    assert world.engine.actions == ["assignment"] * 3


async def test_a_fleet_that_hears_of_new_data_does_not_take_it_at_once(world: World) -> None:
    data = world.operator.bus.bucket("CCM_DATA")
    pauses: list[float] = []
    really = world.clock.sleep

    async def sleep(seconds: float) -> None:
        if 0 < seconds <= 5:
            pauses.append(seconds)
        await really(seconds)

    async def passed() -> bool:
        await world.clock.advance(5)
        return len(world.engine.applied) > applied

    world.clock.sleep = sleep  # type: ignore[method-assign]
    async with world.agent(interval_s=30 * DAY, change_pause_s=5) as one:
        world.engine.revisions = {COMMON: await data.put("common", b"data: {}")}
        await world.operator.assign("site", "stable /a", data=[COMMON])
        applied = 0
        await until_asked(passed)
        await world.operator.stands("site", "stable")
        await world.idle(one)
        paused, applied = len(pauses), 1
        await data.put("common", b"data: {a: 1}")
        await until(lambda: len(pauses) > paused)
        before = len(world.engine.applied)
        world.engine.revisions = {COMMON: await data.put("common", b"data: {a: 2}")}
        await until_asked(passed)
        await world.idle(one)

    assert (before, world.engine.actions) == (1, ["assignment"] * 2)


# -- its end


async def settled(world: World) -> list[str]:
    """Of what it is kept on disk what was settled."""

    def read() -> list[str]:
        found = []
        for path in (world.folder / "converged").glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # it goes just now
                found.append(json.loads(path.read_text())["source"])
        return sorted(found)

    return await asyncio.to_thread(read)


async def both_settled(world: World) -> None:
    """Assign two, and wait until what is settled of both is kept."""

    async def are_kept() -> bool:
        return await settled(world) == ["assignment other", "assignment site"]

    for name in ("site", "other"):
        await world.operator.assign(name, f"stable /{name}")
        await world.operator.stands(name, "stable")
    await until_asked(are_kept)


async def test_record_of_compliant_resources_is_removed_with_its_assignment_only(world: World) -> None:
    async def is_gone() -> bool:
        return await settled(world) == ["assignment site"]

    async with world.agent():
        await both_settled(world)
        await world.operator.unassign("other")
        await until_asked(is_gone)


async def test_one_that_comes_again_under_its_name_begins_again(world: World) -> None:
    async def is_kept() -> bool:
        return await settled(world) == ["assignment site"]

    async with world.agent() as one:
        await world.operator.assign("site", "stable /a")
        await world.operator.stands("site", "stable")
        await world.idle(one)
        for _ in range(3):
            await world.operator.unassign("site")
            await world.operator.is_gone("site")
            await world.operator.assign("site", "changed /a")
            await world.operator.stands("site", "changed", revision=world.operator.numbers["all.site"])
        await world.idle(one)
        await until_asked(is_kept)

    events = [body for subject, body in world.controller.heard if subject.startswith(TRANSACTION_EVENT)]
    assert [one["corrective"] for one in events] == [False] * 3


async def test_assignment_removed_while_the_agent_was_off_is_dropped_at_its_start(world: World) -> None:
    async def is_gone() -> bool:
        return await settled(world) == ["assignment site"]

    async with world.agent():
        await both_settled(world)
    await world.operator.unassign("other")

    world.broker.stop()
    async with world.agent():
        await until(lambda: world.clock.sleepers > 0)
        before = await settled(world)
        world.broker.start()
        await until_asked(is_gone)

    assert before == ["assignment other", "assignment site"]
