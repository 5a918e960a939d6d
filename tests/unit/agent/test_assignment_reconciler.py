import asyncio
import base64
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.agent.desired import assignment_reconciler
from ccm_agent.bus.subjects import event_subject, key_subject, notification_subject
from ccm_agent.model.errors import BusUnavailableError
from ccm_agent.model.outcome import SESSION_START
from ccm_agent.model.ports import KeyValue, KeyValueEntry
from ccm_agent.model.wire import (
    AGENT_DRIFT,
    AGENT_REFUSED,
    MANIFEST_APPLY,
    NODE_STATUS,
    AssignmentState,
    ManifestRequest,
    Request,
)
from ccm_agent.testing.memory_broker import Sent
from tests.support.agent import until, until_asked
from tests.support.assignments import BUCKET, NODE, START, World
from tests.support.bundles import digest_of, packed


@pytest.fixture
async def world(tmp_path: Path) -> World:
    one = World(tmp_path)
    await one.controller.listen()
    return one


# -- that it converges


async def test_an_assignment_is_applied_and_its_state_is_reported(world: World) -> None:
    async with world.agent():
        assignment = await world.operator.assign("site", "changed /a\nstable /b", requester="maria")
        state = await world.operator.stands("site", "changed")
        start = await world.controller.said_like(SESSION_START)

    ((source, options),) = world.engine.applied
    assert state == AssignmentState(
        key="all.site",
        revision=1,
        digest=assignment.bundle.digest,
        state="changed",
        since=START,
        run=options.run,
    )
    assert (options.cause, options.requester, options.noop) == ("assignment", "maria", False)
    assert source.digest == assignment.bundle.digest
    assert (start["run"], start["digest"]) == (options.run, assignment.bundle.digest)
    assert (start["cause"], start["origin"]) == ("assignment", "site")


async def test_one_that_was_made_while_the_node_was_off_is_applied_when_it_comes(world: World) -> None:
    await world.operator.assign("site", "changed /a", scope=f"node.{NODE}")

    async with world.agent():
        await world.operator.stands("site", "changed")

    assert world.engine.runs == [("changed /a", "assignment")]


async def test_it_is_applied_again_on_its_own_interval_and_a_stable_node_writes_nothing(world: World) -> None:
    async with world.agent(interval_s=3600) as one:
        await world.operator.assign("site", "stable /a", interval_s=60)
        first = await world.operator.stands("site", "stable")
        await world.pass_s(60)
        await world.runs(2)
        await world.idle(one)
        await world.pass_s(60)
        await world.runs(3)
        await world.idle(one)
        told = (await world.operator.record()).assignments["site"]

        run = await world.controller.ask(Request(protocol=NODE_STATUS))
        answer = await world.controller.answer(run, NODE)

    assert told == first
    assert answer.body["assignments"]["site"]["run"] == world.engine.applied[2][1].run


async def test_change_of_a_compliant_resource_is_reported_as_drift(world: World) -> None:
    async with world.agent() as one:
        await world.operator.assign("site", "changed /a")
        await world.runs(1)
        await world.idle(one)
        await world.pass_s(300)
        drift = await world.controller.said_like(AGENT_DRIFT)

    assert drift["details"]["resources"] == ["file#/a"]


async def test_a_plan_changes_nothing_and_says_so(world: World) -> None:
    async with world.agent():
        await world.operator.assign("site", "changed /a", mode="plan")
        await world.operator.stands("site", "changed")

    assert [options.noop for _, options in world.engine.applied] == [True]


async def test_a_failed_one_says_why_and_when_it_is_tried_again(world: World) -> None:
    async with world.agent():
        await world.operator.assign("site", "failed /a")
        state = await world.operator.stands("site", "failed")

    assert (state.reason, state.next_time is not None) == ("file#/a: no", True)


async def test_unknown_mode_is_refused_and_not_applied(world: World) -> None:
    async with world.agent():
        bundle = await world.operator.bundle("changed /a")
        body = {
            "name": "x",
            "scope": "all",
            "mode": "ponder",
            "bundle": {"digest": bundle.digest, "size_bytes": 1},
        }
        await world.operator.write("all.x", body)
        told = await world.controller.said(event_subject(AGENT_REFUSED, NODE))

    assert (told["details"], world.engine.applied) == ({"refused": "CCM_ASSIGNMENTS/all.x"}, [])


