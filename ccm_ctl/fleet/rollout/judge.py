"""
Decide which states and orders of a rollout are valid.

Every operator with `--apply` can write the state of every rollout. A state is therefore valid only if its signer may send the
rollout's request to all of its scopes. The same right is required of the author of an order. For a pause or an abort, the right
to stop the run is sufficient. Invalid states and orders have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ccm_agent.bus.layout import RUNS
from ccm_agent.bus.signatures.signing import SignatureKind
from ccm_agent.bus.signatures.trust import Signer
from ccm_agent.bus.signatures.verified import Unverified, Verified, Verifier
from ccm_agent.bus.subjects import decode_token, encode_token, key_subject
from ccm_agent.model.errors import ProtocolError, RunError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records.rollout_records import GivenOrder, OrderKind, Phase, RolloutOrder, RolloutState
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.wire import RUN_STOP, NodeState
from ccm_ctl.fleet.rollout.state import abort, pause, promote, resume
from ccm_ctl.fleet.runs.run_signatures import refuse_protocol, refuse_request

ORDER = "order"
"""The kind of an order's key."""

KEPT = 64
"""The maximum number of skipped orders that are recorded for each operator."""


class RolloutJudge:
    """Judges the stored states and orders of one rollout."""

    def __init__(self, verifier: Verifier, record: RunRecord | None) -> None:
        """
        Store the verifier and the record.

        Args:
            verifier: The verifier, which has the newest signers list.
            record: The record of its run. None: there is no record, so nothing signed is valid.
        """
        self._verifier = verifier
        self._record = record

    def refuse_driver(self, signer: Signer) -> str:
        """Return why an operator may not drive the rollout. "": the operator may drive it."""
        return "has no record" if self._record is None else refuse_request(signer, self._record)

    def refuse_order(self, signer: Signer, kind: OrderKind) -> str:
        """Return why an operator may not give this kind of order. "": the operator may give it."""
        if self._record is None:
            return "has no record"
        reason = refuse_request(signer, self._record)
        may_stop = kind.is_halt and not refuse_protocol(signer, self._record, RUN_STOP)
        return "" if may_stop else reason

    def state(
        self, entry: KeyValueEntry, state: RolloutState
    ) -> Verified[RolloutState] | Unverified[RolloutState]:
        """Judge a state."""

        def refusal(signer: Signer, _claims: Any) -> str:
            reason = self.refuse_driver(signer)
            return f"{signer.name} signed it, but {reason}" if reason else ""

        subject = key_subject(RUNS, entry.key)
        return self._verifier.read(
            state, SignatureKind.RECORD, subject, entry.value, entry.signature, refusal
        )

    def orders(self, entries: Iterable[KeyValueEntry]) -> list[GivenOrder]:
        """Judge orders in the sequence in which they were stored. Unreadable orders are left out."""
        found = (self._order(entry) for entry in sorted(entries, key=lambda one: one.revision))
        return [order for order in found if order is not None]

    def _order(self, entry: KeyValueEntry) -> GivenOrder | None:
        token, run, _, number = entry.key.split(".")
        try:
            order = decode_foreign(entry.value, RolloutOrder)
            name = decode_token(token) or token
        except (msgspec.MsgspecError, ProtocolError):
            return None
        if order.run != run or not (number.isascii() and number.isdigit() and len(number) < 10):
            return None

        def refusal(signer: Signer, _claims: Any) -> str:
            if encode_token(signer.name) != token:
                return f"{signer.name} signed it, under the key of another operator"
            reason = self.refuse_order(signer, order.order)
            return f"{signer.name} {reason}" if reason else ""

        subject = key_subject(RUNS, entry.key)
        judged = self._verifier.read(
            order, SignatureKind.ORDER, subject, entry.value, entry.signature, refusal
        )
        by = name_author(name, order.user)
        return GivenOrder(token=token, number=int(number), order=order, by=by, reason=judged.reason)


def name_author(operator: str, user: str) -> str:
    """Return the author of an order: the operator, or a user of the operator's dashboard."""
    if user == operator:
        return f"{operator} (dashboard)"
    return f"{user} (dashboard of {operator})" if user else operator


def hold(state: RolloutState, reason: str) -> RolloutState:
    """Return an unverified state in the form that operators see: paused, because no driver accepts it."""
    return replace(
        state,
        phase=Phase.PAUSED,
        by="",
        reason=f"its state is unverified: {reason}; `ccmctl run resume` restores it, `ccmctl run abort` ends it",
        bake_until=None,
        lease=None,
        is_detached=False,
    )


def obey(
    state: RolloutState,
    orders: Sequence[GivenOrder],
    sequence: Sequence[str],
    ends: Mapping[str, NodeState],
) -> RolloutState:
    """
    Return the state after applying the valid orders that it does not contain yet.

    Args:
        state: The state.
        orders: All orders, as they were stored.
        sequence: The nodes of all waves, in the plan's order.
        ends: The state of each node in the run.
    """
    for one in orders:
        if one.reason or _is_contained(state, one):
            continue
        state = contain(state, one.token, one.number)
        if one.order.order.is_halt or not _is_outdated(state, one.order):
            try:
                state = apply_order(state, one.order, one.by, sequence, ends)
            except RunError:
                continue  # the rollout has ended or is completing
    return state


def _is_contained(state: RolloutState, given: GivenOrder) -> bool:
    """Whether an order was applied or skipped before. A broker can deliver a halt after a later order of the same operator."""
    if given.number > state.orders.get(given.token, 0):
        return False
    return not (given.order.order.is_halt and given.number in state.missing.get(given.token, ()))


def _is_outdated(state: RolloutState, order: RolloutOrder) -> bool:
    """Whether a resume or a promotion was given for an earlier wave, or before a halt that the state contains."""
    return order.wave != state.wave or (order.halts is not None and order.halts < state.halts)


def contain(state: RolloutState, token: str, number: int) -> RolloutState:
    """Return the state with an operator's order marked as processed."""
    last = state.orders.get(token, 0)
    left_out = range(max(last + 1, number - KEPT), number)
    missing = [one for one in (*state.missing.get(token, ()), *left_out) if one != number][-KEPT:]
    others = {key: numbers for key, numbers in state.missing.items() if key != token}
    return replace(
        state,
        orders={**state.orders, token: max(last, number)},
        missing=others | ({token: tuple(missing)} if missing else {}),
    )


def apply_order(
    state: RolloutState,
    order: RolloutOrder,
    by: str,
    sequence: Sequence[str],
    ends: Mapping[str, NodeState],
) -> RolloutState:
    """
    Return the state after an order.

    Raises:
        RunError: The rollout has ended, or can no longer be aborted.
    """
    if order.order is OrderKind.PAUSE:
        return replace(pause(state, by, order.why), halts=state.halts + 1)
    if order.order is OrderKind.ABORT:
        is_aborted = state.phase is Phase.ABORTED
        return state if is_aborted else replace(abort(state, by, order.why), halts=state.halts + 1)
    go_on = promote if order.order is OrderKind.PROMOTE else resume
    return go_on(state, sequence, ends, by)
