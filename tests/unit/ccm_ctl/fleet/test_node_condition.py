"""One function decides the state of a node, and every list and page shows its answer."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccm_agent.bus.subjects import assignment_key
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.records.rollout_records import Budgets, Lease, Phase, RolloutPlan, RolloutState, Wave
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import (
    DUPLICATE_IDENTITY,
    Assignment,
    AssignmentState,
    Disabled,
    NodeRecord,
    Presence,
)
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.commands.nodes.diagnosis import explain
from ccm_ctl.dashboard.attention_lines import find_attention
from ccm_ctl.dashboard.fleet_state import FleetState
from ccm_ctl.fleet.nodes.attention import ORDER, needs_attention
from ccm_ctl.fleet.nodes.discovery import TargetSpec
from ccm_ctl.fleet.nodes.node_condition import MEANINGS
from ccm_ctl.fleet.nodes.node_diagnostics import Evidence
from ccm_ctl.fleet.nodes.overview import read_overview
from ccm_ctl.top.fleet_watch import FleetWatch
from ccm_ctl.top.rows import node_rows
from tests.support.controller import NOW, Desk, FakeNode, fleet_on

RUN = "3Gb1YlnzjY5hvvqJBrE4G7Yv5Qe"
KEY = assignment_key("all", "base")

TOLD = st.builds(
    AssignmentState,
    key=st.just(KEY),
    revision=st.sampled_from([1, 2]),
    state=st.sampled_from(
        ["waiting", "stable", "changed", "failed", "stopped", "refused", "expired", "disabled"]
    ),
    reason=st.sampled_from(["", "disk full"]),
    run=st.sampled_from(["", RUN]),
    refresh_pending=st.sampled_from([[], ["service#nginx"]]),
)
RECORDS = st.builds(
    NodeRecord,
    node=st.just("web1"),
    last_run=st.sampled_from(["", RUN]),
    last_state=st.sampled_from(["", "failed", "stopped", "changed", "stable"]),
    last_time=st.just(NOW - timedelta(hours=1)),
    disabled=st.sampled_from([None, Disabled(since=NOW, why="restoring")]),
    conflict=st.sampled_from(["", "two assignments", DUPLICATE_IDENTITY]),
    plans_only=st.sampled_from(["", "the signers list is old"]),
    refresh_pending=st.sampled_from([[], ["service#nginx"]]),
    assignments=st.dictionaries(st.just("base"), TOLD, max_size=1),
)
AGES = st.sampled_from([0.0, 60.0, 100.0, 170.0])


async def store(broker: MemoryBroker, record: NodeRecord | None, presence: Presence | None) -> None:
    """What a node left on the broker."""
    nodes = MemoryBus(broker, "web1").bucket("CCM_NODES")
    if record is not None:
        await nodes.put("node.web1", msgspec.json.encode(record))
    if presence is not None:
        await nodes.put("presence.web1", msgspec.json.encode(presence))


async def assign(broker: MemoryBroker, mode: str) -> None:
    body = Assignment(name="base", scope="all", bundle=Bundle(digest="0" * 64, size_bytes=1), mode=mode)
    stamped = Stamped(bucket="CCM_ASSIGNMENTS", key=KEY, number=1, body=body, time=NOW)
    await MemoryBus(broker, "op").bucket("CCM_ASSIGNMENTS").put(KEY, msgspec.json.encode(stamped))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    record=st.none() | RECORDS,
    run=st.none() | st.sampled_from(["", RUN]),
    age_s=AGES,
    mode=st.sampled_from(["", "apply", "plan"]),
)
def test_no_two_screens_disagree(record: NodeRecord | None, run: str | None, age_s: float, mode: str) -> None:
    presence = Presence(node="web1", run=run, ttl_s=180) if run is not None else None
    if record is None and presence is None:
        return
    desk = Desk()
    desk.broker = MemoryBroker(now=lambda: NOW - timedelta(seconds=age_s))

    async def look() -> dict[str, str]:
        fleet = fleet_on(MemoryBus(desk.broker, "op"))
        await store(desk.broker, record, presence)
        if mode:
            await assign(desk.broker, mode)
        state, watch = FleetState(fleet, lambda: None), FleetWatch(fleet)
        await state.refresh()
        await watch.read_first()
        [row] = [msgspec.json.decode(one) for one in (await state.changes(0, TargetSpec()))["rows"]]
        [top] = node_rows(watch, NOW)
        overview = await read_overview(fleet)
        # as `why` has it when its agent was not asked; a question takes seconds
        node, judged = overview.inventory.nodes["web1"], overview.standings["web1"]
        evidence = Evidence(
            node=node, judged=judged, standing={name: one.wanted for name, one in judged.items()}
        )
        condition = overview.conditions["web1"]
        attention = [item.state for item in find_attention(overview, [], NOW)]
        assert attention == ([condition.state] if needs_attention(condition, NOW) else [])
        return {
            "decided": condition.state,
            "fleet page": row["status"],
            "top": top.cells[1],
            "why": explain(evidence, NOW).state,
        }

    found = asyncio.run(look())
    [listed] = desk.ccmctl("node", "list", "--json").records
    shown = desk.ccmctl("node", "show", "web1").out

    assert set(found.values()) == {listed["condition"]}
    assert f"\nstate: {listed['condition']}" in shown
    assert found["decided"] in MEANINGS


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"last_run": RUN, "last_state": "failed"},
        {"refresh_pending": ["service#nginx"]},
        {"plans_only": "the signers list is old"},
        {"disabled": Disabled(since=NOW)},
    ],
)
@pytest.mark.parametrize("is_present", [True, False])
def test_why_agrees_with_the_list_when_the_agent_answers(record: dict[str, Any], is_present: bool) -> None:
    desk = Desk(FakeNode("web1", record=record, is_present=is_present))

    [why] = desk.ccmctl("why", "web1", "--json").records
    [listed] = desk.ccmctl("node", "list", "--json").records

    assert why["state"] == why["condition"] == listed["condition"]


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"last_run": RUN, "last_state": "failed"}, "failed"),
        ({"refresh_pending": ["service#nginx"]}, "refresh pending"),
        ({"assignments": {"base": AssignmentState(key=KEY, revision=1, state="stable")}}, "converged"),
    ],
)
async def test_a_node_that_is_not_as_it_should_be_does_not_read_converged(
    fields: dict[str, Any], state: str
) -> None:
    broker = MemoryBroker(now=lambda: NOW)
    told = {"base": AssignmentState(key=KEY, revision=1, state="stable")}
    await assign(broker, "apply")
    await store(broker, NodeRecord(node="web1", **({"assignments": told} | fields)), Presence(node="web1"))

    overview = await read_overview(fleet_on(MemoryBus(broker, "op")))

    assert overview.conditions["web1"].state == state


@pytest.mark.parametrize(
    ("ttl_s", "age_s", "state"),
    [(180, 80, "converged"), (180, 100, "silent"), (0, 100, "silent"), (600, 250, "converged")],
)
def test_a_killed_agent_is_marked_after_one_and_a_half_intervals(
    ttl_s: int, age_s: float, state: str
) -> None:
    desk = Desk()
    desk.broker = MemoryBroker(now=lambda: NOW - timedelta(seconds=age_s))
    told = {"base": AssignmentState(key=KEY, revision=1, state="stable")}

    async def prepare() -> None:
        await assign(desk.broker, "apply")
        await store(
            desk.broker, NodeRecord(node="web1", assignments=told), Presence(node="web1", ttl_s=ttl_s)
        )

    asyncio.run(prepare())

    [listed] = desk.ccmctl("node", "list", "--json").records
    line = desk.ccmctl("node", "list").out.splitlines()[1]

    assert (listed["condition"], listed.get("late", False)) == (state, state == "silent")
    heard = {80: "1m20s", 100: "1m40s", 250: "4m10s"}[int(age_s)]
    assert f"{'late' if state == 'silent' else 'present'} {heard} ago" in line


def a_rollout(phase: Phase, **fields: Any) -> RolloutState:
    wave = Wave(name="all", nodes=4, slots=2, budgets=Budgets())
    plan = RolloutPlan(waves=(wave,), budgets=Budgets())
    return RolloutState(run=RUN, plan=plan, phase=phase, asked=2, time=NOW - timedelta(hours=2), **fields)


async def test_what_needs_attention_comes_the_worst_first_with_its_command() -> None:
    broker = MemoryBroker(now=lambda: NOW)
    fleet = fleet_on(MemoryBus(broker, "op"))
    nodes = [
        FakeNode("fine"),
        FakeNode("pending", record={"refresh_pending": ["service#nginx"]}),
        FakeNode("bad1", record={"last_run": RUN, "last_state": "failed"}),
        FakeNode("bad2", record={"last_run": RUN, "last_state": "failed"}),
    ]
    for node in nodes:
        await node.begin(broker)
    rollout = a_rollout(Phase.PAUSED, reason="1 node failed")

    found = find_attention(await read_overview(fleet), [rollout], NOW)

    assert [(one.state, one.nodes, one.command) for one in found] == [
        ("failed", ["bad1", "bad2"], "ccmctl why bad1"),
        ("paused", [], "ccmctl run show 3Gb1Ylnz"),
        ("refresh pending", ["pending"], "ccmctl why pending"),
    ]
    assert found[1].sentence == "rollout 3Gb1Ylnz, 2 of 4 nodes started: 1 node failed"


@pytest.mark.parametrize(("hours", "is_shown"), [(0, False), (1, True)])
async def test_a_node_that_restarts_needs_no_attention_yet(hours: int, is_shown: bool) -> None:
    broker = MemoryBroker(now=lambda: NOW - timedelta(hours=hours))
    await FakeNode("web1", is_present=False).begin(broker)

    found = find_attention(await read_overview(fleet_on(MemoryBus(broker, "op"))), [], NOW)

    assert [one.state for one in found] == (["offline"] if is_shown else [])


@pytest.mark.parametrize(
    ("rollout", "state"),
    [
        (a_rollout(Phase.PAUSED, reason="x"), "paused"),
        (a_rollout(Phase.RUNNING), "not driven"),
        (a_rollout(Phase.RUNNING, is_detached=True), None),
        (a_rollout(Phase.RUNNING, lease=Lease(process="a", operator="op", host="h", until=NOW + timedelta(seconds=9))), None),
        (a_rollout(Phase.DONE), None),
    ],
)  # fmt: skip
async def test_a_rollout_that_waits_stands_first_in_top_and_on_the_fleet_page(
    rollout: RolloutState, state: str | None
) -> None:
    broker = MemoryBroker(now=lambda: NOW)
    fleet = fleet_on(MemoryBus(broker, "op"))
    await FakeNode("web1").begin(broker)
    await fleet.runs.put(f"=rollout.{RUN}", msgspec.json.encode(rollout))
    page, watch = FleetState(fleet, lambda: None), FleetWatch(fleet)

    await page.refresh()
    await watch.refresh()

    attention = msgspec.json.decode(msgspec.json.encode((await page.changes(0, TargetSpec()))["attention"]))
    assert [(one["state"], one["run"]) for one in attention] == ([(state, RUN)] if state else [])
    first = node_rows(watch, NOW)[0]
    assert (first.cells[1], first.run) == ((state, RUN) if state else ("unassigned", ""))


def test_each_state_that_needs_attention_has_a_place() -> None:
    bad = {state for state, meaning in MEANINGS.items() if meaning == "bad"}

    assert bad <= set(ORDER)
