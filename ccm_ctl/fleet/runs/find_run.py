"""Find a run of any operator or schedule, in the records or in the stream of events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ccm_agent.bus.subjects import event_subject, request_subject
from ccm_agent.model.errors import (
    BusSetupError,
    NoTargetError,
    NotFoundError,
    ProtocolError,
    RunError,
    SelectorError,
)
from ccm_agent.model.ids import short_id
from ccm_agent.model.records.run_records import NodeEnd, RunRecord, RunState
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.model.wire import (
    AGENT_REFUSED,
    MANIFEST_APPLY,
    MANIFEST_PLAN,
    AgentEvent,
    ManifestRequest,
    NodeState,
)
from ccm_ctl.fleet.events.messages import decode_agent_message
from ccm_ctl.fleet.nodes.discovery import requested_targets, resolve
from ccm_ctl.fleet.runs.history import NEWEST, History, Recorded, UnknownRunError
from ccm_ctl.fleet.runs.stream_runs import REQUEST, SCHEDULE, StreamRun, find_runs, read_run
from ccm_ctl.fleet.trust.verified_reader import open_reader

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from ccm_agent.bus.signatures.verified import Verified
    from ccm_ctl.fleet.nodes.nodes import Inventory
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.schedules.stored_schedule import Schedule

REFUSALS_READ = 200
"""The maximum number of nodes without a session for which refusals are read node by node."""

REFUSALS_LIMIT = 10_000
"""The maximum number of events read to find the refusals of all nodes."""

SCOPES_LIMIT = 1000
"""For up to this many nodes, a stop is sent to each node's own subject. For more, it is sent to the subject of all nodes."""


async def find_run(fleet: Fleet, word: str) -> Recorded:
    """
    Find a run by its ID, a prefix of the ID, or `last`, which is this operator's own newest run.

    Raises:
        RunError: No run matches, or the prefix is ambiguous.
    """
    history, run = History(fleet), await find_id(fleet, word)
    try:
        return await history.load(run)
    except UnknownRunError:
        if found := await read_run(fleet, run):
            return await describe(fleet, found)
        if (schedule := await _find_last(fleet, run)) is not None:
            return await describe_last(fleet, schedule)
        raise


async def find_id(fleet: Fleet, word: str) -> str:
    """
    Return the ID of a run from a prefix or `last`. A complete ID is returned without a lookup.

    Raises:
        RunError: No run matches, or the prefix is ambiguous.
    """
    try:
        return await History(fleet).find(word)
    except UnknownRunError:
        runs = await find_runs(fleet, word) if word != NEWEST else []
        if not runs:
            raise
        if len(runs) > 1:
            raise RunError(
                f"run `{word}` is ambiguous: {len(runs)} runs begin with it, such as {runs[0]} and {runs[1]}; "
                "use more characters"
            ) from None
        return runs[0]


async def describe_last(fleet: Fleet, schedule: Schedule) -> Recorded:
    """
    Return the last run of a schedule.

    Raises:
        RunError: The schedule was not due yet.
    """
    if not schedule.last_run:
        raise RunError(f"{schedule.name}: has not been due yet; `ccmctl schedule list` shows when it is")
    found = await read_run(fleet, schedule.last_run)
    return await describe(fleet, found or StreamRun(run=schedule.last_run, sessions={}), schedule)


async def describe(fleet: Fleet, found: StreamRun, schedule: Schedule | None = None) -> Recorded:
    """
    Describe a run from the stream in the form of a recorded run.

    If its schedule is still stored, the nodes that match the schedule now and have no session are also expected. They were
    offline, or they refused the run.

    Args:
        fleet: The bus.
        found: The run.
        schedule: The schedule that sent the run, if known. Otherwise it is looked up by name.
    """
    cause = SCHEDULE if schedule is not None else found.cause
    if schedule is None and cause == SCHEDULE:
        stored = await read_schedules(fleet)
        schedule = next((one for one in stored if one.name == found.origin), None)
    nodes = sorted(found.sessions)
    note = ""
    expected: dict[str, bool] = {}
    if schedule is not None and is_from(schedule, found.time):
        expected = await match_now(fleet, schedule)
        note = f"nodes without a session are those that match `{schedule.name}` now"
    elif cause == SCHEDULE:
        note = "only nodes with a session are known: the schedule has since been replaced or removed"
    absent = [node for node in expected if node not in found.sessions]
    refusals = await _read_refusals(fleet, found.run, absent, found.time)
    ends = {node: _explain_absence(refusals.get(node), is_present=expected[node]) for node in absent}
    is_requested = bool(found.sessions) and cause == REQUEST
    record = RunRecord(
        run=found.run,
        action=found.action if found.sessions else _read_action(schedule),
        name=found.name if found.sessions else schedule.request.name if schedule else "",
        requester=found.requester if is_requested else "",
        request={"message": found.message} if is_requested and found.message else {},
        time=found.time,
        targets=list(schedule.request.targets) if schedule else [],
        where=schedule.request.where if schedule else "",
        subjects=_find_subjects(schedule, nodes),
        nodes=len(nodes) + len(absent),
        offline=len(absent),
    )
    return Recorded(
        record=record,
        state=RunState(run=found.run),
        nodes=sorted([*nodes, *absent]),
        offline=absent,
        ends=ends,
        cause=cause,
        origin=schedule.name if schedule else found.origin,
        note=note,
        is_on_record=False,
    )