# -- who wins


async def test_node_scope_wins_over_fact_scope_and_fact_scope_over_all(world: World) -> None:
    await world.operator.facts(NODE, 1, role="web")
    await world.operator.assign("site", "stable /own", scope=f"node.{NODE}")
    await world.operator.assign("site", "stable /web", scope="fact.role.web")
    await world.operator.assign("site", "stable /all")

    async with world.agent() as one:
        await world.operator.stands("site", "stable")
        await world.operator.unassign("site", scope=f"node.{NODE}")
        await world.runs(2)
        await world.idle(one)
        await world.operator.unassign("site", scope="fact.role.web")
        await world.runs(3)
        await world.idle(one)

    assert [text for text, _ in world.engine.runs] == ["stable /own", "stable /web", "stable /all"]


async def test_facts_that_are_assigned_later_bring_their_assignments(world: World) -> None:
    await world.operator.assign("site", "stable /web", scope="fact.role.web")

    async with world.agent():
        await until_asked(lambda: world.operator.bus.bucket("CCM_NODES").get(f"node.{NODE}"))
        before = (await world.operator.record()).assignments
        await world.operator.facts(NODE, 1, role="web")
        await world.operator.stands("site", "stable")
        await world.operator.facts(NODE, 2, role="db")
        await world.operator.is_gone("site")

    assert (before, len(world.engine.applied)) == ({}, 1)


async def test_targets_decide_on_the_nodes_facts_and_again_when_those_change(world: World) -> None:
    await world.operator.assign("site", "stable /a", targets=["os=bsd"])
    world.facts = {"os": "linux"}

    async with world.agent(facts_interval_s=0.05):
        await world.operator.assign("other", "stable /b")
        await world.operator.stands("other", "stable")
        before = dict((await world.operator.record()).assignments)
        world.facts = {"os": "bsd"}
        await world.clock.advance(1)
        await world.operator.stands("site", "stable")
        world.facts = {"os": "linux"}
        await world.clock.advance(1)
        await world.operator.is_gone("site")

    assert list(before) == ["other"]


async def test_a_selector_that_cannot_be_read_is_refused_rather_than_skipped(world: World) -> None:
    async with world.agent():
        await world.operator.assign("site", "stable /a", where="no expressions")
        state = await world.operator.stands("site", "refused")

    assert ("no expressions here" in state.reason, world.engine.applied) == (True, [])


async def test_two_that_manage_the_same_are_both_refused_and_named(world: World) -> None:
    async with world.agent():
        await world.operator.assign("base", "stable /a\nstable /shared")
        await world.operator.stands("base", "stable")
        await world.operator.assign("site", "stable /b\nstable /shared")
        refused = [await world.operator.stands(name, "refused") for name in ("base", "site")]
        record = await world.operator.record()
        await world.clock.advance(1000)
        begun = len(world.engine.applied)
        await world.operator.unassign("base")
        await world.operator.stands("site", "stable")
        conflict_after = (await world.operator.record()).conflict

    sentence = (
        "the assignments base and site both manage file#/shared: neither is applied here; "
        "remove the resource from one of them, or unassign one"
    )
    assert [(one.reason, one.code) for one in refused] == [(sentence, "assignment.conflict")] * 2
    assert (record.conflict, conflict_after) == (sentence, "")
    assert begun == 1


async def test_a_plan_is_in_conflict_with_nothing(world: World) -> None:
    async with world.agent():
        await world.operator.assign("base", "stable /shared")
        await world.operator.assign("try", "stable /shared", mode="plan")
        await world.operator.stands("base", "stable")
        await world.operator.stands("try", "stable")


async def test_assignment_past_its_deadline_conflicts_with_nothing(world: World) -> None:
    await world.operator.assign("late", "stable /shared", deadline=START - timedelta(seconds=1))
    await world.operator.assign("site", "stable /shared")

    async with world.agent():
        await world.operator.stands("site", "stable")
        await world.operator.stands("late", "expired")


# -- what changes while it waits or runs


