"""Builds the services of an agent. Each service receives its dependencies as arguments, and does not access other services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.agent.cache.facts import FactCache
from ccm_agent.agent.desired.assignment_content import AssignmentContent
from ccm_agent.agent.desired.assignment_reconciler import (
    AssignmentLoops,
    AssignmentReader,
    AssignmentReconciler,
    AssignmentReleases,
    ConflictingAssignments,
)
from ccm_agent.agent.desired.assignment_source import AssignmentSource, AssignmentTriggers
from ccm_agent.agent.desired.assignment_status import AssignmentRules, AssignmentStatus, publish_states
from ccm_agent.agent.desired.assignments import BUCKET as ASSIGNMENTS
from ccm_agent.agent.desired.assignments import AssignmentCache, AssignmentSelection
from ccm_agent.agent.desired.drift import SourceRecords
from ccm_agent.agent.desired.loop import ConvergenceLoop, ConvergenceResult, MakeLoop, Pause, pause
from ccm_agent.agent.desired.manifest_reconciler import ManifestBuilder, ManifestReconciler
from ccm_agent.agent.desired.origins import SourcePorts
from ccm_agent.agent.desired.resource_conflicts import ResourceConflicts
from ccm_agent.agent.desired.timer import IntervalTimer, MakeTimer
from ccm_agent.agent.desired.watcher import ExternalData
from ccm_agent.agent.events.publisher import EventPublisher, ProgressSender
from ccm_agent.agent.node.heartbeat import HeartbeatLoop, NodeKeys
from ccm_agent.agent.node.status import DeliveryStatus, LocalStatus, NodeStatus, RunStatus
from ccm_agent.agent.process.context import AgentContext
from ccm_agent.agent.requests.missed_schedules import MissedSchedules
from ccm_agent.agent.requests.node_commands import NodeCommands
from ccm_agent.agent.requests.request_handler import RequestHandler, RequestTargets
from ccm_agent.agent.requests.requested_runs import AnswerSender, CommandHandler, RequestedRuns
from ccm_agent.agent.requests.resource_imports import ResourceImports
from ccm_agent.agent.requests.subscriptions import (
    AssignedReader,
    NodeScopes,
    RequestQueue,
    SignersReader,
    Subscriptions,
)
from ccm_agent.agent.runs.engine_driver import DesiredState, EngineDriver, RunReader
from ccm_agent.agent.runs.recovery import Recovery
from ccm_agent.agent.runs.run_executor import RunExecutor, RunReports
from ccm_agent.agent.runs.run_loop import ProgressPublisher, RunLoop
from ccm_agent.agent.runs.run_queue import ReleasedRun
from ccm_agent.agent.runs.run_records import RunRecords
from ccm_agent.bus.signatures.trust import TRUST_BUCKET
from ccm_agent.model.wire import AssignmentStage
from ccm_agent.sessions.refresh_store import SCOPE


class NodeSources:
    """
    The assignments and configured manifests of one node; see `DesiredState`.

    Args:
        releases: Accepts revisions that a rollout releases.
        conflicts: Finds which assignments apply.
        resources: Finds the resources that a manifest manages.
        manifests: The configured manifests; None if there are none.
        facts: The facts of the node.
    """

    def __init__(
        self,
        releases: AssignmentReleases,
        conflicts: ConflictingAssignments,
        resources: ResourceConflicts,
        manifests: ManifestReconciler | None,
        facts: FactCache,
    ) -> None:
        self._releases = releases
        self._conflicts = conflicts
        self._resources = resources
        self._manifests = manifests
        self._facts = facts

    async def release(self, stage: AssignmentStage) -> ReleasedRun:
        """Accept the next revision of an assignment; see `AssignmentReleases.release`."""
        return await self._releases.release(stage)

    async def managed_elsewhere(self, scope: str) -> Collection[str] | None:
        """Return the keys of the resources that all other sources manage (see `Engine.managed`); None if unknown."""
        keys = await self._conflicts.managed_but(scope.removeprefix(SCOPE) if scope.startswith(SCOPE) else "")
        manifests = await self._manifests.manifests_but(scope) if self._manifests is not None else []
        if keys is None or manifests is None:
            return None
        facts = await self._facts.current()
        for source, principal in manifests:
            managed = await self._resources.of_manifest(source, principal, facts)
            if managed is None:
                return None
            keys.update(managed)
        return keys


class DesiredServices(Struct, frozen=True, kw_only=True):
    """
    The services that converge this node: assignments, releases of rollouts, and manifests; None: there are no manifests.
    """

    assignments: AssignmentReconciler
    sources: NodeSources
    manifests: ManifestReconciler | None

    def status(self) -> dict[str, Any]:
        """Return the services' part of the node's status."""
        return {
            "manifests": self.manifests.status() if self.manifests else [],
            "assignments": dict(self.assignments.states.now),
        }


def make_desired(context: AgentContext) -> DesiredServices:
    """Build the services that converge on assignments and manifests."""
    make_timer = partial(IntervalTimer, context.node, clock=context.clock)
    spread = partial(pause, context.current_settings, context.clock)
    make_loop = partial(
        ConvergenceLoop,
        run_queue=context.run_queue,
        clock=context.clock,
        is_disabled=context.admission.maintenance.is_disabled,
        metrics=context.metrics,
        pause=spread,
    )
    records = SourceRecords(
        context.state / "converged",
        context.refreshes,
        context.secret_uses,
        context.assigned,
        context.events.drifted,
        context.state / "creations",
    )
    resources = ResourceConflicts(
        context.node,
        context.engine,
        context.bundles,
        context.admission.policy,
        context.current_settings,
    )
    assignments, releases, conflicts = _make_assignments(
        context, records, make_timer, make_loop, spread, resources
    )
    manifests = _make_manifests(context, context.ports.sources, records, make_timer, make_loop)
    return DesiredServices(
        assignments=assignments,
        sources=NodeSources(releases, conflicts, resources, manifests, context.facts),
        manifests=manifests,
    )


def _make_manifests(
    context: AgentContext,
    sources: SourcePorts | None,
    records: SourceRecords,
    make_timer: MakeTimer,
    make_loop: MakeLoop,
) -> ManifestReconciler | None:
    if sources is None:
        return None
    if not context.settings.unsigned_objects:
        sources = replace(sources, check_object=context.authenticator.object)
    found = sources

    def watch(url: str, on_change: Callable[[], None]) -> ExternalData:
        return ExternalData(url, found, context.ports.bucket, on_change)

    maker = ManifestBuilder(
        sources, make_timer, context.admission, records, context.events.refused, context.metrics
    )
    return ManifestReconciler(context.current_settings, maker, watch, make_loop, records, context.link)


def _make_assignments(
    context: AgentContext,
    records: SourceRecords,
    make_timer: MakeTimer,
    make_loop: MakeLoop,
    spread: Pause,
    resources: ResourceConflicts,
) -> tuple[AssignmentReconciler, AssignmentReleases, ConflictingAssignments]:
    node, clock = context.node, context.clock
    settings, refused = context.current_settings, context.events.refused
    states = AssignmentStatus(
        node,
        context.state / "assignment_states.json",
        clock,
        partial(publish_states, context.presence),
        context.refreshes.of,
    )
    rules = AssignmentRules(context.admission, states, clock)
    bucket = context.ports.bucket(ASSIGNMENTS)
    cache = AssignmentCache(
        node, bucket, context.revision_guard, context.documents, context.state / "assignments.json", refused
    )
    selection = AssignmentSelection(
        cache, context.presence, context.facts, context.ports.matches, states.is_released, refused
    )
    conflicts = ConflictingAssignments(resources, rules, context.facts, context.presence)
    content = AssignmentContent(cache, context.bundles, context.documents, refused, spread)
    reader = AssignmentReader(cache, bucket, context.presence, context.link, settings, clock)

    make_triggers = partial(
        AssignmentTriggers,
        make_timer=make_timer,
        bucket=context.ports.bucket,
        link=context.link,
        settings=settings,
    )
    make_source = partial(
        AssignmentSource,
        make_triggers=make_triggers,
        records=records,
        status=states,
        rules=rules,
        content=content,
    )
    loops = AssignmentLoops(make_source, make_loop, records)
    assignments = AssignmentReconciler(reader, selection, conflicts, content, loops, states)
    releases = AssignmentReleases(selection, conflicts, content, states, records, assignments.decide_again)
    return assignments, releases, conflicts


class RunServices(Struct, frozen=True, kw_only=True):
    """The services that execute runs."""

    executor: RunExecutor
    recovery: Recovery


def make_runs(context: AgentContext, desired: DesiredState | None = None) -> RunServices:
    """Build the services that execute runs, and the one that makes the spool and the request log consistent at startup."""
    records = RunRecords(
        context.presence,
        context.request_log,
        context.undo,
        context.refreshes,
        context.secret_uses,
        context.locks,
    )
    reader = RunReader(
        context.current_settings,
        context.facts,
        context.bundles,
        context.undo,
        context.locks,
        context.metrics,
    )
    driver = EngineDriver(context.engine, reader, context.plans, context.undo, context.clock, desired)
    reports = RunReports(
        context.record,
        context.spool,
        context.clock,
        context.ports.shorten,
        context.undo,
        records.note_last,
    )
    executor = RunExecutor(driver, reports, records, context.checkpoints, context.spool, context.metrics)
    recovery = Recovery(
        context.spool, context.request_log, context.run_queue, context.checkpoints, records, context.clock
    )
    return RunServices(executor=executor, recovery=recovery)


class AgentServices(Struct, frozen=True, kw_only=True):
    """The services of an agent."""

    publisher: EventPublisher
    requests: RequestQueue
    missed: MissedSchedules
    desired: DesiredServices
    subscriptions: Subscriptions
    heartbeats: HeartbeatLoop
    runs: RunServices
    run_loop: RunLoop
    progress: ProgressPublisher
    commands: NodeCommands
    imports: ResourceImports
    command_handler: CommandHandler
    handler: RequestHandler
    local_status: LocalStatus


def make_services(
    context: AgentContext, converge: Callable[[], Awaitable[list[ConvergenceResult]]]
) -> AgentServices:
    """
    Build all services of an agent without starting them.

    Args:
        context: The state that the services share.
        converge: Converges now on all manifests and assignments.
    """
    ports, clock, presence = context.ports, context.clock, context.presence
    settings, queue = context.settings, context.run_queue

    def report_lost(events: int) -> None:
        context.events.lost(events)
        if context.metrics is not None:
            context.metrics.lost(events)

    publisher = EventPublisher(
        context.spool,
        ports.events,
        ports.link,
        retry_s=settings.retry_s,
        on_lost=report_lost,
        sign=context.author.sign,
    )
    requests = RequestQueue()
    missed = MissedSchedules(
        context.node,
        ports.requests,
        ports.link,
        context.state / "due.json",
        lambda: presence.scopes,
        requests.put,
        clock,
        context.request_log.knows,
    )
    desired = make_desired(context)
    scopes = NodeScopes(
        presence, context.facts, ports.requests, requests, context.events, context.current_settings
    )
    signers = SignersReader(context.authenticator, ports.bucket(TRUST_BUCKET), presence)
    assigned = AssignedReader(context.assigned, context.facts_bucket, context.events.refused)
    subscriptions = Subscriptions(
        scopes, signers, assigned, ports.link, missed, desired.assignments.read_again
    )
    delivery = DeliveryStatus(context.spool, publisher, context.state)
    keys = NodeKeys(presence, context.facts, queue, delivery, context.author, ports.can_read_own)
    heartbeats = HeartbeatLoop(
        keys,
        ports.link,
        context.events,
        context.request_log,
        context.current_settings,
        subscriptions.look_again,
    )
    runs = make_runs(context, desired.sources)
    status = NodeStatus(
        presence,
        context.facts,
        context.admission,
        RunStatus(queue, runs.executor, ports.waits_for),
        delivery,
        desired.status,
    )
    sender = ProgressSender(context.node, ports.events)
    commands = NodeCommands(context.admission, context.events, sender, converge, clock)
    answers = AnswerSender(context.record, queue, context.decisions, context.author, ports.events, clock)
    imports = ResourceImports(context.admission, ports.find_resources, answers)
    by_protocol = {**commands.by_protocol(), **imports.by_protocol()}
    command_handler = CommandHandler(
        runs.executor, queue, context.request_log, answers, by_protocol, status.bodies()
    )
    requested = RequestedRuns(context.request_log, queue, context.admission, answers, context.events, clock)
    targets = RequestTargets(context.node, context.facts, ports.matches)
    handler = RequestHandler(
        context.authenticator, targets, context.decisions, missed, requested, command_handler
    )
    run_loop = RunLoop(
        queue, context.admission, runs.executor, requested.not_started, context.revision_guard.save, clock
    )
    progress = ProgressPublisher(
        run_loop.is_busy, runs.executor, queue, context.spool, sender, context.current_settings
    )
    return AgentServices(
        publisher=publisher,
        requests=requests,
        missed=missed,
        desired=desired,
        subscriptions=subscriptions,
        heartbeats=heartbeats,
        runs=runs,
        run_loop=run_loop,
        progress=progress,
        commands=commands,
        imports=imports,
        command_handler=command_handler,
        handler=handler,
        local_status=LocalStatus(context.record, status, ports.link, clock),
    )
