"""Plans that the studio started. Each is followed to its end: refusals and nodes without an answer are in no stream."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ccm_agent.model.errors import CcmError, RunError
from ccm_ctl.fleet.history import History
from ccm_ctl.fleet.proof import read_proof
from ccm_ctl.fleet.run_session import follow_run, new_run

if TYPE_CHECKING:
    from aiohttp import web

    from ccm_ctl.fleet.node_run import News
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.run import Run
    from ccm_ctl.fleet.run_request import Launch

log = logging.getLogger(__name__)

AT_ONCE = 10
KEPT = 50
"""Plans whose state is kept for the page; that of older ones is read from the broker."""
LIMIT_S = 900.0
"""Nodes that have not ended by then are lost: a plan that takes longer is one for `ccmctl plan`."""


class PlanRuns:
    """Starts plans, and follows them until they end or the studio does. The nodes go on without it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tasks: set[asyncio.Task[None]] = set()
        self._runs: dict[str, Run] = {}

    def find(self, run: str) -> Run | None:
        """The state of a plan that was started here."""
        return self._runs.get(run)

    async def start(self, launch: Launch) -> None:
        """
        Send a plan, and return when it is out.

        Raises:
            RunError: Too many plans are in progress.
            BusError: The request cannot be sent.
        """
        if len(self._tasks) >= AT_ONCE:
            raise RunError(f"{AT_ONCE} plans are in progress here; wait for one to end")
        is_out: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._follow(launch, is_out), name=f"studio:plan:{launch.record.run}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await is_out

    async def end(self, _application: web.Application) -> None:
        """Follow none of them any longer."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, launch: Launch, is_out: asyncio.Future[None]) -> None:
        async def on_turn(news: list[News]) -> None:
            """The run itself takes the news."""

        def is_sent() -> None:
            if not is_out.done():
                is_out.set_result(None)

        try:
            run, proof = new_run(self._fleet, launch, LIMIT_S), await read_proof(self._fleet)
            self._runs = dict([*self._runs.items(), (launch.record.run, run)][-KEPT:])
            await follow_run(self._fleet, launch, run, proof, on_begin=is_sent, on_turn=on_turn)
            await History(self._fleet).finish(run)
        except CcmError as err:
            if is_out.done():
                log.warning("a plan is not followed", extra={"run": launch.record.run, "reason": err.message})
            else:
                is_out.set_exception(err)
        finally:
            if not is_out.done():
                is_out.cancel()
