"""
What the agent can say of itself whenever its metrics are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ccm_agent.agent.node.node_status import NodeStatus
from ccm_agent.metrics.registry import Reading, Registry
from ccm_agent.model.ports import BrokerConnection


def add_gauges(
    registry: Registry, standing: NodeStatus, link: BrokerConnection, others: Iterable[Reading]
) -> None:
    """Take in the numbers of an agent's parts, and `others` beside them."""
    loop = asyncio.get_running_loop()
    spool, run_queue, heartbeat = standing.spool, standing.run_queue, standing.heartbeat
    prefix = "choria_ccm_agent"
    registry.add(
        Reading(f"{prefix}_spool_events", "Events not yet acknowledged", lambda: spool.backlog),
        Reading(f"{prefix}_spool_bytes", "Size of the spool", lambda: spool.size_bytes),
        Reading(
            f"{prefix}_events_sent_total",
            "Events acknowledged",
            lambda: standing.delivery.sent,
            kind="counter",
        ),
        Reading(f"{prefix}_runs_waiting", "Runs that wait for their turn", lambda: len(run_queue.waiting)),
        Reading(f"{prefix}_running", "A run is under way", lambda: run_queue.current is not None),
        Reading(f"{prefix}_connected", "The broker is there", lambda: link.connected),
        Reading(
            f"{prefix}_disabled",
            "An operator disabled the agent",
            lambda: heartbeat.record.disabled is not None,
        ),
        Reading(f"{prefix}_duplicate", "Another agent uses the identity", lambda: heartbeat.is_duplicate),
        Reading(f"{prefix}_tasks", "Tasks of the event loop", lambda: len(asyncio.all_tasks(loop))),
        *others,
    )