async def test_a_newer_revision_takes_the_place_of_one_that_waits(world: World) -> None:
    async with world.agent() as one:
        await world.controller.ask(
            ManifestRequest(protocol=MANIFEST_APPLY, name="long", manifest="wait /long")
        )
        await world.engine.at_wait.wait()
        await world.operator.assign("site", "stable /one")
        await world.operator.stands("site", "waiting")
        await world.operator.assign("site", "stable /two")
        await world.operator.stands("site", "waiting", revision=2)
        world.engine.go.set()
        await world.operator.stands("site", "stable", revision=2)
        await world.idle(one)

    assert [text for text, _ in world.engine.runs] == ["wait /long", "stable /two"]


async def test_a_newer_revision_waits_for_the_end_of_one_in_progress(world: World) -> None:
    async with world.agent():
        await world.operator.assign("site", "wait /one")
        await world.engine.at_wait.wait()
        await world.operator.assign("site", "stable /two")
        await until(lambda: world.broker.buckets[BUCKET][-1].sequence == 2)
        world.engine.go.set()
        state = await world.operator.stands("site", "stable", revision=2)

    assert [text for text, _ in world.engine.runs] == ["wait /one", "stable /two"]
    assert state.digest == digest_of(packed("stable /two"))


async def test_what_is_unassigned_is_not_applied_again_and_nothing_is_undone(world: World) -> None:
    async with world.agent():
        await world.operator.assign("site", "changed /a")
        await world.operator.stands("site", "changed")
        await world.operator.unassign("site")
        await world.operator.is_gone("site")
        await world.clock.advance(1000)

    assert len(world.engine.applied) == 1


async def test_a_deadline_that_has_passed_keeps_a_node_from_beginning(world: World) -> None:
    await world.operator.assign("site", "changed /a", deadline=START - timedelta(seconds=1))

    async with world.agent():
        state = await world.operator.stands("site", "expired")

    assert (state.code, state.digest, world.engine.applied) == ("run.expired", "", [])


async def test_a_deadline_that_passes_while_it_waits_counts_too(world: World) -> None:
    async with world.agent():
        await world.controller.ask(
            ManifestRequest(protocol=MANIFEST_APPLY, name="long", manifest="wait /long")
        )
        await world.engine.at_wait.wait()
        await world.operator.assign("site", "changed /a", deadline=START + timedelta(seconds=10))
        await world.operator.stands("site", "waiting")
        await world.clock.advance(11)
        world.engine.go.set()
        await world.operator.stands("site", "expired")

    assert [text for text, _ in world.engine.runs] == ["wait /long"]


async def test_what_has_begun_before_its_deadline_continues_converging_even_after_a_restart(
    world: World,
) -> None:
    async with world.agent():
        await world.operator.assign("site", "stable /a", deadline=START + timedelta(seconds=10))
        await world.operator.stands("site", "stable")
        await world.pass_s(300)
        await world.runs(2)

    async with world.agent():
        await world.runs(3)
        state = await world.operator.stands("site", "stable")

    assert state.since == START


async def test_a_disabled_node_converges_on_nothing_until_it_is_enabled(world: World) -> None:
    from ccm_agent.agent.runs.admission import disable, enable
    from ccm_agent.model.wire import Disabled

    await asyncio.to_thread(disable, world.folder, Disabled(since=START, why="disks"))
    await world.operator.assign("site", "stable /a")

    async with world.agent() as one:
        disabled = await world.operator.stands("site", "disabled")
        await asyncio.to_thread(enable, world.folder)
        await one.agent.reload_maintenance()
        await world.operator.stands("site", "stable")

    assert (disabled.reason, disabled.code) == ("disabled: disks", "agent.disabled")


# -- what is not to be trusted, and what is away


def at_each_reading(world: World, first: Callable[[list[str]], None]) -> None:
    """Call a function with the patterns whenever assignments are read; what it raises is how that ends."""
    inner = world.bus.bucket

    class Watched:
        def __init__(self, bucket: KeyValue) -> None:
            self._bucket = bucket

        async def matching(self, patterns: list[str], **options: Any) -> list[KeyValueEntry]:
            first(patterns)
            return await self._bucket.matching(patterns, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._bucket, name)

    world.bus.bucket = lambda name: Watched(inner(name)) if name == BUCKET else inner(name)  # type: ignore[return-value]


async def test_a_reading_that_fails_is_tried_again_soon(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment_reconciler, "READ_AGAIN_S", 0.02)
    failures = [BusUnavailableError("no answer")] * 3

    def slow(_patterns: list[str]) -> None:
        if failures:
            raise failures.pop()

    at_each_reading(world, slow)
    await world.operator.assign("site", "stable /a")

    async with world.agent(read_interval_s=3600):
        await world.operator.stands("site", "stable")

    assert failures == []


