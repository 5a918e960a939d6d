"""What must be so after a round, whoever reports it."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from ccm_agent.agent.state.request_log import RequestLog
from ccm_agent.agent.state.state_folder import LEDGER
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.subjects import parse_event, run_pattern
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY
from ccm_agent.model.wire import CARRIED_OUT, NodeState
from ccm_ctl.fleet.ports import LocalClock
from tests.random_rounds.play import Ground, Played

AGREE_S = 20.0
"""When all readers must agree; a heartbeat takes 5 seconds."""

Event = tuple[str, str, dict[str, Any]]
"""Node, protocol and body."""

CARRIED = {str(state) for state in CARRIED_OUT}


def find_violations(ground: Ground, played: Played) -> list[str]:
    """Each statement about a round that is not so, as a sentence; empty when all is well."""
    shown = ground.shown(played.run)
    states = shown.states
    events = asyncio.run(_read_events(ground, played.run))
    return [
        *check_ends(played, states),
        *check_work(played, states),
        *check_events(states, events),
        *check_limit(played, events),
        *check_gate(played, events),
        *_check_nodes(ground, played.run, states),
        *_check_readers_soon(ground, played, played.run, states),
        *(_find_undo_violations(ground, played, states) if played.undo else ()),
    ]


def _find_undo_violations(ground: Ground, played: Played, states: dict[str, str]) -> Iterator[str]:
    """The same for the undo, which is a run of its own."""
    undone = ground.shown(played.undo).states
    yield from check_undo(played, states, undone)
    yield from check_events(undone, asyncio.run(_read_events(ground, played.undo)))
    yield from _check_nodes(ground, played.undo, undone)
    yield from _check_readers_soon(ground, played, played.undo, undone)


def _check_readers_soon(ground: Ground, played: Played, run: str, states: dict[str, str]) -> list[str]:
    """What readers still report wrong after a few heartbeats: a node's record follows the end of its run."""
    deadline = time.monotonic() + AGREE_S
    while problems := list(_check_readers(ground, played, run, states)):
        if time.monotonic() > deadline:
            break
        time.sleep(0.5)
    return problems


async def _read_events(ground: Ground, run: str) -> list[Event]:
    """The stored events of a run, in the order of the stream."""
    creds = str(ground.keys / "tester.creds")
    async with Connection(settings_for(ground.fleet.url, creds=creds, identity="tester")) as connection:
        await connection.connect_now()
        found = await NatsEvents(connection).read(run_pattern(run))
    return [
        (parse_event(event.subject).node, parse_event(event.subject).protocol, json.loads(event.body))
        for event in found
    ]


def check_ends(played: Played, states: dict[str, str]) -> Iterator[str]:
    """Every target has a documented end."""
    if set(states) != set(played.round.nodes):
        yield f"run show lists {sorted(states)}, and the targets are {sorted(played.round.nodes)}"
    for node, state in states.items():
        if state not in set(NodeState) or not NodeState(state).is_final:
            yield f"{node}: `{state}` is not an end"


def check_work(played: Played, states: dict[str, str]) -> Iterator[str]:
    """Each resource was applied as often as the run reports."""
    kills = [fault.who for fault in played.round.faults if fault.what == "agent"]
    if played.round.kind == "exec":
        done = sum(state == "changed" for state in states.values())
        carried = sum(state in CARRIED for state in states.values())
        if not done <= played.marks[""] <= carried:
            yield f"the command ran {played.marks['']} times; {done} nodes changed, {carried} carried it out"
        return
    for node, count in played.marks.items():
        state = states.get(node, "none")
        if count and state not in CARRIED and played.round.kind != "assign":
            yield f"{node}: it did the work, and run show reports {state}"
        if not count and state == "changed":
            yield f"{node}: it did not do the work, and run show reports changed"
        # the convergence loop applies what a kill or a stop has interrupted
        is_left = state == "stopped" and node in played.round.failing
        again = kills.count(node) + is_left if played.round.kind == "assign" else 0
        if count > 1 + again:
            yield f"{node}: it did the work {count} times"


def check_events(states: dict[str, str], events: list[Event]) -> Iterator[str]:
    """The stream has the events of each node without a gap, and one summary with its end."""
    for node, state in states.items():
        numbers = [body["number"] for name, _, body in events if name == node]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"{node}: its events in the stream have the numbers {numbers}"
        ends = [body for name, protocol, body in events if name == node and protocol == SESSION_SUMMARY]
        if len(ends) != (state in CARRIED):
            yield f"{node}: {len(ends)} summaries in the stream, and run show reports {state}"
        elif ends and str(ends[0]["state"]) != state:
            yield f"{node}: the stream has {ends[0]['state']}, and run show reports {state}"


