"""
The documents of rollouts, `=rollout.<run>` in CCM_RUNS, and the orders of operators for them.

One key contains the state and the driver's lease, and each write is a compare-and-set. A driver with an old state therefore
cannot start a node: its write fails, and it must read the new state first. Operators with `--apply` may write these keys, so each
state is signed by its author, and `judge` decides which states are accepted. Each order is also stored under a key that only its
operator can write, so an order is not lost if an older state is restored. A program that stores a state with a new wave or phase
also stores a copy under such a key. `restore` uses these copies to recover a state that another operator replaced.
"""

from __future__ import annotations

import contextlib
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.layout import RUNS
from ccm_agent.bus.signatures.verified import Unverified, Verified
from ccm_agent.bus.subjects import ROLLOUTS, encode_token, key_subject
from ccm_agent.model.errors import ProtocolError, RevisionError, RunError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ids import is_id, short_id
from ccm_agent.model.records.rollout_records import GivenOrder, RolloutOrder, RolloutState
from ccm_ctl.fleet.rollout.judge import ORDER, RolloutJudge, hold, obey
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.run_signatures import read_verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ccm_agent.bus.signatures.verified import Base
    from ccm_agent.model.ports import KeyValueEntry
    from ccm_agent.model.wire import NodeState
    from ccm_ctl.fleet.ports import Fleet

_TRIES = 20

_COPY = "rollout"
"""The kind of the key for a copy of the state, `<operator>.<run>.rollout`."""

LONGEST_S = 10 * 366 * 86_400.0
"""The longest wait in a rollout, in seconds. The limit is checked because operators with `--apply` write the input of servers."""


class StoredRollout(Struct, frozen=True, kw_only=True):
    """
    A stored rollout.

    Attributes:
        judged: Its state, and whether its signature could be verified.
        revision: The revision of the state.
        orders: All orders for it, in the order in which they were stored, including those that are not accepted.
    """

    judged: Verified[RolloutState] | Unverified[RolloutState]
    revision: int
    orders: list[GivenOrder]

    @property
    def state(self) -> RolloutState:
        """The state as operators see it, with accepted orders applied. If it is unverified: paused, and only halts apply."""
        return self.obeyed([], {})

    def obeyed(self, sequence: Sequence[str], ends: Mapping[str, NodeState]) -> RolloutState:
        """Return the state as `state` does, but a resume no longer counts the failures in `ends`. See `judge.obey`."""
        state = self.judged.value
        if isinstance(self.judged, Unverified):
            halts = [one for one in self.orders if one.order.order.is_halt]
            return obey(hold(state, self.judged.reason), halts, [], {})
        return obey(state, self.orders, sequence, ends)