async def test_a_copied_entry_changes_nothing_and_is_reported_at_the_next_connection(world: World) -> None:
    async with world.agent():
        await world.operator.assign("site", "stable /a")
        await world.operator.stands("site", "stable")
        old = world.broker.buckets[BUCKET][0].body
        world.broker.inject(key_subject(BUCKET, "all.other"), old, {"Nats-Stream": f"KV_{BUCKET}"})
        world.broker.stop()
        world.broker.start()
        told = await world.controller.said(event_subject(AGENT_REFUSED, NODE))
        record = await world.operator.record()

    assert told["details"] == {"refused": BUCKET}
    assert list(record.assignments) == ["site"]


async def test_a_copied_entry_under_the_key_that_a_notice_names_is_reported_and_the_old_value_is_kept(
    world: World,
) -> None:
    async with world.agent():
        await world.operator.assign("site", "stable /a")
        await world.operator.stands("site", "stable")
        old = world.broker.buckets[BUCKET][0].body
        world.broker.inject(key_subject(BUCKET, "all.site"), old, {"Nats-Stream": f"KV_{BUCKET}"})
        world.broker.deliver(Sent(notification_subject(BUCKET, "all.site"), b"", {"Nats-Sequence": "2"}))
        told = await world.controller.said(event_subject(AGENT_REFUSED, NODE))
        record = await world.operator.record()

    assert told["details"] == {"refused": BUCKET}
    assert list(record.assignments) == ["site"]


async def test_notice_makes_the_agent_read_only_that_assignment(world: World) -> None:
    asked = list[list[str]]()
    at_each_reading(world, asked.append)
    await world.operator.assign("base", "stable /a")
    old = world.broker.buckets[BUCKET][0].body

    async with world.agent():
        await world.operator.stands("base", "stable")
        asked.clear()
        world.broker.inject(key_subject(BUCKET, "all.other"), old, {"Nats-Stream": f"KV_{BUCKET}"})
        await world.operator.assign("site", "stable /b")
        await world.operator.stands("site", "stable")
        await world.operator.unassign("site")
        await world.operator.is_gone("site")
        record = await world.operator.record()

    assert (asked, list(record.assignments)) == ([["all.site"], ["all.site"]], ["base"])


async def test_older_number_is_refused_and_the_newer_one_is_kept(world: World) -> None:
    async with world.agent() as one:
        await world.operator.assign("site", "stable /one")
        await world.operator.assign("site", "stable /two")
        await world.operator.stands("site", "stable", revision=2)
        old = world.broker.buckets[BUCKET][0].body
        await world.operator.bus.bucket(BUCKET).put("all.site", old)
        told = await world.controller.said(event_subject(AGENT_REFUSED, NODE))
        await world.pass_s(300)
        await world.idle(one)

    assert told["details"] == {"refused": f"{BUCKET}/all.site"}
    assert world.engine.runs[-1][0] == "stable /two"


async def test_node_without_network_converges_on_its_cache(world: World) -> None:
    async with world.agent():
        assignment = await world.operator.assign("site", "stable /a")
        await world.operator.stands("site", "stable")
    world.broker.stop()

    async with world.agent():
        await until(lambda: world.clock.sleepers > 0)
        await world.pass_s(60)
        await world.runs(2)

    assert [source.digest for source, _ in world.engine.applied] == [assignment.bundle.digest] * 2


async def test_after_a_restart_the_state_is_reported_as_it_was(world: World) -> None:
    async with world.agent() as one:
        await world.operator.assign("site", "failed /a")
        before = await world.operator.stands("site", "failed")
        await one.kill()
    await world.operator.bus.bucket("CCM_NODES").delete(f"node.{NODE}")

    world.engine.go.clear()
    async with world.agent():
        after = await world.operator.stands("site", "failed")

    assert (after.since, after.digest, after.reason) == (before.since, before.digest, before.reason)


