"""Runs that users of the dashboard started. Each is followed to its end: its record gets the ends that no stream stores."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ccm_agent.model.errors import BusError, CcmError, RunError
from ccm_ctl.fleet.history import History
from ccm_ctl.fleet.node_run import StateChange
from ccm_ctl.fleet.proof import read_proof
from ccm_ctl.fleet.run_session import follow_run, new_run

if TYPE_CHECKING:
    from ccm_ctl.fleet.node_run import News
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.run import Run
    from ccm_ctl.fleet.run_request import Launch

log = logging.getLogger(__name__)

AT_ONCE = 20
KEEP_EACH_S = 1.0
"""Ends that no stream stores are put on record at most so often while a run goes on."""


class StartedRuns:
    """Starts runs, and follows them until they end or the dashboard does. The nodes go on without it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def retry(self, launch: Launch) -> None:
        """
        Send a request again, and return when it is out.

        Raises:
            RunError: The same run is being retried, or too many runs of this dashboard are in progress.
            BusError: The request cannot be sent.
        """
        self._tasks = {key: task for key, task in self._tasks.items() if not task.done()}
        if launch.record.retry_of in self._tasks:
            raise RunError(f"{launch.record.retry_of}: a retry of it is in progress")
        if len(self._tasks) >= AT_ONCE:
            raise RunError(f"{AT_ONCE} runs that this dashboard started are in progress; wait for one to end")
        is_out: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._follow(launch, is_out), name=f"dashboard:run:{launch.record.run}")
        self._tasks[launch.record.retry_of] = task
        await is_out

    async def end(self) -> None:
        """Follow none of them any longer."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _follow(self, launch: Launch, is_out: asyncio.Future[None]) -> None:
        def is_sent() -> None:
            if not is_out.done():
                is_out.set_result(None)

        try:
            run, proof = new_run(self._fleet, launch), await read_proof(self._fleet)
            keeper = _EndsKeeper(self._fleet, run)
            await follow_run(
                self._fleet,
                launch,
                run,
                proof,
                on_begin=is_sent,
                on_turn=keeper.on_turn,
            )
            await History(self._fleet).finish(run)
        except CcmError as err:
            if is_out.done():
                log.warning("a run is not followed", extra={"run": launch.record.run, "reason": err.message})
            else:
                is_out.set_exception(err)
        finally:
            if not is_out.done():
                is_out.cancel()


class _EndsKeeper:
    """Puts ends on record that no stream stores, while the run goes on."""

    def __init__(self, fleet: Fleet, run: Run) -> None:
        self._history = History(fleet)
        self._run = run
        self._is_kept = True
        self._kept_at = float("-inf")

    async def on_turn(self, news: list[News]) -> None:
        self._is_kept &= not any(isinstance(one, StateChange) and one.state.is_final for one in news)
        now = asyncio.get_running_loop().time()
        if self._is_kept or now - self._kept_at < KEEP_EACH_S or self._run.is_done:
            return
        self._kept_at = now
        try:
            await self._history.keep_ends(self._run)
            self._is_kept = True
        except BusError:
            return  # tried again with the next turn
