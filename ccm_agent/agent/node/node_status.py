"""
What the agent says when somebody asks how it is, and why it takes on nothing at all when it does not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from ccm_agent.agent.events.publisher import EventPublisher
from ccm_agent.agent.events.spool import Spool
from ccm_agent.agent.node.assigned_facts import AssignedFacts
from ccm_agent.agent.node.maintenance import Maintenance
from ccm_agent.agent.node.node_presence import NodePresence
from ccm_agent.agent.requests.request_handler import Refusal
from ccm_agent.agent.requests.subscriptions import Subscriptions
from ccm_agent.agent.runs.run_queue import RunQueue
from ccm_agent.model.wire import NODE_FACTS, NODE_PING, NODE_STATUS, AssignmentState, Progress


class NodeStatus(Struct, frozen=True, kw_only=True):
    """
    The parts of one agent that have something to say about how it is.

    Attributes:
        version: The agent's version.
        heartbeat: Record and identity.
        run_queue: The current run and those that wait.
        spool, delivery: What has not been told yet, and why not.
        subscriptions, assigned: What it listens to.
        maintenance: Whether an operator disabled it.
        facts: All facts, as fresh as the configuration says.
        assignments: How it stands to each assignment that means it.
        manifests: What is known of each manifest of its own, and when it is applied next.
        progress: Where the run in hand is; None when there is none.
        waits_for: Locks of the host that it waits for, each with who has it.
        policy: What is known of the node's policy; None when it has none.
    """

    version: str
    heartbeat: NodePresence
    run_queue: RunQueue
    spool: Spool
    delivery: EventPublisher
    subscriptions: Subscriptions
    assigned: AssignedFacts
    maintenance: Maintenance
    facts: Callable[[], Awaitable[Mapping[str, Any]]]
    assignments: Callable[[], Mapping[str, AssignmentState]] = dict
    manifests: Callable[[], list[dict[str, Any]]]
    progress: Callable[[], Progress | None]
    waits_for: Callable[[], Mapping[str, str]]
    policy: Callable[[], dict[str, Any] | None] = lambda: None

    def bodies(self) -> dict[str, Callable[[], Awaitable[dict[str, Any]]]]:
        """What is answered to a question, by protocol id."""
        return {NODE_PING: self._ping, NODE_FACTS: self._all_facts, NODE_STATUS: self.status}

    def refusal(self, action: str) -> Refusal | None:
        """Why this node does not take on a run of this kind now; None when it does."""
        if self.heartbeat.is_duplicate:
            return Refusal("identity.duplicate", "another agent uses this identity; remove one of them")
        return self.maintenance.refusal(action)

    async def _ping(self) -> dict[str, Any]:
        return {"version": self.version}

    async def _all_facts(self) -> dict[str, Any]:
        return dict(await self.facts())

    async def status(self) -> dict[str, Any]:
        """All that is known of this node here and now."""
        current = self.run_queue.current
        record = self.heartbeat.record
        return {
            "version": self.version,
            "run": current.run if current else "",
            "name": current.name if current else "",
            "progress": self.progress(),
            "waits_for": dict(self.waits_for()),
            "waiting": [{"run": job.run, "name": job.name} for job in self.run_queue.waiting],
            "spool": {
                "events": self.spool.backlog,
                "bytes": self.spool.size_bytes,
                "lost": self.spool.lost,
            },
            "trouble": self.delivery.trouble,
            "scopes": self.subscriptions.scopes,
            "assigned": self.assigned.facts,
            "refused_facts": self.assigned.refusal,
            "last_run": record.last_run,
            "last_state": record.last_state,
            "last_time": record.last_time,
            "conflict": record.conflict,
            "refresh_pending": list(record.refresh_pending),
            "manifests": self.manifests(),
            "assignments": dict(self.assignments()),
            "disabled": self.maintenance.current,
            "policy": self.policy(),
        }
