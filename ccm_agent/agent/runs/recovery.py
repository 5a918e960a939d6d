"""
What an earlier process left: runs that wait still wait, runs that it was killed in have ended, and one that its restart parted
in two goes on.

The spool says what a run had told, the ledger what was taken on; a power cut may have left either behind the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import msgspec

from ccm_agent.agent.events.spool import OpenRun, Spool
from ccm_agent.agent.events.spool_segment import Kind
from ccm_agent.agent.requests.request_log import RequestLog, RequestLogEntry
from ccm_agent.agent.runs.checkpoint import Checkpoints
from ccm_agent.agent.runs.run_queue import QueuedRun, RunQueue
from ccm_agent.agent.runs.run_report import INTERRUPTED, interrupted_summary
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import FileError
from ccm_agent.model.outcome import SESSION_SUMMARY, SessionSummary
from ccm_agent.model.ports import Clock
from ccm_agent.model.wire import NodeState

log = logging.getLogger(__name__)


class Recovery:
    """Brings spool and ledger of one agent to one state, before anything else happens."""

    def __init__(
        self, node: str, spool: Spool, request_log: RequestLog, clock: Clock, checkpoints: Checkpoints
    ) -> None:
        self._node = node
        self._spool = spool
        self._request_log = request_log
        self._clock = clock
        self._checkpoints = checkpoints

    def recover(
        self,
        left: Iterable[RequestLogEntry],
        open_runs: Iterable[OpenRun],
        run_queue: RunQueue,
        job_of: Callable[[RequestLogEntry], QueuedRun | None],
    ) -> None:
        """
        Close what was interrupted, and queue what had not begun.

        Args:
            left: Runs without an end in the ledger, in order of arrival.
            open_runs: Runs without an end in the spool.
            turns: Where runs wait.
            job_of: The job of an entry; None when its request cannot be read any more.
        """
        told = {one.run: one for one in open_runs}
        parted = self._checkpoints.run
        for entry in left:
            found = told.pop(entry.run, None)
            ended = self._spool.summary_of(entry.run)
            goes_on = entry.run == parted and ended is None
            job = None if (entry.has_begun or found) and not goes_on else job_of(entry)
            if job is not None and goes_on:
                # a deadline is for the beginning, and it has begun
                job = msgspec.structs.replace(job, deadline=None)
            if ended is not None:
                self._take_over(entry.run, ended.body)
            elif job is None or run_queue.offer(job).position < 0:
                self._interrupt(entry.run, found)
        if parted and run_queue.position(parted) is None:
            self._drop()
        for run, found in told.items():
            # the ledger lost it to a power cut, the flushed events did not
            self._interrupt(run, found)

    def _drop(self) -> None:
        try:
            self._checkpoints.drop()
        except FileError as err:
            log.warning("a run that is over is still kept", extra={"reason": str(err)})

    def _take_over(self, run: str, body: bytes) -> None:
        """The run had told its end, and was killed before the ledger knew."""
        try:
            summary = msgspec.json.decode(body, type=SessionSummary)
        except msgspec.DecodeError:
            summary = SessionSummary(
                protocol="", event_id="", timestamp=self._clock.now(), state=NodeState.FAILED
            )
        self._request_log.end(run, summary.state, summary.reason, summary.code)

    def _interrupt(self, run: str, found: OpenRun | None) -> None:
        summary, body = interrupted_summary(self._node, run, found.events if found else [], self._clock.now())
        self._spool.append(
            subject=event_subject(SESSION_SUMMARY, self._node, run),
            event_id=summary.event_id,
            body=body,
            run=run,
            number=summary.number,
            kind=Kind.SUMMARY,
        )
        self._request_log.end(run, NodeState.FAILED, INTERRUPTED, "run.interrupted")
        log.warning("a run was interrupted", extra={"run": run, "events": summary.events_sent - 1})
