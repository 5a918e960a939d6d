"""
Reports a run on the bus: its start, its changes, its summary, and its progress.

Stable resources are only counted, so the cost depends on the number of changes, and not on the size of the manifest. Each event
has a number within the run. The last event, the summary, contains the number of events, so a reader can detect missing ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

import msgspec
from msgspec import Struct

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.formats.truncation import encode_event, encode_summary
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import (
    NOT_SELECTED,
    SESSION_START,
    SESSION_SUMMARY,
    TRANSACTION_EVENT,
    Outcome,
    SessionStart,
    SessionSummary,
    TransactionEvent,
    add_outcome,
    end_state,
)
from ccm_agent.model.ports import Clock
from ccm_agent.model.wire import COMPLIANT_STATES, SESSION_PROGRESS, NodeState, Progress
from ccm_agent.storage.spool import Spool
from ccm_agent.storage.spool_segment import Kind

log = logging.getLogger(__name__)

INTERRUPTED = "interrupted"

Shorten = Callable[[TransactionEvent], TransactionEvent]
"""Returns the form of an event that may be published: `content` as a digest, `environment` as names."""


Judge = Callable[[TransactionEvent], bool | None]
"""Returns whether a change corrected drift; None if unknown."""


class RunFrame(Struct, frozen=True, kw_only=True):
    """The common fields of all events of a run; they are those of the session's start."""

    run: str
    node: str
    manifest: str = ""
    digest: str = ""
    noop: bool = False
    health_check_only: bool = False
    requester: str = ""
    agent_version: str = ""
    cause: str = ""
    origin: str = ""
    message: str = ""


class Checkpoint(Struct, kw_only=True):
    """
    The state of a run that the next process continues.

    Attributes:
        run: The run's id.
        number: The number of the last reported event.
        began: When the run began.
        digest: The digest of its manifest.
        data_revisions: The revisions of data, as reported at the start.
        done: The result of each resource so far, in order, including stable ones; without properties, state and diff.
    """

    run: str
    number: int
    began: datetime
    digest: str = ""
    data_revisions: dict[str, int] = {}
    done: list[TransactionEvent] = []