def check_limit(played: Played, events: list[Event]) -> Iterator[str]:
    """No node starts in a wave after the one in which the limit was exceeded."""
    drawn = played.round
    if drawn.limit is None or drawn.orders:
        return
    failed = [at for at, (_, protocol, body) in enumerate(events) if _is_failure(protocol, body)]
    if len(failed) <= drawn.limit:
        return
    at_once = max(1, len(drawn.nodes) // 2 + 1)
    started = [node for node, protocol, _ in events[failed[drawn.limit] :] if protocol == SESSION_START]
    if len(started) > at_once:
        yield f"{started} started after {drawn.limit + 1} nodes had failed"


def check_gate(played: Played, events: list[Event]) -> Iterator[str]:
    """No node starts behind a gate that is never true, unless an operator promotes the rollout."""
    if not played.round.is_gated or played.round.orders:
        return
    started = {node for node, protocol, _ in events if protocol == SESSION_START}
    if len(started) > 1:
        yield f"{sorted(started)} started, and the gate after the first node was never true"


def check_undo(played: Played, states: dict[str, str], undone: dict[str, str]) -> Iterator[str]:
    """The file of the manifest is on a node that changed, and gone from one whose undo changed something."""
    before, after = played.kept
    for node in sorted(node for node, state in states.items() if state == "changed"):
        if node not in before:
            yield f"{node}: it changed, and its file is missing"
        if (end := undone.get(node)) is None:
            yield f"{node}: it changed, and its undo was not requested"
        elif not NodeState(end).is_final:
            yield f"{node}: its undo has the state `{end}`, which is not an end"
        elif end == "changed" and node in after:
            yield f"{node}: its undo changed something, and its file is still there"
        elif end not in CARRIED and node not in after:
            yield f"{node}: its undo is `{end}`, and its file is gone"


def _check_nodes(ground: Ground, run: str, states: dict[str, str]) -> Iterator[str]:
    """The node's own log of requests has the same end."""
    with tempfile.TemporaryDirectory() as folder:
        for node, state in states.items():
            path = Path(folder) / node
            shutil.copy(ground.fleet.agents[node].directory / "state" / LEDGER, path)
            log = RequestLog(path, keep_s=86_400, clock=LocalClock())
            log.open()
            entry = log.find(run)
            log.close()
            outcome = entry.outcome if entry else ""
            if (outcome == state) != (state in CARRIED):
                yield f"{node}: its own log has the end `{outcome}`, and run show {state}"


def _is_failure(protocol: str, body: dict[str, Any]) -> bool:
    return protocol == SESSION_SUMMARY and body["state"] in ("failed", "stopped")


def _check_readers(ground: Ground, played: Played, run: str, states: dict[str, str]) -> Iterator[str]:
    """`run list`, `node list`, `why` and the dashboard report the same."""
    listed = {one["run"]: one for one in ground.fleet.ctl("run", "list", "--json").named("run")}
    counts: dict[str, int] = {}
    for state in states.values():
        counts[state] = counts.get(state, 0) + 1
    if (one := listed.get(run)) is None or one["counts"] != counts:
        yield f"run list reports {one and one['counts']}, and run show {counts}"
    try:
        page = ground.api(f"/api/runs/{run}")
    except HTTPError as err:
        yield f"the dashboard answers {err.code} {err.reason}"
        return
    on_page = {one["node"]: one["state"] for one in page["results"]}
    if on_page != states:
        yield f"the dashboard reports {on_page}, and run show {states}"
    if played.round.kind == "assign" or (played.undo and run != played.undo):
        return  # a later run is the last one
    nodes = {one["node"]: one for one in ground.fleet.ctl("node", "list", "--json").named("node")}
    for node, state in states.items():
        if state not in CARRIED:
            continue
        last = nodes[node].get("last_run"), nodes[node].get("last_state")
        if last != (run, state):
            yield f"{node}: node list reports {last}, and run show {(run, state)}"
        reason = ground.fleet.ctl("why", node, "--json").named("why")[0]["state"]
        if (reason in ("converged", "unassigned")) != (state in ("changed", "stable")):
            yield f"{node}: why reports `{reason}`, and run show {state}"