class RolloutStore:
    """The rollouts that one operator can see."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._bucket = fleet.runs
        self._clock = fleet.clock
        self._kept: dict[str, tuple[object, ...]] = {}

    async def look(self, run: str) -> StoredRollout | None:
        """
        Return a rollout and its orders. None: the run is not a rollout.

        Raises:
            ProtocolError: The rollout cannot be read.
        """
        entry = await self._bucket.get(f"{ROLLOUTS}.{run}")
        return None if entry is None else (await self._judge([entry], run))[entry.key]

    async def read(self, run: str) -> tuple[RolloutState, int] | None:
        """
        Return the state of a rollout and its revision. None: the run is not a rollout. See `StoredRollout.state`.

        Raises:
            ProtocolError: The rollout cannot be read.
        """
        found = await self.look(run)
        return None if found is None else (found.state, found.revision)

    async def need(self, run: str) -> tuple[RolloutState, int]:
        """
        Read a run that must be a rollout. See `read`.

        Raises:
            RunError: The run is not a rollout.
        """
        found = await self.require(run)
        return found.state, found.revision

    async def require(self, run: str) -> StoredRollout:
        """
        Return a rollout and its orders for a run that must be a rollout. See `look`.

        Raises:
            RunError: The run is not a rollout.
        """
        found = await self.look(run)
        if found is None:
            raise RunError(
                f"{short_id(run)}: not a rollout; it was started without --batch, --canary or --rollout"
            )
        return found

    async def write(self, state: RolloutState, revision: int, *, base: Sequence[Base]) -> int:
        """
        Sign a state, store it in place of a revision (0: it is new), and return the new revision.

        Args:
            state: The state.
            revision: The revision that it replaces.
            base: The verified data or operator input from which it was made.

        Raises:
            RevisionError: The key has been written in the meantime.
            BusDeniedError: These credentials do not permit it.
        """
        state = msgspec.structs.replace(state, time=self._clock.now(), serial=state.serial + 1)
        key, body = f"{ROLLOUTS}.{state.run}", msgspec.json.encode(state)
        signatory = self._fleet.signatory
        if signatory is None:
            return await self._bucket.update(key, body, revision)
        signature = signatory.record(key_subject(RUNS, key), body, base)
        revision = await self._bucket.update(key, body, revision, signature=signature)
        await self._keep(state, body, base)
        return revision

    async def _keep(self, state: RolloutState, body: bytes, base: Sequence[Base]) -> None:
        """Keep a copy under this operator's key if the wave or phase differs from the last copy."""
        mark = (state.phase, state.wave, state.is_promoted, state.halts, state.is_completing)
        signatory = self._fleet.signatory
        if signatory is None or self._kept.get(state.run) == mark:
            return
        key = f"{encode_token(self._fleet.operator)}.{state.run}.{_COPY}"
        signature = signatory.record(key_subject(RUNS, key), body, base)
        with contextlib.suppress(RevisionError):  # another program of this operator has stored a copy
            before = await self._bucket.get(key)
            await self._bucket.update(key, body, before.revision if before else 0, signature=signature)
        self._kept[state.run] = mark

    async def copies(self, run: str) -> list[Verified[RolloutState]]:
        """Return the copies of a rollout's state from operators who may drive it."""
        entries = await self._bucket.matching([f"*.{run}.{_COPY}"])
        record = (await History(self._fleet).requests(run)).get(run)
        judge, found = RolloutJudge(await read_verifier(self._fleet), record), []
        for entry in entries:
            try:
                judged = judge.state(entry, _decode(entry, run))
            except ProtocolError:
                continue
            if isinstance(judged, Verified) and judged.signer:
                found.append(judged)
        return found

    async def change(
        self,
        run: str,
        change: Callable[[RolloutState], RolloutState],
        *,
        base: Sequence[Base],
        sequence: Sequence[str] = (),
        ends: Mapping[str, NodeState] = MappingProxyType({}),
    ) -> RolloutState:
        """
        Change a rollout, even while its driver writes to it, and return the stored state.

        Args:
            run: The run.
            change: Returns the new state for the given old state.
            base: The verified data or operator input from which the change was made.
            sequence, ends: The nodes of all waves in the plan's order, and the state of each in the run. See `judge.obey`.

        Raises:
            RunError: The run is not a rollout, its state is unverified, or `change` refuses.
        """
        for _ in range(_TRIES):
            found = await self.require(run)
            changed = change(found.obeyed(sequence, ends))
            try:
                await self.write(changed, found.revision, base=[*base, require_verified(found)])
            except RevisionError:
                continue
            return changed
        raise RevisionError(f"{short_id(run)}: another program keeps writing its state; try again")

    async def put_order(self, order: RolloutOrder, *, base: Sequence[Base]) -> int:
        """
        Sign an order, store it under this operator's keys, and return its number.

        Raises:
            RevisionError: Another program of this operator keeps writing orders.
        """
        signatory, token = self._fleet.signatory, encode_token(self._fleet.operator)
        assert signatory is not None
        body = msgspec.json.encode(order)
        for _ in range(_TRIES):
            known = await self._bucket.matching([f"{token}.{order.run}.{ORDER}.*"])
            numbers = (one.key.rpartition(".")[2] for one in known)
            number = 1 + max((int(text) for text in numbers if text.isascii() and text.isdigit()), default=0)
            key = f"{token}.{order.run}.{ORDER}.{number}"
            try:
                await self._bucket.store_signed(
                    key, body, 0, signatory.order(key_subject(RUNS, key), body, base)
                )
            except RevisionError:
                continue
            return number
        raise RevisionError(f"{short_id(order.run)}: other orders keep arriving; try again")

    async def open_rollouts(self, left_out: list[str] | None = None) -> list[RolloutState]:
        """Return the rollouts that have not ended, oldest first. Keys of unreadable rollouts are added to `left_out`."""
        return [one.state for one in await self.open_stored(left_out)]

    async def open_runs(self) -> list[str]:
        """
        Return the runs whose stored rollout has not ended, newest first, with one request to the broker.

        Signatures are not verified, and orders are not read. `look` does both.
        """
        found = []
        for entry in await self._bucket.matching([f"{ROLLOUTS}.*"]):
            try:
                state = _decode(entry)
            except ProtocolError:
                continue
            if not state.phase.is_over:
                found.append(state.run)
        return sorted(found, reverse=True)

    async def open_stored(self, left_out: list[str] | None = None) -> list[StoredRollout]:
        """Return the same rollouts as `open_rollouts`, each with its verification and orders."""
        entries = await self._bucket.matching([f"{ROLLOUTS}.*"])
        found = (await self._judge(entries, "*", left_out if left_out is not None else [])).values()
        return sorted((one for one in found if not one.state.phase.is_over), key=lambda one: one.state.run)

    async def _judge(
        self, entries: Sequence[KeyValueEntry], run: str, left_out: list[str] | None = None
    ) -> dict[str, StoredRollout]:
        """
        Judge states and the orders for them, by key.

        Args:
            entries: The states.
            run: The run to which all entries belong, or `*`.
            left_out: Unreadable states are added to it by key. None: an unreadable state is an error.
        """
        states = {}
        for entry in entries:
            try:
                states[entry.key] = _decode(entry)
            except ProtocolError:
                if left_out is None:
                    raise
                left_out.append(entry.key)
        is_signed = self._fleet.trust is not None and bool(states)
        orders: dict[str, list[KeyValueEntry]] = {}
        if is_signed:
            for one in await self._bucket.matching([f"*.{run}.{ORDER}.*"]):
                orders.setdefault(one.key.split(".")[1], []).append(one)
        records = await History(self._fleet).requests(run) if is_signed else {}
        verifier, found = await read_verifier(self._fleet), {}
        for entry in entries:
            if entry.key in states:
                state = states[entry.key]
                judge = RolloutJudge(verifier, records.get(state.run))
                found[entry.key] = StoredRollout(
                    judged=judge.state(entry, state),
                    revision=entry.revision,
                    orders=judge.orders(orders.get(state.run, [])),
                )
        return found


