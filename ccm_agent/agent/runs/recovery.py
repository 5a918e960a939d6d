"""
Recovers the runs of an earlier process: waiting runs stay queued, runs that were killed are ended, and a run that a restart
interrupted continues.

The spool contains the reports of runs, and the request log contains accepted requests. After a power cut, either may be
older than the other.

A restart of the agent, perhaps by a package of the current run, does not end a run: the agent finishes the current resource
and writes a checkpoint with the results so far. One file is enough, because there is only one run at a time. The file is
removed when the run continues. If the agent is killed after that, the run is reported as interrupted and does not start
again.
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
    """Makes the spool and the request log of one agent consistent, before anything else starts."""

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
        Report the end of interrupted runs, and queue runs that had not started, except steps of a rollout.

        Args:
            left: Runs in the request log without an end, in order of arrival.
            open_runs: Runs in the spool without an end.
            build_job: Builds the job of an entry; returns None if its request can no longer be read.
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
                # The rollout may have been aborted while no agent was running to receive the message.
                job = None
            if job is not None and goes_on:
                # A deadline applies to the start, and this run has already started.
                job = msgspec.structs.replace(job, deadline=None)
            if ended is not None:
                self._take_over(entry.run, ended.body)
            elif job is None or self._run_queue.offer(job).position < 0:
                self._interrupt(entry.run, found)
        if parted and self._run_queue.position(parted) is None:
            self._drop()
        for run, found in reported.items():
            # A power cut lost the ledger's entry, but not the flushed events.
            self._interrupt(run, found)

    def _drop(self) -> None:
        try:
            self._checkpoints.drop()
        except FileError as err:
            log.warning("the checkpoint of a finished run cannot be removed", extra={"reason": str(err)})

    def _take_over(self, run: str, body: bytes) -> None:
        """Record the end of a run that was killed after it reported its end, but before the end was in the request log."""
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
    Return the summary of a run that was killed: `failed: interrupted`, with the results in its events.

    Args:
        node, run: The node and the run.
        events: The spooled events of the run, in order; empty if it had not produced its first event.
        now: When the interrupted run was found.
        frame: The data from the request, for a run without a start event.
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
            # Another version wrote this event. Only its number matters here; its content is in the stream or being sent.
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
