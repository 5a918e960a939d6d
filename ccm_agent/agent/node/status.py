"""
What the agent reports about itself: to requests from the controller, to commands on the host, and in a file for when it is off.

The file is written without a flush. It may be missing, and its readers work without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ccm_agent.agent.state.state_folder import STATUS_FILE
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.wire import NODE_FACTS, NODE_PING, NODE_STATUS

if TYPE_CHECKING:
    from ccm_agent.agent.desired.assignment_reconciler import AssignmentReconciler
    from ccm_agent.agent.desired.manifest_reconciler import ManifestReconciler
    from ccm_agent.agent.events.publisher import EventPublisher
    from ccm_agent.agent.process.context import AgentContext
    from ccm_agent.agent.runs.run_executor import RunExecutor


class NodeStatus:
    """What one agent reports about itself."""

    def __init__(
        self,
        context: AgentContext,
        executor: RunExecutor,
        publisher: EventPublisher,
        assignments: AssignmentReconciler,
        manifests: ManifestReconciler | None,
    ) -> None:
        self._context = context
        self._executor = executor
        self._publisher = publisher
        self._assignments = assignments
        self._manifests = manifests

    def bodies(self) -> dict[str, Callable[[], Awaitable[dict[str, Any]]]]:
        """The body of each kind of answer, by protocol id."""
        return {NODE_PING: self._ping, NODE_FACTS: self._all_facts, NODE_STATUS: self.status}

    async def _ping(self) -> dict[str, Any]:
        return {"version": self._context.version}

    async def _all_facts(self) -> dict[str, Any]:
        context = self._context
        return dict(await context.facts.current(context.settings.facts_interval_s))

    async def status(self) -> dict[str, Any]:
        """All that is known of this node now."""
        context, record, spool = self._context, self._context.record, self._context.spool
        current, report = context.run_queue.current, self._executor.report
        return {
            "version": context.version,
            "run": current.run if current else "",
            "name": current.name if current else "",
            "stopping": self._executor.stopped_by if current else "",
            "progress": report.progress_now() if report else None,
            "waits_for": dict(context.ports.waits_for()),
            "waiting": [{"run": job.run, "name": job.name} for job in context.run_queue.waiting],
            "spool": {
                "events": spool.backlog,
                "bytes": spool.size_bytes,
                "lost": spool.lost,
                "trouble": await find_disk_trouble(context),
            },
            "trouble": self._publisher.trouble,
            "scopes": context.scopes,
            "assigned": context.assigned.facts,
            "refused_facts": context.assigned.refusal,
            "last_run": record.last_run,
            "last_state": record.last_state,
            "last_time": record.last_time,
            "conflict": record.conflict,
            "plans_only": record.plans_only,
            "wrong_clock": record.wrong_clock,
            "refresh_pending": list(record.refresh_pending),
            "manifests": self._manifests.status() if self._manifests else [],
            "assignments": dict(self._assignments.states.now),
            "disabled": context.admission.maintenance.current,
            "locks": context.locks.current,
            "policy": context.admission.policy.status(),
        }


async def find_disk_trouble(context: AgentContext) -> str:
    """Why the last event could not be written to disk; "" if it was, or if the disk takes data again."""
    trouble = context.spool.trouble
    if not trouble:
        return ""
    is_over: bool = await asyncio.to_thread(_takes_data, context.state)
    return "" if is_over else trouble


PROBE_BYTES = 4096


def _takes_data(folder: Path) -> bool:
    """Whether a file can be written there. Blocking."""
    probe = folder / "probe.new"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(probe, flags, 0o600), "wb") as file:
            file.write(bytes(PROBE_BYTES))
        probe.unlink()
    except OSError:
        return False
    return True


KEEP_S = 5.0
"""The file is written at most this often."""


class LocalStatus:
    """The status of one agent that runs."""

    def __init__(self, context: AgentContext, status: NodeStatus) -> None:
        self._context = context
        self._status = status

    async def now(self) -> dict[str, Any]:
        """All of it, as it is now, in words that JSON has."""
        context, record = self._context, self._context.record
        status = {
            "node": record.node,
            "pid": os.getpid(),
            "started": record.started,
            "time": context.clock.now(),
            "connected": context.link.connected,
            "assignments": record.assignments,
            **await self._status.status(),
        }
        plain: dict[str, Any] = msgspec.to_builtins(status)
        return plain

    async def keep(self, folder: Path) -> None:
        """Keep the file current until cancelled, then write it a last time."""
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


def _without_time(status: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in status.items() if key != "time"}


def _write(folder: Path, status: dict[str, Any]) -> None:
    fresh = folder / f"{STATUS_FILE}.new"
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
            file.write(encode_message(status))
        fresh.replace(folder / STATUS_FILE)