def require_verified(found: StoredRollout) -> Verified[RolloutState]:
    """
    Return the state of a rollout if it is verified, so that a new state can be based on it.

    Raises:
        RunError: The state is unverified.
    """
    judged = found.judged
    if isinstance(judged, Unverified):
        run = judged.value.run
        raise RunError(
            f"{short_id(run)}: its state is unverified: {judged.reason}; "
            f"restore it with `ccmctl run resume {short_id(run)}`, or end it with `ccmctl run abort {short_id(run)}`"
        )
    return judged


def _decode(entry: KeyValueEntry, run: str = "") -> RolloutState:
    run = run or entry.key.removeprefix(f"{ROLLOUTS}.")
    try:
        state = decode_foreign(entry.value, RolloutState)
    except msgspec.MsgspecError as err:
        raise ProtocolError(f"{entry.key}: not the state of a rollout: {err}; remove the key") from err
    if not is_id(run) or state.run != run:
        raise ProtocolError(f"{entry.key}: the state of another rollout; remove the key")
    if not all(0 <= seconds <= LONGEST_S for seconds in _durations(state)):
        raise ProtocolError(f"{entry.key}: a rollout with a time that is out of range; remove the key")
    if not state.plan.waves or any(wave.nodes < 1 or wave.slots < 1 for wave in state.plan.waves):
        raise ProtocolError(f"{entry.key}: a rollout without waves; remove the key")
    return state


def _durations(state: RolloutState) -> list[float]:
    return [state.deadline_s, state.plan.splay_s, *(wave.bake_s for wave in state.plan.waves)]