async def find_request(fleet: Fleet, recorded: Recorded) -> Verified[ManifestRequest]:
    """
    Return the request of a schedule's run, so that an operator can send it again.

    Raises:
        RunError: No schedule started the run, or the schedule has been changed or removed since.
        SignatureError: The schedule's signature does not verify.
    """
    run = recorded.record.run
    if recorded.cause != SCHEDULE:
        raise RunError(
            f"{short_id(run)}: it was not started by a request, so it cannot be retried; to converge now, use `ccmctl run-now`"
        )
    stored = (one for one in await read_schedules(fleet) if one.name == recorded.origin)
    schedule = next(stored, None)
    if schedule is None or recorded.record.time is None or not is_from(schedule, recorded.record.time):
        raise RunError(
            f"{short_id(run)}: the schedule {recorded.origin} has since been replaced or removed, so its request is unknown"
        )
    now = fleet.clock.now()
    judged = schedule if schedule.proof is not None else (await open_reader(fleet)).judged(schedule)
    return judged.verified().derive(
        lambda request: msgspec.structs.replace(
            request,
            protocol=schedule.protocol,
            run=run,
            time=now,
            requester=fleet.operator,
            cause="request",
            deadline_s=0,
            catch_up=False,
        )
    )


async def find_schedule(fleet: Fleet, name: str) -> Schedule:
    """
    Return the schedule with this name.

    Raises:
        NotFoundError: There is no such schedule.
    """
    known = await read_schedules(fleet)
    found = next((one for one in known if one.name == name), None)
    if found is None:
        near = did_you_mean(name, (one.name for one in known))
        raise NotFoundError(f"{name}: there is no such schedule{near or '; see `ccmctl schedule list`'}")
    return found


async def _find_last(fleet: Fleet, run: str) -> Schedule | None:
    """Return the schedule with this last run, even if no node has started the run."""
    return next((one for one in await read_schedules(fleet) if one.last_run == run), None)


async def read_schedules(fleet: Fleet, left_out: list[str] | None = None) -> list[Schedule]:
    """
    Return the schedules, or an empty list if the broker has no bucket for them. Subjects of unreadable ones are added to
    `left_out`.
    """
    try:
        return (
            await fleet.schedules([] if left_out is None else left_out) if fleet.schedules is not None else []
        )
    except BusSetupError:
        return []


def is_from(schedule: Schedule, time: datetime) -> bool:
    """Whether a run of this time belongs to the schedule in its stored form. A run ID has a resolution of one second."""
    return schedule.stored.replace(microsecond=0) <= time


async def match_now(fleet: Fleet, schedule: Schedule) -> dict[str, bool]:
    """Return the nodes that match a schedule now, each with whether it is present."""
    try:
        inventory, resolved = await resolve(fleet, requested_targets(schedule.request))
    except (NoTargetError, SelectorError):
        return {}
    return {node: _is_present(inventory, node) for node in resolved.nodes}


def _is_present(inventory: Inventory, node: str) -> bool:
    return node in inventory.nodes and inventory.nodes[node].is_present


async def _read_refusals(fleet: Fleet, run: str, nodes: Collection[str], since: datetime) -> dict[str, str]:
    """Return the reasons with which nodes refused a run, from the stream."""
    found: dict[str, str] = {}
    for node in sorted(nodes)[:REFUSALS_READ]:
        async for event in fleet.events.scan(event_subject(AGENT_REFUSED, node), since=since):
            try:
                said = decode_agent_message(event).said
            except ProtocolError:
                continue
            if isinstance(said, AgentEvent) and said.details.get("run") == run:
                found[node] = said.message
    return found


async def read_refusals(fleet: Fleet, runs: Collection[str], since: datetime) -> dict[str, set[str]]:
    """Return the nodes that refused each run, from the stream. The number of events read is limited."""
    found: dict[str, set[str]] = {}
    count = 0
    async for event in fleet.events.scan(f"{AGENT_REFUSED}.>", since=since):
        count += 1
        if count > REFUSALS_LIMIT:
            break
        try:
            heard = decode_agent_message(event)
        except ProtocolError:
            continue
        run = heard.said.details.get("run") if isinstance(heard.said, AgentEvent) else None
        if isinstance(run, str) and run in runs:
            found.setdefault(run, set()).add(heard.node)
    return found


def _explain_absence(refusal: str | None, *, is_present: bool) -> NodeEnd:
    if refusal is not None:
        return NodeEnd(state=str(NodeState.REFUSED), reason=refusal)
    return NodeEnd(
        state=str(NodeState.OFFLINE),
        reason="no session; present now" if is_present else "no session; offline now",
    )


def _read_action(schedule: Schedule | None) -> str:
    return "plan" if schedule is not None and schedule.protocol == MANIFEST_PLAN else "apply"


def _find_subjects(schedule: Schedule | None, nodes: Collection[str]) -> list[str]:
    """Return the subjects on which a stop reaches the nodes of a run."""
    if schedule is not None:
        return [request_subject(schedule.protocol, schedule.scope)]
    if len(nodes) > SCOPES_LIMIT:
        return [request_subject(MANIFEST_APPLY, "all")]
    return [request_subject(MANIFEST_APPLY, f"node.{node}") for node in nodes]
