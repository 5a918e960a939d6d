"""
Runs that a server starts for its users, such as retries from the dashboard and plans from the studio.

The server follows each run to its end. No stream stores the result of a node that refused or did not answer, so the process that
follows the run records these results.
"""

from __future__ import annotations

import asyncio
import logging

from ccm_agent.model.errors import BusError, CcmError, RunError
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.node_run import News, StateChange
from ccm_ctl.fleet.runs.proof import read_proof
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.run_request import Launch
from ccm_ctl.fleet.runs.run_session import follow_run, new_run

log = logging.getLogger(__name__)

STORE_EACH_S = 1.0
"""While a run is in progress, the minimum interval in seconds between writes of results that no stream stores."""


class BackgroundRuns:
    """
    Starts runs and follows each until it ends or the server stops. The nodes continue without the server.

    Args:
        fleet: The bus.
        at_once: The maximum number of runs that are in progress at the same time.
        limit_s: Seconds after which nodes without a result are considered lost. None: the default limit.
        kept: The number of runs that `find` remembers, in progress or ended.
    """

    def __init__(self, fleet: Fleet, *, at_once: int, limit_s: float | None = None, kept: int = 0) -> None:
        self._fleet = fleet
        self._at_once = at_once
        self._limit_s = limit_s
        self._kept = kept
        self._retried: dict[asyncio.Task[None], str] = {}
        self._runs: dict[str, Run] = {}

    def find(self, run: str) -> Run | None:
        """Return the state of a run that this server started, or None if it is no longer remembered."""
        return self._runs.get(run)

    async def start(self, launch: Launch) -> None:
        """
        Start a run. Returns when its request has been sent.

        Raises:
            RunError: A retry of the same run is in progress, or too many runs are in progress.
            BusError: The request cannot be sent.
        """
        retried = launch.record.retry_of
        if retried and retried in self._retried.values():
            raise RunError(f"{retried}: a retry is already in progress")
        if len(self._retried) >= self._at_once:
            raise RunError(
                f"{self._at_once} runs that were started here are in progress; wait for one to end"
            )
        is_sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._follow(launch, is_sent), name=f"run:{launch.record.run}")
        self._retried[task] = retried
        task.add_done_callback(self._retried.pop)
        await is_sent

    async def end(self) -> None:
        """Stop following all runs."""
        tasks = list(self._retried)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, launch: Launch, is_sent: asyncio.Future[None]) -> None:
        def on_begin() -> None:
            if not is_sent.done():
                is_sent.set_result(None)

        try:
            run, proof = new_run(self._fleet, launch, self._limit_s), await read_proof(self._fleet)
            if self._kept:
                self._runs = dict([*self._runs.items(), (run.run, run)][-self._kept :])
            writer = EndsWriter(self._fleet, run)
            await follow_run(self._fleet, launch, run, proof, on_begin=on_begin, on_turn=writer.on_turn)
            await History(self._fleet).finish(run)
        except CcmError as err:
            if is_sent.done():
                log.warning("a run is not followed", extra={"run": launch.record.run, "reason": err.message})
            else:
                is_sent.set_exception(err)
        finally:
            if not is_sent.done():
                is_sent.cancel()


class EndsWriter:
    """While a run is in progress, stores those results of its nodes that no stream stores."""

    def __init__(self, fleet: Fleet, run: Run) -> None:
        self._history = History(fleet)
        self._run = run
        self._is_stored = True
        self._stored_at = float("-inf")

    async def on_turn(self, news: list[News]) -> None:
        """Store new results, at most once per STORE_EACH_S. If the broker is unreachable, a later turn tries again."""
        if any(map(self._is_end, news)):
            self._is_stored = False
        now = asyncio.get_running_loop().time()
        if self._is_stored or now - self._stored_at < STORE_EACH_S or self._run.is_done:
            return
        self._stored_at = now
        try:
            await self._history.keep_ends(self._run)
            self._is_stored = True
        except BusError:
            return

    def _is_end(self, one: News) -> bool:
        """Whether a node ended without a summary. The stream stores the others."""
        is_end = isinstance(one, StateChange) and one.state.is_final
        return is_end and self._run.nodes[one.node].kept_summary is None
