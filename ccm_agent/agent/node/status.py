"""
What the agent reports about itself: to requests from the controller, to commands on the host, and in a file for when it is off.

The file is written without a flush. It may be missing, and its readers work without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.agent.cache.state_file import load_state
from ccm_agent.agent.events.publisher import EventPublisher
from ccm_agent.agent.events.spool import Spool
from ccm_agent.agent.node.facts import AssignedFacts
from ccm_agent.agent.node.presence import NodePresence
from ccm_agent.agent.requests.subscriptions import Subscriptions
from ccm_agent.agent.runs.admission import Maintenance
from ccm_agent.agent.runs.run_queue import RunQueue
from ccm_agent.model.errors import Refusal
from ccm_agent.model.json_text import encode_told
from ccm_agent.model.ports import BrokerConnection, Clock
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


FILE = "status.json"
"""In the state folder."""

KEEP_S = 5.0
"""The file is written at most this often."""


class LocalStatus:
    """The status of one agent that runs."""

    def __init__(
        self,
        standing: NodeStatus,
        link: BrokerConnection,
        clock: Clock,
    ) -> None:
        self._node_status = standing
        self._link = link
        self._clock = clock

    async def now(self) -> dict[str, Any]:
        """All of it, as it is now, in words that JSON has."""
        record = self._node_status.heartbeat.record
        status = {
            "node": record.node,
            "pid": os.getpid(),
            "started": record.started,
            "time": self._clock.now(),
            "connected": self._link.connected,
            "assignments": record.assignments,
            **await self._node_status.status(),
        }
        plain: dict[str, Any] = msgspec.to_builtins(status)
        return plain

    async def keep(self, folder: Path) -> None:
        """Keep the file right, for ever, and write it a last time when this is cancelled."""
        kept: dict[str, Any] = {}
        try:
            while True:
                status = await self.now()
                if _without_time(status) != _without_time(kept):
                    await asyncio.to_thread(_write, folder, status)
                    kept = status
                await asyncio.sleep(KEEP_S)
        finally:
            await asyncio.to_thread(_write, folder, await self.now())


def read_status(folder: Path) -> dict[str, Any]:
    """What the agent left there; empty when it left nothing. Blocking."""
    return load_state(folder / FILE, dict[str, Any]) or {}


def time_of(text: object) -> datetime | None:
    """A time within a status; None where there is none."""
    try:
        return datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None


def _without_time(status: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in status.items() if key != "time"}


def _write(folder: Path, status: dict[str, Any]) -> None:
    fresh = folder / f"{FILE}.new"
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
            file.write(encode_told(status))
        fresh.replace(folder / FILE)
