"""Read the fleet repeatedly for the terminal view. All stored data are limited in size."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING

from ccm_agent.model.errors import BusUnavailableError, CcmError, NoTargetError
from ccm_ctl.dashboard.feed import frame_of
from ccm_ctl.fleet.assignments.followed_data import FollowedData
from ccm_ctl.fleet.events.live_events import LiveEvents
from ccm_ctl.fleet.nodes.attention import read_open_rollouts
from ccm_ctl.fleet.nodes.discovery import TargetSpec
from ccm_ctl.fleet.nodes.overview import choose_nodes, read_overview
from ccm_ctl.fleet.nodes.silent_nodes import SilentNodes

if TYPE_CHECKING:
    from ccm_agent.model.records.rollout_records import RolloutState
    from ccm_ctl.dashboard.feed import EventFrame
    from ccm_ctl.fleet.events.live_events import LiveEvent
    from ccm_ctl.fleet.nodes.overview import FleetOverview
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.runs.run_list import ListedRun

KEPT_EVENTS = 2000
"""The maximum number of events that are kept. They are also used to find failing resources."""

RUNS_READ = 50
"""The maximum number of recent runs that are read."""

LOOK_AGAIN_S = 2.0
"""Seconds between two readings of the fleet. A large fleet is read less often (see SHARE)."""

SHARE = 6
"""At most 1/SHARE of the time is spent on reading."""

RATE_S = 60
"""The period, in seconds, over which the event rate is measured."""


class FleetWatch:
    """
    The fleet as it was last read.

    Attributes:
        overview: Nodes and assignments with their states. None: the fleet has not been read yet.
        events: The most recent events, in the order of the stream.
        runs: The newest runs. None: they have not been read yet.
        rollouts: The rollouts that have not ended. They are read after the first screen, because reading them would delay it.
        selector: The filter, in the selector language. "": no filter.
        shown: The nodes that match the filter. None: all nodes.
        filter_problem: The reason why the filter matches no nodes. "": it matches some.
        problem: The reason why the fleet or the list of runs could not be read. "": the last reading was successful.
        is_stream_current: Whether the stream of events was read recently.
        wants_runs: Whether runs are on the screen and must be read.
        version: A number that grows with each change.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.overview: FleetOverview | None = None
        self.events: deque[EventFrame] = deque(maxlen=KEPT_EVENTS)
        self.runs: list[ListedRun] | None = None
        self.rollouts: list[RolloutState] = []
        self.selector = ""
        self.shown: set[str] | None = None
        self.filter_problem = ""
        self.problem = ""
        self.is_stream_current = True
        self.wants_runs = False
        self.version = 0
        self._fleet = fleet
        self._data = FollowedData(fleet.data)
        self._is_broker_away = False
        self._arrived: deque[tuple[float, int]] = deque(maxlen=RATE_S * 20)
        self._soon = asyncio.Event()
        self._silent = SilentNodes(fleet, self.look_soon)

    @property
    def is_away(self) -> bool:
        """Whether the broker is unavailable. The data may then be old."""
        return self._is_broker_away or not self.is_stream_current

    async def run(self) -> None:
        """
        Read events and the fleet until cancelled. If the fleet has already been read, the next reading is after the usual pause.
        """
        live = LiveEvents(
            self._fleet, on_events=self._take, on_restart=self._forget, on_state=self._on_stream_state
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(live.run(), name="top:events")
            tasks.create_task(self._look_again(), name="top:fleet")
            tasks.create_task(self._silent.run(), name="top:silent-nodes")

    def filter_nodes(self, selector: str) -> None:
        """
        Show only the nodes that match a selector, starting with the next reading. "" shows all nodes.

        Raises:
            SelectorError: The selector cannot be parsed. The previous filter is kept.
        """
        from ccm_agent.templates.selector import parse_selector

        if selector:
            parse_selector(selector)
        self.selector, self.filter_problem = selector, ""
        self.shown = None if not selector else set()
        self.version += 1
        self.look_soon()

    def look_soon(self) -> None:
        """Read the fleet now instead of after the usual pause."""
        self._soon.set()

    def events_per_second(self) -> float:
        """Return the number of events per second within the last minute."""
        begin = asyncio.get_running_loop().time() - RATE_S
        return sum(count for arrived, count in self._arrived if arrived > begin) / RATE_S

    def _take(self, events: list[LiveEvent]) -> None:
        now = self._fleet.clock.now()
        frames = [frame_of(event, now) for event in events]
        recent = sum(frame.time > now - timedelta(seconds=RATE_S) for frame in frames)
        self._arrived.append((asyncio.get_running_loop().time(), recent))
        self.events.extend(frames)
        self.version += 1

    def _forget(self) -> None:
        self.events.clear()
        self.version += 1

    def _on_stream_state(self, is_current: bool) -> None:
        self.is_stream_current = is_current
        self.version += 1
        self.look_soon()

    async def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        was_read = self.overview is not None
        while True:
            self._soon.clear()
            began = loop.time()
            await (self._refresh_rollouts() if was_read else self.refresh())
            was_read = False
            try:
                async with asyncio.timeout(max(LOOK_AGAIN_S, (loop.time() - began) * SHARE)):
                    await self._soon.wait()
            except TimeoutError:
                continue

    async def refresh(self) -> None:
        """Read the fleet now. If the broker does not reply, the previous data are kept."""
        await self._read(with_fleet=True)

    async def read_first(self) -> None:
        """Read the data of the first screen: the fleet without its rollouts."""
        await self._read(with_fleet=True, with_rollouts=False)

    async def _refresh_rollouts(self) -> None:
        await self._read(with_fleet=False)

    async def _read(self, *, with_fleet: bool, with_rollouts: bool = True) -> None:
        try:
            if with_fleet:
                overview = await read_overview(self._fleet, self._data, self._silent.answer_of)
                await self._choose(overview)
                self.overview = overview
            if with_rollouts:
                self.rollouts = await read_open_rollouts(self._fleet)
            if self.wants_runs:
                await self._read_runs()
        except CcmError as err:
            self.problem, self._is_broker_away = err.message, isinstance(err, BusUnavailableError)
        else:
            self.problem, self._is_broker_away = "", False
        self.version += 1

    async def _choose(self, overview: FleetOverview) -> None:
        selector = self.selector
        if not selector:
            return
        problem, shown = "", set[str]()
        try:
            shown = set(await choose_nodes(self._fleet, overview, TargetSpec(targets=(selector,))))
        except NoTargetError as err:
            problem = err.message
        if selector == self.selector:
            self.shown, self.filter_problem = shown, problem

    async def _read_runs(self) -> None:
        # imported when runs are shown, so that the first screen appears sooner
        from ccm_ctl.fleet.runs.run_list import RunFilter, list_runs

        self.runs = (await list_runs(self._fleet, RunFilter(folds=True), RUNS_READ)).runs
