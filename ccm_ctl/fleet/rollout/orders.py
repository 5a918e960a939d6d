"""
Orders for rollouts: pause, resume, promote and abort, by an operator with the right to give them.

The order is signed and stored under the operator's own keys. An operator who may drive the rollout also stores the resulting
state, on the condition that no driver has stored another state. No node starts after an abort was accepted, even if the driver is
an older version that does not read orders. If the operator may only stop the run, the current or next driver stores the state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ccm_agent.bus.signatures.trust import Signer
from ccm_agent.bus.signatures.verified import Authored, Base, Unverified, Verified
from ccm_agent.bus.subjects import encode_token
from ccm_agent.model.errors import RunError
from ccm_agent.model.ids import short_id
from ccm_agent.model.records.rollout_records import OrderKind, Phase, RolloutOrder, RolloutState
from ccm_agent.model.wire import NodeState
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.driver import READ_S
from ccm_ctl.fleet.rollout.handover import hand_over
from ccm_ctl.fleet.rollout.judge import RolloutJudge, apply_order, contain, name_author
from ccm_ctl.fleet.rollout.lease import check_lease
from ccm_ctl.fleet.rollout.restore import restore
from ccm_ctl.fleet.rollout.store import RolloutStore, StoredRollout
from ccm_ctl.fleet.runs.history import Recorded
from ccm_ctl.fleet.runs.run_again import find_author
from ccm_ctl.fleet.runs.run_signatures import read_verifier

OBEYED_WITHIN_S = 10 * READ_S
"""The time limit, in seconds, for a driver to apply an order, if the operator cannot store the state."""

ABORTED_WITH_RUN = "the run was stopped"


class Orders:
    """The orders of one operator for one rollout."""

    def __init__(self, fleet: Fleet, recorded: Recorded, ends: Mapping[str, NodeState] | None = None) -> None:
        """
        Store the fleet and the run.

        Args:
            fleet: The bus.
            recorded: The rollout's run.
            ends: The ends of its nodes so far, which a resume and a promotion require.
        """
        self._fleet = fleet
        self._recorded = recorded
        self._ends = ends or {}
        self._store = RolloutStore(fleet)

    async def give(
        self,
        kind: OrderKind,
        *,
        why: str = "",
        user: str = "",
        detaches: Callable[[RolloutState], bool] = lambda _: False,
    ) -> RolloutState:
        """
        Give an order, and return the new state.

        Args:
            kind: The kind of order.
            why: The reason.
            user: The dashboard user who gives the order.
            detaches: Returns whether the state is handed over to the rollout servers.

        Raises:
            RunError: The run is not a rollout, the operator may not give this order, or it is not possible now. Nothing was
                changed.
        """
        run = self._recorded.record.run
        may_drive = await self._check_right(kind)
        found = await self._store.look(run)
        if not kind.is_halt and may_drive and self._is_spoiled(found):
            await find_author(self._fleet, self._recorded)
            await restore(self._store, self._recorded, self._ends)
        found = await self._store.require(run)
        seen, now = found.state, self._fleet.clock.now()
        order = RolloutOrder(
            run=run, order=kind, wave=seen.wave, why=why, user=user, time=now, halts=seen.halts
        )
        if not kind.is_halt:
            await find_author(self._fleet, self._recorded)
        self._change(found.state, order, detaches)
        is_signed = self._fleet.signatory is not None and self._fleet.trust is not None
        number = await self._store.put_order(order, base=[Authored.from_arguments()]) if is_signed else 0
        if not may_drive or isinstance(found.judged, Unverified):
            return await self._wait(number)
        token = encode_token(self._fleet.operator)

        def change(state: RolloutState) -> RolloutState:
            if number and state.orders.get(token, 0) >= number:
                # the driver was faster, or the order is applied on reading
                return self._handed(state, detaches)
            changed = self._change(state, order, detaches)
            return contain(changed, token, number) if number else changed

        sequence = self._recorded.nodes[: found.state.plan.total]
        return await self._store.change(run, change, base=self._base(), sequence=sequence, ends=self._ends)

    def _is_spoiled(self, found: StoredRollout | None) -> bool:
        """Whether the state of a rollout was removed or replaced by one that no driver accepts."""
        if self._fleet.signatory is None:
            return False
        return isinstance(found.judged, Unverified) if found is not None else self._recorded.is_on_record

    def _change(
        self, state: RolloutState, order: RolloutOrder, detaches: Callable[[RolloutState], bool]
    ) -> RolloutState:
        if order.order is OrderKind.RESUME and state.phase is not Phase.PAUSED:
            check_lease(state, self._fleet.clock.now())
        sequence = self._recorded.nodes[: state.plan.total]
        by = name_author(self._fleet.operator, order.user)
        return self._handed(apply_order(state, order, by, sequence, self._ends), detaches)

    def _handed(self, state: RolloutState, detaches: Callable[[RolloutState], bool]) -> RolloutState:
        if state.phase.is_over or not detaches(state):
            return state
        recorded = self._recorded
        return hand_over(self._fleet, state, recorded.record, recorded.nodes, base=self._base())

    def _base(self) -> list[Base]:
        """Return the base of the signature: this operator's input and the record."""
        judged = self._recorded.judged
        return [judged] if isinstance(judged, Verified) else [Authored.from_arguments()]

    async def _check_right(self, kind: OrderKind) -> bool:
        """
        Check that this operator may give the order. Returns whether the operator may also drive the rollout.

        Raises:
            RunError: The operator may not give it.
        """
        signer, judge = await self._self(), await self._judge()
        if signer is None:
            return True
        if reason := judge.refuse_order(signer, kind):
            raise RunError(
                f"{short_id(self._recorded.record.run)}: {signer.name} {reason}, so {signer.name} cannot {kind} this rollout; "
                "nothing has changed"
            )
        return not judge.refuse_driver(signer)

    async def _self(self) -> Signer | None:
        """Return this operator's entry in the signers list, or None in unsigned operation."""
        verifier, signatory = await read_verifier(self._fleet), self._fleet.signatory
        signers = verifier.signers.signers if verifier.signers is not None else ()
        key = signatory.public_key if signatory is not None else ""
        found = next((one for one in signers if one.key == key), None)
        if found is None and not verifier.accepts_unsigned:
            raise RunError(
                f"{self._fleet.operator} is not in the signers list, so drivers ignore the order; nothing has changed"
            )
        return found

    async def _judge(self) -> RolloutJudge:
        is_sound = not isinstance(self._recorded.judged, Unverified)
        return RolloutJudge(await read_verifier(self._fleet), self._recorded.record if is_sound else None)

    async def _wait(self, number: int) -> RolloutState:
        """Wait until the driver, if there is one, has applied an order. Returns the state as operators see it."""
        run, token = self._recorded.record.run, encode_token(self._fleet.operator)
        clock = self._fleet.clock
        deadline = clock.monotonic() + OBEYED_WITHIN_S
        while True:
            found = await self._store.require(run)
            if _is_taken_up(found, token, number) or clock.monotonic() > deadline:
                return found.state
            lease = found.judged.value.lease
            if lease is None or lease.until <= clock.now():
                return found.state
            await asyncio.sleep(READ_S / 4)


def _is_taken_up(found: StoredRollout, token: str, number: int) -> bool:
    return found.judged.value.orders.get(token, 0) >= number


async def abort_with_run(fleet: Fleet, recorded: Recorded, why: str = ABORTED_WITH_RUN) -> None:
    """Abort a rollout because its run is stopped. Does nothing if the run is not an open rollout."""
    found = await RolloutStore(fleet).look(recorded.record.run)
    if found is not None and not found.state.phase.is_over:
        await Orders(fleet, recorded).give(OrderKind.ABORT, why=why)
