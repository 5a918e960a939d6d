"""
Send the request of a run and follow it to the end. The commands and the Python client use this module.

The caller passes two functions. One is called after the request has been sent, the other after each turn with the news.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ccm_agent.bus.access.permissions import operator_flag_for
from ccm_agent.bus.subjects import format_scope, request_subject
from ccm_agent.model.errors import BusDeniedError, BusUnavailableError, RunError
from ccm_agent.model.ids import short_id
from ccm_agent.model.records.rollout_records import Phase
from ccm_agent.model.wire import ManifestRequest
from ccm_ctl.fleet.assignments.staging import complete_stage
from ccm_ctl.fleet.rollout.driver import Driving, RolloutDriver
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.follow import Follower
from ccm_ctl.fleet.runs.history import History, restore_ends, run_on_record
from ccm_ctl.fleet.runs.joining import Joining, admit_none
from ccm_ctl.fleet.runs.returning import ReturningNodes
from ccm_ctl.fleet.runs.run import LIMIT_S, Run
from ccm_ctl.fleet.runs.run_request import (
    check_record,
    digest_record,
    put_on_record,
    send,
    send_again,
)
from ccm_ctl.fleet.runs.run_signatures import scopes_of_record
from ccm_ctl.fleet.trust.node_state import make_node_verifier

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from ccm_agent.bus.signatures.verified import Base
    from ccm_agent.model.records.rollout_records import RolloutState
    from ccm_agent.model.wire import Request
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.runs.history import Recorded
    from ccm_ctl.fleet.runs.node_run import News
    from ccm_ctl.fleet.runs.proof import RunProof
    from ccm_ctl.fleet.runs.run_request import Launch

    Begin = Callable[[], None]
    OnTurn = Callable[[list[News]], Awaitable[None]]

ROLLOUT_LIMIT_S = 30 * 86_400.0
"""The maximum time for which a rollout is driven. Its waves may wait for operators."""


def new_run(fleet: Fleet, launch: Launch, timeout_s: float | None = None) -> Run:
    """
    Return the state of a run that is about to start.

    Nodes that have not ended after `timeout_s` seconds are lost. The default is a day after the request's deadline.
    """
    limit_s = timeout_s or _limit_s(launch.request.deadline, fleet.clock.now())
    now, resolved = asyncio.get_running_loop().time(), launch.resolved
    return Run(launch.record.run, resolved.nodes, resolved.offline, now, asked=True, limit_s=limit_s)


async def follow_run(
    fleet: Fleet, launch: Launch, run: Run, proof: RunProof | None, *, on_begin: Begin, on_turn: OnTurn
) -> None:
    """
    Put a run on record, send its request, and follow it until every node has ended.

    Args:
        fleet: The bus.
        launch: The request and its nodes.
        run: Its state, from `new_run`.
        proof: Verifies the run's messages. None: the credentials cannot verify them.
        on_begin: Called once, when the request has been sent.
        on_turn: Called several times a second with the news.

    Raises:
        BusDeniedError: The broker does not allow this operator to send the request to these nodes. Nothing is recorded.
        BusError: The broker cannot be reached.
    """
    returning = ReturningNodes(fleet)

    async def begin() -> None:
        await put_on_record(fleet, launch)
        if sent := await History(fleet).recorded_at(run.run):
            returning.begin(sent, asyncio.get_running_loop().time())
        try:
            await send(fleet, launch)
        except BusDeniedError:
            await History(fleet).forget(run.run)
            raise
        except BusUnavailableError:
            # The connection broke during the send, so some nodes may have the request. It is sent again to nodes that do not
            # answer.
            run.away(asyncio.get_running_loop().time())
        on_begin()

    follower = Follower(
        fleet,
        run,
        ask=lambda named: send_again(fleet, launch, named),
        may_join=Joining(fleet, launch.record.targets, launch.record.where).may_join,
        on_turn=on_turn,
        proof=proof,
        returning=returning,
    )
    await follower.follow(begin)


async def record_rollout(fleet: Fleet, launch: Launch, state: RolloutState) -> int:
    """
    Record a rollout without sending anything, and return the revision of its state.

    Raises:
        BusDeniedError: These credentials may not start rollouts. Nothing is recorded.
    """
    await put_on_record(fleet, launch)
    state = replace(state, record_digest=digest_record(launch.record, launch.resolved.nodes))
    try:
        return await RolloutStore(fleet).write(state, 0, base=launch.base)
    except BusDeniedError as err:
        await History(fleet).forget(state.run)
        raise BusDeniedError(
            f"{err.message}; rollouts need credentials with --apply that were issued by this version"
        ) from err


async def check_own_rights(fleet: Fleet, launch: Launch) -> None:
    """
    Check that the operator may send the request to all nodes of a rollout, not only to those of the first waves.

    Raises:
        BusDeniedError: The signers list does not allow it.
    """
    verifier = await make_node_verifier(fleet)
    signer = verifier.own_signer if verifier is not None else None
    if signer is None:
        return
    protocol = launch.request.protocol
    for scope in launch.resolved.scopes:
        if not signer.may_request(protocol, scope):
            flag = operator_flag_for(request_subject(protocol, scope))
            raise BusDeniedError(
                f"{launch.record.name}: {fleet.operator} may not send this request to {format_scope(scope)}; it lacks the right "
                f"`{flag} {format_scope(scope)}`; see `ccmctl operator add --help`"
            )


def new_rollout(
    fleet: Fleet,
    recorded: Recorded,
    state: RolloutState,
    revision: int,
    request: Request,
    *,
    base: Sequence[Base],
    is_sent_to_scopes: bool = False,
) -> tuple[Run, RolloutDriver]:
    """
    Return the state of a recorded rollout's run, and a driver that continues it.

    Args:
        fleet: The bus.
        recorded: The run on record.
        state, revision: The rollout as stored, and its revision.
        request: The request that is sent to each node.
        base: The verified data or operator input from which the request was made.
        is_sent_to_scopes: Whether the request is sent only on the scopes of the record and lists the nodes by name. A record can
            also require this.

    Raises:
        RunError: The record is not the one with which the rollout was started, or lacks some of its nodes.
    """
    from ccm_ctl.fleet.keys.secret_rotation import rotation_steps

    check_record(state, recorded.record, recorded.nodes)
    if unknown := set(state.returned) - set(recorded.nodes):
        raise RunError(
            f"{short_id(state.run)}: its rollout contains {min(unknown)}, which is not in its record; "
            f"`ccmctl run abort {short_id(state.run)}` ends it"
        )
    record, order = recorded.record, recorded.nodes[: state.plan.total]
    planned, now = set(order[state.asked :]), asyncio.get_running_loop().time()
    run = run_on_record(recorded, now, asked=True, limit_s=ROLLOUT_LIMIT_S, planned=planned)
    returning = ReturningNodes(fleet)

    async def find_back(nodes: Sequence[str]) -> list[str]:
        return await returning.find(dict.fromkeys(nodes, 0.0))

    steps = rotation_steps(fleet, record)
    driving = Driving(
        fleet=fleet,
        store=RolloutStore(fleet),
        request=request,
        base=base,
        scopes=scopes_of_record(record),
        is_sent_to_scopes=is_sent_to_scopes or record.is_sent_to_scopes,
        order=order,
        find_back=find_back,
        complete=steps[1] if steps is not None else _completion(fleet, request, state),
        release=steps[0] if steps is not None else None,
    )
    return run, RolloutDriver(driving, run, state, revision)


async def follow_rollout(
    fleet: Fleet,
    recorded: Recorded,
    run: Run,
    driver: RolloutDriver,
    proof: RunProof | None,
    *,
    on_begin: Begin,
    on_turn: OnTurn,
) -> None:
    """
    Drive a rollout until it ends, or is paused with no node in progress. If cancelled, another driver can continue it.

    Args:
        fleet: The bus.
        recorded: The run on record.
        run, driver: From `new_rollout`.
        proof: Verifies the run's messages. None: the credentials cannot verify them.
        on_begin: Called once, before the first request.
        on_turn: Called several times a second with the news, and once more after the end.

    Raises:
        RunError: Another driver is driving the rollout.
    """
    has_started = bool(driver.state.asked)

    async def turn(news: list[News]) -> None:
        try:
            await driver.turn()
        except BusUnavailableError:
            # The connection broke during a step. After reconnecting, the driver reads the stored state first.
            run.away(asyncio.get_running_loop().time())
        await on_turn(news)

    follower = Follower(
        fleet,
        run,
        ask=driver.send_again,
        may_join=admit_none,
        on_turn=turn,
        proof=proof,
        is_ended=lambda: driver.is_waiting_for_operator and driver.state.by == "",
        goes_on=lambda: driver.state.phase in (Phase.RUNNING, Phase.BAKING),
    )

    async def begin() -> None:
        on_begin()
        if has_started:
            await follower.look()
            restore_ends(run, recorded, asyncio.get_running_loop().time())
        await driver.begin()

    try:
        await follower.follow(begin)
    finally:
        await asyncio.shield(driver.leave())
    await on_turn(run.updates())


def _completion(fleet: Fleet, request: Request, state: RolloutState) -> Callable[[], Awaitable[None]] | None:
    """Return the last step of an assignment's rollout, or None for other rollouts."""
    stage = request.stage if isinstance(request, ManifestRequest) else None
    if stage is None:
        return None

    async def complete() -> None:
        await complete_stage(fleet, stage, state.run)

    return complete


def _limit_s(deadline: datetime | None, now: datetime) -> float:
    """Return the default time limit of a run. Nodes may start until the deadline and then need time to finish."""
    return LIMIT_S + (max(0.0, (deadline - now).total_seconds()) if deadline else 0.0)
