"""
Open rollouts and runs on the nodes of another rollout.

Each rollout counts only its own failures. If two rollouts are in progress on the same nodes, neither limits the total. A rollout
does not start or continue while another one is in progress there, unless an operator agrees.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from msgspec import Struct

from ccm_agent.model.errors import BusDeniedError, ProtocolError, RunError
from ccm_agent.model.ids import short_id
from ccm_agent.model.records.rollout_records import Phase, RolloutState
from ccm_agent.model.records.run_records import RunRecord
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import History

MOST = 20
"""The maximum number of rollouts returned. Each is loaded with its nodes."""

NAMED = 3
"""The maximum number of nodes named in a message."""


class ConcurrentRolloutError(RunError):
    """Another rollout is in progress on the same nodes, so the limits of both cannot be kept."""

    code = "rollout.concurrent"


class ConcurrentRollout(Struct, frozen=True, kw_only=True):
    """
    An open rollout on the same nodes.

    Attributes:
        record, state: Its run and its state.
        nodes: The nodes that are in both rollouts, sorted.
        is_in_progress: Whether it can start further nodes: it is not paused, and it has a driver or waits for a rollout server.
    """

    record: RunRecord
    state: RolloutState
    nodes: list[str]
    is_in_progress: bool


async def find_concurrent_rollouts(
    fleet: Fleet, nodes: Collection[str], *, besides: str = ""
) -> list[ConcurrentRollout]:
    """
    Return the open rollouts on some of these nodes, newest first. Makes one request to the broker if no rollout is open.

    Args:
        fleet: The bus.
        nodes: The nodes.
        besides: The run of a rollout to leave out, or "".
    """
    store, found, wanted = RolloutStore(fleet), list[ConcurrentRollout](), frozenset(nodes)
    try:
        open_runs = await store.open_runs()
    except BusDeniedError:
        return []  # these credentials do not permit reading rollouts
    for run in open_runs:
        if len(found) == MOST:
            break
        if run == besides:
            continue
        try:
            recorded, stored = await History(fleet).load(run), await store.require(run)
        except (RunError, ProtocolError):
            continue  # without both, no driver can continue it
        both = sorted(wanted & set(recorded.nodes))
        if both and not stored.state.phase.is_over:
            found.append(
                ConcurrentRollout(
                    record=recorded.record,
                    state=stored.state,
                    nodes=both,
                    is_in_progress=_is_in_progress(stored.state, fleet.clock.now()),
                )
            )
    return found


def name_few(nodes: list[str]) -> str:
    """Return the first names of a list of nodes, and the number of the others."""
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    return f"{', '.join(nodes[:NAMED])}{more}"


def _is_in_progress(state: RolloutState, now: datetime) -> bool:
    is_driven = state.lease is not None and state.lease.until > now
    return state.phase is not Phase.PAUSED and (is_driven or state.is_detached)


async def refuse_concurrent(fleet: Fleet, nodes: Collection[str], *, besides: str = "") -> None:
    """
    Check that no other rollout is in progress on these nodes.

    Raises:
        ConcurrentRolloutError: Another rollout is in progress.
    """
    for one in await find_concurrent_rollouts(fleet, nodes, besides=besides):
        if one.is_in_progress:
            record = one.record
            raise ConcurrentRolloutError(
                f"{name_few(one.nodes)}: another rollout, run {short_id(record.run)} ({record.action} {record.name} by "
                f"{record.requester}), is in progress on {'this node' if len(one.nodes) == 1 else 'these nodes'}; "
                "two rollouts do not keep each other's limits"
            )