async def test_a_bundle_that_is_missing_is_reported_and_tried_again(world: World) -> None:
    await world.operator.assign("site", "stable /a")
    bundles = dict(world.broker.objects["CCM_MANIFESTS"])
    world.broker.objects["CCM_MANIFESTS"].clear()

    async with world.agent():
        state = await world.operator.stands("site", "failed")
        world.broker.objects["CCM_MANIFESTS"].update(bundles)
        await world.pass_s(300)
        await world.operator.stands("site", "stable")

    assert (state.code, state.run) == ("bus.not_found", "")


async def test_its_bundle_stays_on_disk_however_many_others_come(world: World) -> None:
    async with world.agent() as one:
        assignment = await world.operator.assign("site", "stable /a")
        await world.operator.stands("site", "stable")
        for i in range(10):
            bundle = await world.operator.bundle(f"stable /{i}")
            request = ManifestRequest(
                protocol=MANIFEST_APPLY, name=f"m{i}", bundle=bundle, digest=bundle.digest
            )
            await world.controller.summary(await world.controller.ask(request), NODE)
            await world.idle(one)

    kept = {path.name for path in (world.folder / "bundles").iterdir()}
    assert assignment.bundle.digest in kept


async def test_pinned_data_of_a_removed_broker_is_not_used_for_a_new_one(
    world: World,
) -> None:
    data = world.operator.bus.bucket("CCM_DATA")
    pinned = {"data": ["kv://CCM_DATA/common"], "data_revision": 1}
    kept = world.folder / "data" / "pinned" / "CCM_DATA" / "1" / "common.json"
    async with world.agent():
        await data.put("common", b"data: {word: old}")
        await world.operator.assign("site", "stable /a", **pinned)
        await world.operator.stands("site", "stable")
        old = await kept_of(kept)
        await world.operator.assign("more", "stable /b", **pinned)
        await world.operator.stands("more", "stable")
        await data.delete("common")
        await world.operator.assign("site", "stable /c", **pinned)
        await world.operator.stands("site", "stable", revision=2)
        stays = await kept_of(kept)

    world.broker.make_anew()
    await data.put("common", b"data: {word: new}")
    await world.operator.assign("site", "stable /d", **pinned)
    async with world.agent():
        await world.operator.stands("site", "stable", revision=3)

    assert (old, stays, await kept_of(kept)) == (
        b"data: {word: old}",
        b"data: {word: old}",
        b"data: {word: new}",
    )


async def kept_of(path: Path) -> bytes:
    """The document in a file of the past."""
    kept = msgspec.json.decode(await asyncio.to_thread(path.read_bytes))
    return base64.b64decode(kept["value"])


async def test_more_than_a_thousand_assignments_for_others_cost_nothing(world: World) -> None:
    bundle = await world.operator.bundle("stable /a")
    for i in range(1100):
        body = {
            "name": f"n{i}",
            "scope": f"node.other{i}",
            "bundle": {"digest": bundle.digest, "size_bytes": 1},
        }
        await world.operator.write(f"node.other{i}.n{i}", body)
    async with world.agent():
        await world.operator.assign("site", "stable /a")
        await world.operator.stands("site", "stable")
        names = list((await world.operator.record()).assignments)

    assert names == ["site"]


async def test_local_user_can_start_a_convergence(world: World) -> None:
    async with world.agent() as one:
        await world.operator.assign("site", "stable /a")
        await world.operator.assign("bad", "failed /b")
        await world.operator.stands("site", "stable")
        await world.operator.stands("bad", "failed")
        ended = await one.agent.converge_once()

    assert {(one.name, one.state, one.total) for one in ended} == {
        ("site", "stable", 1),
        ("bad", "failed", 1),
    }
    assert len(world.engine.applied) == 4


async def test_a_fleet_does_not_begin_at_once_but_a_node_that_starts_does(world: World) -> None:
    def kept() -> bool:
        path = world.folder / "assignment_states.json"
        return path.exists() and '"stable"' in path.read_text()

    async def passed() -> bool:
        """Time goes on for whoever waits now; who begins to wait later needs some more."""
        await world.clock.advance(30)
        return bool(world.engine.applied)

    async with world.agent(change_pause_s=30) as one:
        await world.operator.assign("site", "stable /a")
        await until(lambda: world.clock.sleepers > 1)
        begun = len(world.engine.applied)
        await until_asked(passed)
        await world.operator.stands("site", "stable")
        await world.idle(one)
        await until_asked(lambda: asyncio.to_thread(kept))

    async with world.agent(change_pause_s=30):
        await world.runs(2)

    assert begun == 0
