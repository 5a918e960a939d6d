"""
Calls the engine for a run: its options, its manifest, and the special steps of a plan, an undo and a release of an
assignment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from ccm_agent.agent.cache.bundle_cache import BundleCache
from ccm_agent.agent.cache.facts import FactCache
from ccm_agent.agent.events.run_report import RunReport
from ccm_agent.agent.runs.admission import ResourceLocks
from ccm_agent.agent.runs.run_queue import QueuedRun, ReleasedRun, command_properties
from ccm_agent.agent.state.settings import Settings
from ccm_agent.engine.bundle import inner_path
from ccm_agent.engine.request import ApplyOptions, Engine, ManifestSource, OnEvent, StopFlag
from ccm_agent.metrics.agent import AgentMetrics
from ccm_agent.model.errors import PlanError, ProtocolError, Refusal
from ccm_agent.model.ids import short_id
from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.ports import Clock
from ccm_agent.model.wire import AssignmentStage, ExecRequest, ManifestRequest, NodeState
from ccm_agent.storage.plan_store import PlanRecord, PlanStore, SavedPlan
from ccm_agent.storage.undo_store import UndoStore

MOVED_NAMED = 10
"""The maximum number of resources in the error message about changes since the plan."""


class DesiredState(Protocol):
    """The node's sources, as runs use them; `process.composition.NodeSources` is the real implementation."""

    async def release(self, stage: AssignmentStage) -> ReleasedRun:
        """Return the next revision of an assignment, which a rollout releases to this node."""
        ...

    async def managed_elsewhere(self, scope: str) -> Collection[str] | None:
        """Return the resources that all other sources manage; see `ApplyOptions.managed_elsewhere`."""
        ...


class RunReader:
    """Reads the manifests of one agent's runs, and builds the options for the engine."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        facts: FactCache,
        bundles: BundleCache,
        undo: UndoStore,
        locks: ResourceLocks,
        metrics: AgentMetrics | None,
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._bundles = bundles
        self._undo = undo
        self._locks = locks
        self._metrics = metrics

    async def source(self, request: ManifestRequest) -> ManifestSource:
        """
        Return the manifest of a request, or the undo record of a run.

        Raises:
            CcmError: The request contradicts itself, or its manifest cannot be fetched.
        """
        content = request.content
        if request.undo:
            if content.bundle is not None or content.manifest or request.part or request.keep or request.plan:
                raise ProtocolError(f"{request.name}: the request has both a manifest and a run to undo")
            record = await self._undo.find(request.undo)
            return ManifestSource(name=request.name, undo=record)
        if content.bundle is None:
            text = content.manifest.encode()
            if request.digest and hashlib.sha256(text).hexdigest() != request.digest:
                raise ProtocolError(f"{request.name}: the manifest does not match its digest; send it again")
            return ManifestSource(text=text, name=request.name, digest=request.digest)
        bundle = content.bundle
        if request.digest and request.digest != bundle.digest:
            raise ProtocolError(f"{request.name}: the request has two digests for one bundle; send it again")
        manifest = inner_path(bundle.manifest, request.name)
        folder = await self._bundles.unpacked(bundle)
        return ManifestSource(
            path=f"{folder}/{manifest}",
            directory=folder,
            name=request.name,
            digest=bundle.digest,
        )

    async def options(
        self, job: QueuedRun, report: RunReport, done: Sequence[TransactionEvent]
    ) -> ApplyOptions:
        """
        Return the options of a run; its events go to `report`.

        Args:
            job, report: The run.
            done: The part of the run that an earlier process completed; None if there was none.
        """
        request, own, settings = job.request, job.own, self._settings()
        facts = await self._facts.current()

        def on_start(start: SessionStart) -> None:
            if own is not None and own.on_start is not None:
                own.on_start(start)
            if not report.has_started:
                report.start(start)

        external_data = settings.external_data_url
        urls = [external_data] if external_data else []
        if isinstance(request, ManifestRequest):
            urls += request.data
        return ApplyOptions(
            noop=job.action == "plan",
            health_check_only=job.action == "check",
            hiera=tuple(urls),
            keeps_hiera=True,
            pins=own.pins if own is not None else {},
            facts=facts,
            cause=report.frame.cause,
            requester=request.requester,
            node=report.frame.node,
            run=job.run,
            on_start=on_start,
            on_event=self._on_event(report),
            on_resource=report.on_resource,
            done=done,
            metrics=self._metrics,
            grant=job.grant,
            own_hiera=frozenset({external_data} if external_data else ()),
            is_literal=isinstance(request, ExecRequest),
            scope=own.scope if own is not None else f"request {job.name}",
            diff=not isinstance(request, ExecRequest) and request.diff,
            undo_log=self._undo if self._undo.is_on else None,
            # Checks continue, because a lock prevents changes of a resource, but not checks.
            lock=self._locks.why if job.action != "check" else None,
            selection=request.part if isinstance(request, ManifestRequest) else None,
        )

    def _on_event(self, report: RunReport) -> OnEvent:
        """Return a function that passes the engine's events to the report, and to the metrics if they are on."""
        metrics = self._metrics
        if metrics is None:
            return report.resource

        async def count_and_report(event: TransactionEvent) -> None:
            metrics.resource(event)
            await report.resource(event)

        return count_and_report


