"""Read the states of the rollouts that deploy the next revisions of assignments, and wait for these rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from msgspec import Struct

from ccm_agent.model.ids import is_id
from ccm_agent.model.records.rollout_records import Phase, RolloutState
from ccm_ctl.fleet.assignments.assignments import Standing
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import History, UnknownRunError

LOOK_S = 1.0
"""The interval, in seconds, at which a waiting command reads the state of a rollout."""


class BringingRollout(Struct, frozen=True, kw_only=True):
    """
    The rollout that deploys the next revision of an assignment.

    Attributes:
        run: Its run.
        state: Its state. None: it is not recorded.
        nodes: The number of its nodes. 0: it is not recorded.
    """

    run: str
    state: RolloutState | None
    nodes: int = 0

    @property
    def is_open(self) -> bool:
        """Whether it is in progress or paused. The next revision may then still reach more nodes."""
        return self.state is not None and self.state.phase is not Phase.ABORTED

    @property
    def is_paused(self) -> bool:
        """Whether it waits for an operator."""
        return self.state is not None and self.state.phase is Phase.PAUSED


async def read_bringing(fleet: Fleet, standings: Iterable[Standing]) -> dict[str, BringingRollout]:
    """Return the rollouts of the next revisions of assignments, by the key of the assignment."""
    found = {}
    for standing in standings:
        following = standing.following
        if following is None:
            continue
        run = following.assignment.rollout
        stored = await RolloutStore(fleet).read(run) if is_id(run) else None
        try:
            nodes = (await History(fleet).load(run)).record.nodes if stored is not None else 0
        except UnknownRunError:
            nodes = 0
        found[standing.key] = BringingRollout(run=run, state=stored[0] if stored else None, nodes=nodes)
    return found


async def wait_bringing(
    fleet: Fleet,
    bringing: Iterable[BringingRollout],
    seconds: float,
    on_look: Callable[[RolloutState], None],
) -> float:
    """
    Wait until each rollout has ended or is paused.

    Args:
        fleet: The bus.
        bringing: The rollouts.
        seconds: The maximum time to wait.
        on_look: Called with the state of each rollout after each read.

    Returns:
        The remaining seconds.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    for one in bringing:
        while one.is_open:
            stored = await RolloutStore(fleet).read(one.run)
            if stored is None:
                break
            on_look(stored[0])
            left_s = deadline - loop.time()
            if stored[0].phase.is_over or stored[0].phase is Phase.PAUSED or left_s <= 0:
                break
            await asyncio.sleep(min(LOOK_S, left_s))
    return max(deadline - loop.time(), 0.0)
