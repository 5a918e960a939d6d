"""
The assignments of an agent, put together from its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from ccm_agent.agent.cache.bundle_cache import BundleCache
from ccm_agent.agent.cache.document_cache import CachedBuckets
from ccm_agent.agent.context import AgentPorts
from ccm_agent.agent.desired.assignment_cache import AssignmentCache
from ccm_agent.agent.desired.assignment_loop import CAUSE, AssignmentContext
from ccm_agent.agent.desired.assignment_reconciler import KIND, AssignmentReconciler, ReconcilerContext
from ccm_agent.agent.desired.assignment_rules import BUCKET
from ccm_agent.agent.desired.assignment_status import AssignmentStatus
from ccm_agent.agent.desired.resource_conflicts import ResourceConflicts
from ccm_agent.agent.events.publisher import AgentEventPublisher
from ccm_agent.agent.node.facts import AssignedFacts
from ccm_agent.agent.node.presence import HeartbeatLoop, NodePresence
from ccm_agent.agent.node.status import NodeStatus
from ccm_agent.agent.process.config import Settings
from ccm_agent.agent.requests.authentication import RevisionGuard
from ccm_agent.agent.requests.subscriptions import Subscriptions
from ccm_agent.agent.runs.admission import NodePolicy
from ccm_agent.agent.runs.run_executor import ExecutorContext
from ccm_agent.agent.runs.run_queue import RunQueue


class ReconcilerParts(Struct, frozen=True, kw_only=True):
    """The parts of an agent that its assignments need."""

    node: str
    settings: Callable[[], Settings]
    ports: AgentPorts
    revision_guard: RevisionGuard
    assigned: AssignedFacts
    heartbeat: NodePresence
    heartbeats: HeartbeatLoop
    agent_events: AgentEventPublisher
    run_queue: RunQueue
    subscriptions: Subscriptions
    node_status: NodeStatus
    policy: NodePolicy
    executor: ExecutorContext
    bundles: BundleCache
    data: CachedBuckets


def make_reconciler(parts: ReconcilerParts) -> AssignmentReconciler:
    """What converges on the assignments of one node."""
    settings, ports, node = parts.settings(), parts.ports, parts.node
    state = Path(settings.state_dir)
    bucket = ports.bucket(BUCKET)
    states = AssignmentStatus(
        node,
        state / "assignment_states.json",
        ports.clock,
        lambda soon: _tell(parts, states, soon=soon),
        pending=lambda name: parts.executor.refreshes.of(f"{KIND}{name}"),
    )
    source = AssignmentCache(
        node, bucket, parts.revision_guard, state / "assignments.json", parts.agent_events.refused
    )
    loop_context = AssignmentContext(
        node=node,
        settings=parts.settings,
        run_queue=parts.run_queue,
        clock=ports.clock,
        states=states,
        unpack=parts.bundles.unpacked,
        fetch_pinned=parts.data.fetch_pinned,
        keep=partial(_keep, parts.data, source),
        bucket=ports.bucket,
        on_connect=ports.link.on_connect,
        is_disabled=parts.node_status.maintenance.is_disabled,
        metrics=parts.executor.metrics,
        refusal=parts.node_status.refusal,
        forbids=lambda known, action: parts.policy.refusal(known.asked_by, CAUSE, action),
        on_refused=parts.agent_events.refused,
        on_drift=parts.agent_events.drifted,
    )
    return AssignmentReconciler(
        ReconcilerContext(
            loop_context=loop_context,
            bucket=bucket,
            source=source,
            link=ports.link,
            scopes=lambda: parts.subscriptions.scopes,
            facts=parts.executor.facts,
            matches=partial(_matches, parts),
            resource_conflicts=ResourceConflicts(
                node,
                parts.executor.engine,
                parts.bundles.unpacked,
                parts.executor.external_data,
                lambda known: parts.policy.ruling(known.asked_by, CAUSE, "apply").grant,
            ),
            bundles=parts.bundles,
            data=parts.data,
            assigned=lambda: parts.assigned.facts,
            folder=state / "converged",
            refreshes=parts.executor.refreshes,
            on_conflict=partial(_complain, parts),
        )
    )


async def _keep(data: CachedBuckets, source: AssignmentCache) -> None:
    """Write down which assignments are known, once nothing is on disk that was pinned before them."""
    await data.drop_unused()
    await source.keep()


async def _matches(parts: ReconcilerParts, targets: list[str], where: str, facts: Mapping[str, Any]) -> bool:
    return await parts.ports.matches(targets, where, parts.node, facts)


def _tell(parts: ReconcilerParts, states: AssignmentStatus, *, soon: bool) -> None:
    parts.heartbeat.record.assignments = dict(states.told)
    if soon:
        parts.heartbeats.soon()


def _complain(parts: ReconcilerParts, sentence: str) -> None:
    parts.heartbeat.complain("assignments", sentence)
    parts.heartbeats.soon()