class EngineDriver:
    """
    Applies, plans, checks or undoes with the engine, as each run requires.

    Args:
        engine: The engine.
        reader: Reads manifests and builds options.
        plans: The plans that an operator may apply.
        undo: The undo records of this node's runs.
        clock: Returns the current time.
        desired: The node's sources; None if there are none.
    """

    def __init__(
        self,
        engine: Engine,
        reader: RunReader,
        plans: PlanStore,
        undo: UndoStore,
        clock: Clock,
        desired: DesiredState | None = None,
    ) -> None:
        self._engine = engine
        self._reader = reader
        self._plans = plans
        self._undo = undo
        self._clock = clock
        self._desired = desired

    async def apply(
        self,
        job: QueuedRun,
        report: RunReport,
        done: Sequence[TransactionEvent],
        stop: StopFlag,
        on_secret: Callable[[str, int], None],
    ) -> SessionSummary:
        """
        Execute a run, and return the engine's summary, or a summary of the events so far.

        Args:
            job, report: The run.
            done: The part of the run that an earlier process completed.
            stop: Stops the run.
            on_secret: Called, in any thread, with the name and the revision of each secret that the run opens.

        Raises:
            CcmError: The run failed as a whole.
        """
        request = job.request
        options = replace(await self._reader.options(job, report, done), stop=stop, on_secret=on_secret)
        if job.own is not None:
            options = self._with_others(options)
        if isinstance(request, ManifestRequest) and request.stage is not None:
            return await self._apply_stage(request.stage, job, report, options)
        if not isinstance(request, ManifestRequest):
            report.start()
            if isinstance(request, ExecRequest):
                await self._engine.ensure("exec", command_properties(request), options)
            else:
                await self._engine.ensure(request.type, request.properties, options)
            summary = report.totals()
            stop.record_in(summary)
            return summary
        source = job.own.source if job.own else await self._reader.source(request)
        if request.plan and not done:
            await self._check_plan(request, source, options)
        if request.undo and job.action == "apply":
            return await self._undo.follow(request.undo, self._engine.apply(source, options))
        if not request.keep or job.action != "plan":
            return await self._engine.apply(source, options)
        summary, found = await self._plan(request, source, options)
        # An apply could change more than a restricted plan can show, and a failed run is not saved as a plan.
        if (
            summary.state in (NodeState.STABLE, NodeState.CHANGED)
            and not summary.unknown_count
            and await self._plans.keep(found)
        ):
            summary.found = found.found
        return summary

    async def _apply_stage(
        self, stage: AssignmentStage, job: QueuedRun, report: RunReport, options: ApplyOptions
    ) -> SessionSummary:
        """Get the next revision of an assignment, and apply it with the data that it pins."""
        if job.action != "apply":
            # Otherwise, the convergence loop would apply a revision that was released by an operator who may only plan.
            raise ProtocolError(f"{job.name}: a {job.action} cannot release a revision; only an apply can")
        if self._desired is None:
            raise Refusal("request.unknown", "this agent has no assignments")
        released, summary = await self._desired.release(stage), None
        try:
            summary = await self._apply_release(released, report, options)
            return summary
        finally:
            released.close(None if _is_ending(options) else summary)

    async def _apply_release(
        self, released: ReleasedRun, report: RunReport, options: ApplyOptions
    ) -> SessionSummary:
        source = await released.fetch()
        report.judge = released.judge
        # the name of the manifest, as in the runs of the convergence loop
        report.frame = replace(report.frame, manifest=source.name)
        options = replace(
            options,
            hiera=(*options.hiera, *released.data),
            pins=released.pins,
            scope=released.scope,
            on_start=released.start_with(options.run, options.on_start),
        )
        return await self._engine.apply(source, self._with_others(options))

    def _with_others(self, options: ApplyOptions) -> ApplyOptions:
        """Return the options for a run of a source. It does not prune resources that other sources manage."""
        if self._desired is None:
            return options
        return replace(options, managed_elsewhere=partial(self._desired.managed_elsewhere, options.scope))

    async def _plan(
        self, request: ManifestRequest, source: ManifestSource, options: ApplyOptions
    ) -> tuple[SessionSummary, SavedPlan]:
        """Plan, and return the planned changes along with the summary."""
        record, on_event = PlanRecord(), options.on_event

        async def note(event: TransactionEvent) -> None:
            record.add(event)
            waiting = on_event(event) if on_event is not None else None
            if waiting is not None:
                await waiting

        planned = replace(options, noop=True, on_event=note)
        summary = await self._engine.apply(source, planned)
        return summary, record.finish(options.run, summary, request.data, self._clock.now())

    async def _check_plan(
        self, request: ManifestRequest, source: ManifestSource, options: ApplyOptions
    ) -> None:
        """
        Plan again without reporting it, and compare with the plan to apply.

        Raises:
            PlanError: This node does not have the plan, or the node has changed since. Nothing was changed.
        """
        run = request.plan
        kept = await self._plans.find(run)
        if kept is None:
            raise PlanError(
                f"this node does not have the plan {short_id(run)}: it keeps the newest 20 for a day; plan again"
            )
        quiet = replace(
            options, on_event=None, on_start=None, on_resource=None, metrics=None, diff=False, done=()
        )
        summary, found = await self._plan(request, source, quiet)
        if _is_ending(options):
            return  # The apply ends immediately, and the next process checks again.
        is_other = (kept.digest, kept.data) != (found.digest, found.data)
        moved = ["the manifest"] if is_other else kept.moved(found)
        if moved or summary.reason:
            more = f" and {len(moved) - MOVED_NAMED} more" if len(moved) > MOVED_NAMED else ""
            names = ", ".join(one[:200] for one in moved[:MOVED_NAMED]) or summary.reason
            raise PlanError(
                f"nothing was changed: since the plan {short_id(run)}, these have changed: {names}{more}; plan again"
            )


def _is_ending(options: ApplyOptions) -> bool:
    """Whether an operator stops the run, or the agent is stopping."""
    return options.stop is not None and bool(options.stop.is_set or options.stop.is_pause)
