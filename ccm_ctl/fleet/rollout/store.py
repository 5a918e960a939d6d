"""
The documents of rollouts, `=rollout.<run>` in CCM_RUNS.

One key holds the state, the lease of the driver and what operators ordered, and each write is a compare-and-set. So a driver
whose state is old cannot start a node: its write fails, and it reads the new state first. Operators with `--apply`
may write these keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ccm_agent.bus.subjects import ROLLOUTS
from ccm_agent.model.errors import ProtocolError, RevisionError, RunError
from ccm_agent.model.ids import is_id
from ccm_agent.model.rollout_records import RolloutState
from ccm_agent.model.untrusted_json import decode_foreign
from ccm_ctl.fleet.rollout.state import abort

if TYPE_CHECKING:
    from collections.abc import Callable

    from ccm_agent.model.ports import KeyValueEntry
    from ccm_ctl.fleet.ports import Fleet

_TRIES = 20

LONGEST_S = 10 * 366 * 86_400.0
"""No wait of a rollout is longer, in seconds. Operators with `--apply` write these documents, and a server reads them."""


class RolloutStore:
    """The rollouts that one operator can see."""

    def __init__(self, fleet: Fleet) -> None:
        self._bucket = fleet.runs
        self._clock = fleet.clock

    async def read(self, run: str) -> tuple[RolloutState, int] | None:
        """
        The state of a rollout and its revision; None: the run is not a rollout.

        Raises:
            ProtocolError: It cannot be read.
        """
        entry = await self._bucket.get(f"{ROLLOUTS}.{run}")
        return None if entry is None else (_decode(entry), entry.revision)

    async def need(self, run: str) -> tuple[RolloutState, int]:
        """
        As `read`.

        Raises:
            RunError: The run is not a rollout.
        """
        found = await self.read(run)
        if found is None:
            raise RunError(f"{run}: not a rollout; it was started without --batch, --canary or --rollout")
        return found

    async def write(self, state: RolloutState, revision: int) -> int:
        """
        Store a state in place of a revision (0: it is new), and return the new revision.

        Raises:
            RevisionError: It was written meanwhile.
            BusDeniedError: These credentials may not.
        """
        state = msgspec.structs.replace(state, time=self._clock.now())
        return await self._bucket.update(f"{ROLLOUTS}.{state.run}", msgspec.json.encode(state), revision)

    async def change(self, run: str, change: Callable[[RolloutState], RolloutState]) -> RolloutState:
        """
        Change a rollout, also while its driver writes, and return what was stored.

        Raises:
            RunError: The run is not a rollout, or `change` refuses.
        """
        for _ in range(_TRIES):
            state, revision = await self.need(run)
            changed = change(state)
            try:
                await self.write(changed, revision)
            except RevisionError:
                continue
            return changed
        raise RevisionError(f"{run}: another program writes its state all the time; try again")

    async def abort(self, run: str, by: str) -> None:
        """End a rollout, because its run is stopped; a run that is not an open rollout stays as it is."""
        found = await self.read(run)
        if found is not None and not found[0].phase.is_over:
            await self.change(run, lambda state: abort(state, by, "the run was stopped"))

    async def open_rollouts(self, left_out: list[str] | None = None) -> list[RolloutState]:
        """The rollouts that are not over, oldest first; the keys of those that cannot be read are added to `left_out`."""
        found = []
        for entry in await self._bucket.matching([f"{ROLLOUTS}.*"]):
            try:
                state = _decode(entry)
            except ProtocolError:
                if left_out is not None:
                    left_out.append(entry.key)
                continue
            if not state.phase.is_over:
                found.append(state)
        return sorted(found, key=lambda state: state.run)


def _decode(entry: KeyValueEntry) -> RolloutState:
    run = entry.key.removeprefix(f"{ROLLOUTS}.")
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
