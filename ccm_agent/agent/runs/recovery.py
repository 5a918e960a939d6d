"""
What an earlier process left: runs that waited still wait, runs that it was killed in have ended, and a run that its restart
interrupted continues.

The spool says what a run had reported, the request log what was accepted; a power cut may have left either behind the other.

An agent that is restarted, perhaps by a package of the current run, ends no run: it finishes the current resource and writes a
checkpoint of the result of each so far. One file is enough, because there is one run at a time. It is removed when the run
continues, so a process that is killed after that leaves an interrupted run and no second start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from ccm_agent.agent.events.run_report import INTERRUPTED, RunFrame
from ccm_agent.agent.runs.run_queue import QueuedRun, RunQueue
from ccm_agent.agent.runs.run_records import Checkpoints, RunRecords
from ccm_agent.agent.state.request_log import RequestLog, RequestLogEntry
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import FileError
from ccm_agent.model.formats.truncation import encode_summary
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import (
    SESSION_SUMMARY,
    SessionStart,
    SessionSummary,
    TransactionEvent,
    add_outcome,
)
from ccm_agent.model.ports import Clock
from ccm_agent.model.wire import NodeState
from ccm_agent.storage.spool import OpenRun, Spool
from ccm_agent.storage.spool_segment import Kind, Spooled

log = logging.getLogger(__name__)


class Recovery:
    """Brings spool and ledger of one agent to one state, before anything else happens."""

    def __init__(
        self,
        spool: Spool,
        request_log: RequestLog,
        run_queue: RunQueue,
        checkpoints: Checkpoints,
        records: RunRecords,
        clock: Clock,
    ) -> None:
        self._node = records.node
        self._spool = spool
        self._request_log = request_log
        self._run_queue = run_queue
        self._checkpoints = checkpoints
        self._records = records
        self._clock = clock

    def recover(
        self,
        left: Iterable[RequestLogEntry],
        open_runs: Iterable[OpenRun],
        build_job: Callable[[RequestLogEntry], QueuedRun | None],
    ) -> None:
        """
        Report the end of runs that were interrupted, and queue those that had not started, except steps of a rollout.

        Args:
            left: Runs without an end in the request log, in order of arrival.
            open_runs: Runs without an end in the spool.
            build_job: The job of an entry; None when its request cannot be read any more.
        """
        self._records.recall_last()
        reported = {one.run: one for one in open_runs}
        parted = self._checkpoints.run
        for entry in left:
            found = reported.pop(entry.run, None)
            ended = self._spool.load_summary(entry.run)
            goes_on = entry.run == parted and ended is None
            job = None if (entry.has_begun or found) and not goes_on else build_job(entry)
            if job is not None and job.request.rollout and not goes_on:
                # The rollout may have been aborted while no agent was here to hear it.
                job = None
            if job is not None and goes_on:
                # a deadline is for the start, and the run has started
                job = msgspec.structs.replace(job, deadline=None)
            if ended is not None:
                self._take_over(entry.run, ended.body)
            elif job is None or self._run_queue.offer(job).position < 0:
                self._interrupt(entry.run, found)
        if parted and self._run_queue.position(parted) is None:
            self._drop()
        for run, found in reported.items():
            # the ledger lost it to a power cut, the flushed events did not
            self._interrupt(run, found)

    def _drop(self) -> None:
        try:
            self._checkpoints.drop()
        except FileError as err:
            log.warning("the checkpoint of a finished run cannot be removed", extra={"reason": str(err)})

    def _take_over(self, run: str, body: bytes) -> None:
        """The run had reported its end, and was killed before the request log had it."""
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
        if self._request_log.knows(run) or not summary.health_check_only:
            self._records.note_last(run, summary.state)
        self._request_log.end(run, NodeState.FAILED, INTERRUPTED, "run.interrupted")
        log.warning("a run was interrupted", extra={"run": run, "events": summary.events_sent - 1})


def interrupted_summary(
    node: str, run: str, events: list[Spooled], now: datetime, frame: RunFrame | None = None
) -> tuple[SessionSummary, bytes]:
    """
    The end of a run that was killed: `failed: interrupted`, with what its events say it had done.

    Args:
        node, run: Whose.
        events: What was spooled of it, in order; empty when it had not come to its first event.
        now: When it was found.
        frame: What is known from the request, for a run without a start.
    """
    summary = SessionSummary(
        protocol=SESSION_SUMMARY,
        event_id=new_id(),
        timestamp=now,
        end_time=now,
        node=node,
        run=run,
        state=NodeState.FAILED.value,
        reason=INTERRUPTED,
        code="run.interrupted",
    )
    if frame is not None:
        summary.manifest, summary.digest = frame.manifest, frame.digest
        summary.noop, summary.health_check_only = frame.noop, frame.health_check_only
    for spooled in events:
        summary.number = max(summary.number, spooled.number)
        try:
            _sum_up(summary, spooled)
        except msgspec.DecodeError as err:
            # another version wrote it; its number counts, what it says is in the stream or on its way
            log.warning("an event in the spool cannot be read", extra={"run": run, "reason": str(err)})
    summary.number += 1
    summary.events_sent = summary.number
    summary.unique_resources = summary.total_resources
    if summary.start_time is not None:
        summary.total_duration = max(int((now - summary.start_time).total_seconds() * 1e9), 0)
    return summary, encode_summary(summary)


def _sum_up(summary: SessionSummary, spooled: Spooled) -> None:
    if spooled.kind is Kind.START:
        start = msgspec.json.decode(spooled.body, type=SessionStart)
        summary.manifest, summary.digest = start.manifest, start.digest
        summary.noop, summary.health_check_only = start.noop, start.health_check_only
        summary.start_time, summary.data_revisions = start.timestamp, start.data_revisions
    elif spooled.kind is Kind.RESOURCE:
        add_outcome(summary, msgspec.json.decode(spooled.body, type=TransactionEvent))
