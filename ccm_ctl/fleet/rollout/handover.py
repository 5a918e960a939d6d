"""
The handover of a rollout to the rollout servers, signed by an operator (ADR 58).

A server sends requests with its own credentials, which reach more nodes than those of most operators. Therefore an operator signs
the parts of a handover: the record with its request and nodes, and the waves. A server drives a rollout only if that operator may
send its request, and only to nodes to which that operator may send it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from ccm_agent.bus.layout import RUNS
from ccm_agent.bus.signatures.signing import SignatureError, SignatureKind
from ccm_agent.bus.signatures.trust import EVERYWHERE, Signer, SignersList
from ccm_agent.bus.signatures.verified import Base, Unverified, Verified
from ccm_agent.bus.subjects import ROLLOUTS, encode_token, key_subject
from ccm_agent.model.errors import ProtocolError, RunError, UsageError
from ccm_agent.model.ids import short_id
from ccm_agent.model.records.rollout_records import RolloutState
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.wire import RUN_STOP, Request
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.history import History, Recorded
from ccm_ctl.fleet.runs.run_request import check_record, digest_record
from ccm_ctl.fleet.runs.run_signatures import refuse_request, scopes_of_record
from ccm_ctl.fleet.trust.verified_reader import open_reader

VALID_MS = 30 * 86_400_000
"""The time after its start, in milliseconds, within which servers can drive a rollout."""

IDLE = timedelta(days=1)
"""The longest time that a rollout may be without a driver. For this time, nodes remember that they have executed its request."""

_SIGNED_ACTIONS = {"exec": "run commands", "assign": "write assignments", "rotate": "rotate secrets"}
"""
Actions that a server executes only for a rollout signed by an operator. The right to write rollouts does not include them.
"""


def check_can_hand_over(fleet: Fleet, action: str) -> None:
    """
    Check that a server would drive a rollout with this action for this operator.

    Raises:
        UsageError: A server would not drive it, because the fleet does not use signatures.
    """
    what = _SIGNED_ACTIONS.get(action)
    if what is not None and (fleet.trust is None or fleet.signatory is None):
        raise UsageError(
            f"rollout servers {what} only for operators who sign, but this fleet does not use signatures; "
            "drive it from a terminal, without --detach"
        )


def hand_over(
    fleet: Fleet, state: RolloutState, record: RunRecord, nodes: Sequence[str], *, base: Sequence[Base]
) -> RolloutState:
    """
    Return the rollout in the form that servers drive, signed by this operator.

    Args:
        fleet: The bus.
        state: The rollout.
        record, nodes: The record of its run, and its nodes.
        base: The verified data or operator input from which they were made.

    Raises:
        UsageError: Servers would not drive it.
        RunError: The record is not the one with which the rollout was started.
    """
    check_can_hand_over(fleet, record.action)
    check_record(state, record, nodes)
    state = replace(state, is_detached=True, record_digest=digest_record(record, nodes), signature="")
    if fleet.signatory is None:
        return state
    begins = max(fleet.clock.now(), state.start_at or fleet.clock.now())
    signature = fleet.signatory.rollout(
        _subject(state), _signed_body(state), base, expires_ms=int(begins.timestamp() * 1000) + VALID_MS
    )
    return replace(state, signature=signature)


async def check_handover(fleet: Fleet, state: RolloutState, recorded: Recorded, request: Request) -> bool:
    """
    Check that the operator who handed over a rollout may send its request.

    Returns:
        Whether the request may be sent to each node separately. False: it may be sent only to the scopes of the record.

    Raises:
        SignatureError: It is not signed by an operator with this right.
        RunError: It was stopped, has ended, or was without a driver for too long.
        ProtocolError: It runs a command or writes an assignment, and the fleet does not use signatures.
    """
    record = recorded.record
    what = _SIGNED_ACTIONS.get(record.action)
    if fleet.trust is None:
        if what is not None:
            raise ProtocolError(f"rollout servers do not {what} in a fleet without signatures")
        return True
    verifier = (await open_reader(fleet)).verifier
    judged = verifier.read(
        state,
        SignatureKind.ROLLOUT,
        _subject(state),
        _signed_body(state),
        state.signature,
        lambda signer, _: _lacking_right(signer, record, fleet.operator),
    )
    signer = verifier.signer_of(judged) if isinstance(judged, Verified) else None
    if isinstance(judged, Unverified) or (what is not None and signer is None):
        reason = judged.reason or "no operator in the signers list signed it"
        raise SignatureError(
            f"{_subject(state)}: {reason}; `ccmctl run resume {short_id(state.run)} --detach` hands it over again"
        )
    await _check_open(fleet, verifier.signers, record)
    _check_recent(state, record, datetime.fromtimestamp(judged.issued_ms / 1000, UTC), fleet.clock.now())
    return signer is None or signer.may_request(request.protocol, EVERYWHERE)


def _lacking_right(signer: Signer, record: RunRecord, server: str) -> str:
    """Return why a server may not send the request of a record for an operator. "": the server may send it."""
    reason = refuse_request(signer, record, server)
    return f"{signer.name} handed it over, but {reason}" if reason else ""


async def _check_open(fleet: Fleet, signers: SignersList | None, record: RunRecord) -> None:
    """
    Check that no operator who may stop the run has stopped it, and that it has not ended.

    The rollout's own document does not prove this. Operators who may write it could open it again, and agents remember runs
    only for a day. The other records do prove it, because only one operator can write each of them.

    Raises:
        RunError: The run was stopped, or has ended.
    """
    listed = {encode_token(one.name): one for one in signers.signers} if signers is not None else {}
    for token in await History(fleet).ended_by(record.run):
        ender = listed.get(token)
        if ender is None:
            continue
        may_stop = all(ender.may_request(RUN_STOP, scope) for scope in scopes_of_record(record))
        if may_stop or ender.name == fleet.operator:
            raise RunError(
                f"{short_id(record.run)}: {ender.name} has stopped it or recorded its end; start a new rollout"
            )


def _check_recent(state: RolloutState, record: RunRecord, handed: datetime, now: datetime) -> None:
    """
    Check that the rollout was not without a driver for longer than nodes remember its request.

    A broker can restore an earlier state of the rollout. After that time, its nodes would execute the request again.

    Raises:
        RunError: It was without a driver for too long.
    """
    last = max(one for one in (handed, record.time, state.time, state.start_at) if one is not None)
    if now - last > IDLE:
        raise RunError(
            f"{short_id(state.run)}: no process has driven it for more than a day, so this may be an earlier state; "
            f"if it has not ended, `ccmctl run resume {short_id(state.run)} --detach` hands it over again"
        )


def handed_part(state: RolloutState) -> RolloutState:
    """Return a rollout as it was handed over, before a driver changed it. The signature covers this part."""
    return RolloutState(
        run=state.run,
        plan=state.plan,
        start_at=state.start_at,
        deadline_s=state.deadline_s,
        record_digest=state.record_digest,
        is_detached=True,
        signature=state.signature,
    )


def _subject(state: RolloutState) -> str:
    return key_subject(RUNS, f"{ROLLOUTS}.{state.run}")


def _signed_body(state: RolloutState) -> bytes:
    """Return the bytes to sign, which do not change while the rollout is driven."""
    return msgspec.json.encode(
        [state.run, state.record_digest, state.plan, state.start_at, state.deadline_s], order="sorted"
    )
