"""
Where the runs of this node are, told every few seconds to whoever watches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ccm_agent.agent.runs.run_executor import RunExecutor
from ccm_agent.agent.runs.run_queue import RunQueue
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import BusError
from ccm_agent.model.json_text import encode_told
from ccm_agent.model.ports import Events
from ccm_agent.model.wire import SESSION_PROGRESS, Progress

log = logging.getLogger(__name__)


class ProgressPublisher:
    """Tells the progress of one agent's runs."""

    def __init__(
        self,
        node: str,
        events: Events,
        worker: RunExecutor,
        run_queue: RunQueue,
        every_s: Callable[[], float],
    ) -> None:
        """Nothing is told before `run`."""
        self._node = node
        self._events = events
        self._worker = worker
        self._run_queue = run_queue
        self._every_s = every_s
        self._is_busy = asyncio.Event()

    def begun(self) -> None:
        """A run is under way."""
        self._is_busy.set()

    def ended(self) -> None:
        """None is."""
        self._is_busy.clear()

    async def run(self) -> None:
        """Tell, for ever, while there is a run."""
        while True:
            await self._is_busy.wait()
            every_s = self._every_s()
            await asyncio.sleep(every_s)
            for progress in self._told(every_s):
                try:
                    await self._events.announce(
                        event_subject(SESSION_PROGRESS, self._node, progress.run),
                        encode_told(progress),
                    )
                except BusError as err:
                    log.debug("progress could not be told", extra={"reason": str(err)})

    def _told(self, every_s: float) -> list[Progress]:
        now = self._worker.report.progress_now() if self._worker.report else None
        # a run that began a moment ago has its time yet
        told = [now] if now and now.run_s >= every_s / 2 else []
        told += [
            Progress(protocol=SESSION_PROGRESS, run=job.run, node=self._node, state="queued")
            for job in self._run_queue.waiting
        ]
        return told
