"""
What a run says on the bus: its start, what changed, its summary, and now and then where it is.

A stable resource is only counted, so that cost grows with change and not with size. Each event has its number within the run;
the last of them, the summary, says how many there are, so a reader knows what it has missed.
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
"""The form of an event that may be published: `content` a digest, `environment` names."""


Judge = Callable[[TransactionEvent], bool | None]
"""Whether a change corrected drift; None when that cannot be said."""


class RunFrame(Struct, frozen=True, kw_only=True):
    """What all events of a run say alike; the fields are those of the session's start."""

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
    How far a run has come.

    Attributes:
        run: Its id.
        number: Number of the last event that was reported.
        began: When it began.
        digest: Of its manifest.
        data_revisions: As reported at its start.
        done: The result of each resource so far, in order, stable ones too; without properties, state and diff.
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
        frame: What they say alike.
        has_started: The start was reported.
        is_closed: The summary was reported; nothing follows it.
        progress: Where the run is.
        judge: See `Judge`; None: corrections of drift are not of interest.
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
            frame: What the events say alike.
            spool: Where they go.
            clock: What time it is.
            shorten: See `Shorten`.
            is_full: Stable resources are reported too.
            is_quiet: Nothing is reported unless a resource was not stable, or the run failed.
            judge: See `Judge`.
            on_end: Called with the summary, before it is reported.
            warnings: Returns what the node could not keep of the run.
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
        """Continue from what an earlier process of this run reported and counted; before anything else."""
        self.has_started = self._goes_on = True
        self.frame = msgspec.structs.replace(self.frame, digest=self.frame.digest or before.digest)
        self._revisions = before.data_revisions
        self._number = before.number
        self._began_at -= max((self._began - before.began).total_seconds(), 0)
        self._began = before.began
        for event in before.done:
            self._count(event)

    def checkpoint(self) -> Checkpoint:
        """What the next process needs to continue the run."""
        return Checkpoint(
            run=self.frame.run,
            number=self._number,
            began=self._began,
            digest=self.frame.digest,
            data_revisions=self._revisions,
            done=self._done,
        )

    def start(self, engine: SessionStart | None = None) -> None:
        """Report the start of the run, with what the engine knows of it."""
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
        """Report a resource that was not stable; a change or a failure is safe on disk when this returns."""
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
        """A resource starts."""
        self.progress.resource, self.progress.position, self.progress.total = resource, position, total
        self._resource_at = self._clock.monotonic()

    def progress_now(self) -> Progress:
        """Where the run is."""
        now = self._clock.monotonic()
        self.progress.run_s = round(now - self._began_at, 1)
        self.progress.resource_s = round(now - self._resource_at, 1)
        return self.progress

    def totals(self) -> SessionSummary:
        """A summary of the events so far, for a run that the engine does not summarize itself."""
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
            engine: The engine's summary; without one the run failed as a whole, or was stopped before it began.
            reason, code: Why it did.
            stopped_by: The operator who stopped it before it began; "": it failed.
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
            # of a run that two processes carried out the engine knows the second part
            start_time=(None if self._goes_on else base.start_time) or self._began,
            end_time=base.end_time or now,
            # by the monotonic clock: the wall clock may have been set meanwhile
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
