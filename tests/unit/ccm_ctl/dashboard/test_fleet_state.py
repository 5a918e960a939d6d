"""The rows of the fleet, and what changed in them."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.dashboard.fleet_state import FleetState
from ccm_ctl.fleet.nodes.discovery import TargetSpec
from tests.support.controller import NOW, FakeNode, StillClock, fleet_on


class LaterClock(StillClock):
    """A clock that stands still, a second later."""

    def now(self) -> datetime:
        """See `Clock.now`."""
        return NOW + timedelta(seconds=1)


async def test_a_version_of_an_earlier_start_is_answered_with_all_rows() -> None:
    broker = MemoryBroker(now=lambda: NOW)
    await FakeNode("web1", {"role": "web"}).begin(broker)
    fleet = fleet_on(MemoryBus(broker, "op"))
    before = FleetState(fleet, lambda: None)
    await before.refresh()
    known = (await before.changes(0, TargetSpec()))["version"]
    restarted = FleetState(replace(fleet, clock=LaterClock()), lambda: None)
    await restarted.refresh()

    same = await before.changes(known, TargetSpec())
    again = await restarted.changes(known, TargetSpec())

    assert (len(same["rows"]), same["since"]) == (0, known)
    assert (len(again["rows"]), again["since"]) == (1, 0)
    assert again["version"] > known