class RunReport:
    """
    The events of one run, numbered, spooled and counted.

    Attributes:
        frame: The common fields of the events.
        has_started: Whether the start was reported.
        is_closed: Whether the summary was reported; no events follow it.
        progress: The progress of the run.
        judge: See `Judge`; None: corrections of drift are not tracked.
    """

    def __init__(
        self,
        frame: RunFrame,
        spool: Spool,
        clock: Clock,
        *,
        shorten: Shorten,
        is_full: bool,
        is_quiet: bool = False,
        judge: Judge | None = None,
        on_end: Callable[[SessionSummary], None] | None = None,
        warnings: Callable[[], list[str]] = list,
    ) -> None:
        """
        Args:
            frame: The common fields of the events.
            spool: Stores the events.
            clock: Returns the current time.
            shorten: See `Shorten`.
            is_full: Whether stable resources are also reported.
            is_quiet: Whether a run is reported only if a resource was not stable or the run failed.
            judge: See `Judge`.
            on_end: Called with the summary, before it is reported.
            warnings: Returns warnings about data of the run that the node could not store.
        """
        self.frame = frame
        self.has_started = False
        self.is_closed = False
        self.progress = Progress(protocol=SESSION_PROGRESS, run=frame.run, node=frame.node)
        self._spool = spool
        self._clock = clock
        self._shorten = shorten
        self._is_full = is_full
        self._is_quiet = is_quiet
        self.judge = judge
        self._on_end = on_end
        self._warnings = warnings
        self._quiet_start: SessionStart | None = None
        self._corrective: bool | None = None
        self._number = 0
        self._goes_on = False
        self._began = clock.now()
        self._began_at = self._resource_at = clock.monotonic()
        self._totals = SessionSummary(protocol=SESSION_SUMMARY, event_id="", timestamp=self._began)
        self._revisions: dict[str, int] = {}
        self._done: list[TransactionEvent] = []

    def resume(self, before: Checkpoint) -> None:
        """Continue from the checkpoint of an earlier process. Call this before all other methods."""
        self.has_started = self._goes_on = True
        self.frame = msgspec.structs.replace(self.frame, digest=self.frame.digest or before.digest)
        self._revisions = before.data_revisions
        self._number = before.number
        self._began_at -= max((self._began - before.began).total_seconds(), 0)
        self._began = before.began
        for event in before.done:
            self._count(event)

    def checkpoint(self) -> Checkpoint:
        """Return the data that the next process needs to continue the run."""
        return Checkpoint(
            run=self.frame.run,
            number=self._number,
            began=self._began,
            digest=self.frame.digest,
            data_revisions=self._revisions,
            done=self._done,
        )

    def start(self, engine: SessionStart | None = None) -> None:
        """Report the start of the run, with the data from the engine."""
        if engine and not self.frame.digest:
            self.frame = msgspec.structs.replace(self.frame, digest=engine.digest)
        frame = self.frame
        self._number += 1
        self.has_started = True
        self._revisions = dict(engine.data_revisions) if engine else {}
        event = SessionStart(
            protocol=SESSION_START,
            event_id=new_id(),
            timestamp=self._began,
            number=self._number,
            data_revisions=self._revisions,
            resources=engine.resources if engine else 0,
            **msgspec.structs.asdict(frame),
        )
        self._quiet_start = event
        if not self._is_quiet:
            self._report_start()

    async def resource(self, event: TransactionEvent) -> None:
        """Report a resource that was not stable. A change or a failure is safely on disk after this returns."""
        self._count(event)
        corrective = self.judge(event) if self.judge else None
        if corrective is not None:
            self._corrective = corrective or bool(self._corrective)
        if self.is_closed or not (self._is_full or _is_news(event)):
            return
        self._report_start()
        self._number += 1
        reported = msgspec.structs.replace(
            self._shorten(event),
            node=self.frame.node,
            run=self.frame.run,
            number=self._number,
            event_id=event.event_id or new_id(),
            corrective=corrective,
        )
        self._append(TRANSACTION_EVENT, reported.event_id, encode_event(reported), Kind.RESOURCE)
        await self._spool.settle(flush=event.changed or event.failed)

    def on_resource(self, resource: str, position: int, total: int) -> None:
        """Record that a resource starts."""
        self.progress.resource, self.progress.position, self.progress.total = resource, position, total
        self._resource_at = self._clock.monotonic()

    def progress_now(self) -> Progress:
        """Return the progress of the run."""
        now = self._clock.monotonic()
        self.progress.run_s = round(now - self._began_at, 1)
        self.progress.resource_s = round(now - self._resource_at, 1)
        return self.progress

    def totals(self) -> SessionSummary:
        """Return a summary of the events so far, for a run that the engine does not summarize."""
        totals = self._totals
        totals.unique_resources = totals.total_resources
        totals.state = end_state(totals)
        return totals

    def finish(
        self,
        engine: SessionSummary | None = None,
        *,
        reason: str = "",
        code: str = "",
        stopped_by: str = "",
    ) -> SessionSummary:
        """
        Report the end of the run.

        Args:
            engine: The engine's summary; None if the run failed as a whole, or was stopped before it began.
            reason, code: The reason of the failure or stop.
            stopped_by: The operator who stopped it before it began; "" if it failed.
        """
        if not self.has_started:
            self.start()
        self._number += 1
        now = self._clock.now()
        base = engine or self._totals
        state = NodeState.STOPPED.value if stopped_by else NodeState.FAILED.value
        if engine and engine.state and not reason:
            state = engine.state
        summary = msgspec.structs.replace(
            base,
            protocol=SESSION_SUMMARY,
            event_id=new_id(),
            timestamp=now,
            # If two processes executed a run, the engine has only the times of the second part.
            start_time=(None if self._goes_on else base.start_time) or self._began,
            end_time=base.end_time or now,
            # Use the monotonic clock, because the wall clock may have been changed during the run.
            total_duration=round((self._clock.monotonic() - self._began_at) * 1e9),
            node=self.frame.node,
            run=self.frame.run,
            manifest=self.frame.manifest,
            digest=self.frame.digest,
            noop=self.frame.noop,
            health_check_only=self.frame.health_check_only,
            number=self._number,
            events_sent=self._number,
            state=state,
            reason=reason or base.reason,
            code=code or base.code,
            data_revisions=base.data_revisions or self._revisions,
            failed=base.failed or self._totals.failed,
            corrective=self._corrective,
            stopped_by=stopped_by or base.stopped_by,
            warnings=[*base.warnings, *self._warnings()],
        )
        self.is_closed = True
        if self._on_end is not None:
            self._on_end(summary)
        if self._is_quiet and self._quiet_start is not None and state in COMPLIANT_STATES:
            return summary
        self._report_start()
        is_stable = state == NodeState.STABLE and self._number == 2
        self._append(
            SESSION_SUMMARY, summary.event_id, encode_summary(summary), Kind.SUMMARY, is_stable=is_stable
        )
        return summary

    def _count(self, event: TransactionEvent) -> None:
        add_outcome(self._totals, event)
        self._done.append(msgspec.structs.replace(event, properties=None, status=None, diff=None))
        self.progress.changed = self._totals.changed_resources
        self.progress.failed = self._totals.failed_resources

    def _report_start(self) -> None:
        event, self._quiet_start = self._quiet_start, None
        if event is not None:
            self._append(SESSION_START, event.event_id, encode_message(event), Kind.START, number=1)

    def _append(
        self,
        protocol: str,
        event_id: str,
        body: bytes,
        kind: Kind,
        *,
        is_stable: bool = False,
        number: int = 0,
    ) -> None:
        self._spool.append(
            subject=event_subject(protocol, self.frame.node, self.frame.run),
            event_id=event_id,
            body=body,
            run=self.frame.run,
            number=number or self._number,
            kind=kind,
            is_stable=is_stable,
        )


def _is_news(event: TransactionEvent) -> bool:
    if event.code == NOT_SELECTED:
        return False
    return event.outcome is not Outcome.STABLE or bool(event.noop_message or event.unknown)
