"""
The agent's reports about itself: for requests from the controller, for commands on the host, and in a file that can be read
while the agent is off.

The file is written without a flush. It may be missing; its readers do not depend on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ccm_agent.agent.cache.facts import FactCache
from ccm_agent.agent.events.publisher import EventPublisher
from ccm_agent.agent.runs.admission import Admission
from ccm_agent.agent.runs.run_executor import RunExecutor
from ccm_agent.agent.runs.run_queue import RunQueue
from ccm_agent.agent.state.presence import NodePresence
from ccm_agent.agent.state.state_folder import STATUS_FILE
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.ports import BrokerConnection, Clock
from ccm_agent.model.wire import NODE_FACTS, NODE_PING, NODE_STATUS, NodeRecord
from ccm_agent.storage.spool import Spool


class DeliveryStatus:
    """
    The events that wait on this node, and the reason.

    Args:
        spool: The events.
        publisher: Sends them.
        folder: The state folder.
    """

    def __init__(self, spool: Spool, publisher: EventPublisher, folder: Path) -> None:
        self._spool = spool
        self._publisher = publisher
        self._folder = folder

    async def status(self) -> dict[str, Any]:
        """Return this part of the status."""
        spool = self._spool
        return {
            "spool": {
                "events": spool.backlog,
                "bytes": spool.size_bytes,
                "lost": spool.lost,
                "trouble": await self.find_disk_trouble(),
            },
            "trouble": self._publisher.trouble,
        }

    async def find_disk_trouble(self) -> str:
        """Return why the last event could not be written to disk; "" if it was written, or if the disk is writable again."""
        trouble = self._spool.trouble
        if not trouble:
            return ""
        is_over: bool = await asyncio.to_thread(_takes_data, self._folder)
        return "" if is_over else trouble


class RunStatus:
    """
    The current run of this node, and the waiting runs.

    Args:
        run_queue: The runs.
        executor: Executes the current run.
        waits_for: Locks of this host that the current resource waits for, each with its holder.
    """

    def __init__(
        self, run_queue: RunQueue, executor: RunExecutor, waits_for: Callable[[], Mapping[str, str]]
    ) -> None:
        self._run_queue = run_queue
        self._executor = executor
        self._waits_for = waits_for

    def status(self) -> dict[str, Any]:
        """Return this part of the status."""
        current, report = self._run_queue.current, self._executor.report
        return {
            "run": current.run if current else "",
            "name": current.name if current else "",
            "stopping": self._executor.stopped_by if current else "",
            "progress": report.progress_now() if report else None,
            "waits_for": dict(self._waits_for()),
            "waiting": [{"run": job.run, "name": job.name} for job in self._run_queue.waiting],
        }


class NodeStatus:
    """
    The status of one agent.

    Args:
        presence: The node's record.
        facts: The node's facts.
        admission: Decides whether runs may start.
        runs: The current run and the waiting runs.
        delivery: The waiting events.
        desired: Returns the status of the node's manifests and assignments.
    """

    def __init__(
        self,
        presence: NodePresence,
        facts: FactCache,
        admission: Admission,
        runs: RunStatus,
        delivery: DeliveryStatus,
        desired: Callable[[], dict[str, Any]],
    ) -> None:
        self._presence = presence
        self._facts = facts
        self._admission = admission
        self._runs = runs
        self._delivery = delivery
        self._desired = desired

    def bodies(self) -> dict[str, Callable[[], Awaitable[dict[str, Any]]]]:
        """Return a function for the body of each kind of answer, by protocol id."""
        return {NODE_PING: self._ping, NODE_FACTS: self._all_facts, NODE_STATUS: self.status}

    async def _ping(self) -> dict[str, Any]:
        return {"version": self._presence.record.version}

    async def _all_facts(self) -> dict[str, Any]:
        return dict(await self._facts.current())

    async def status(self) -> dict[str, Any]:
        """Return the complete status of this node."""
        record, assigned, admission = self._presence.record, self._facts.assigned, self._admission
        return {
            "version": record.version,
            **self._runs.status(),
            **await self._delivery.status(),
            "scopes": self._presence.scopes,
            "assigned": assigned.facts,
            "refused_facts": assigned.refusal,
            "last_run": record.last_run,
            "last_state": record.last_state,
            "last_time": record.last_time,
            "conflict": record.conflict,
            "plans_only": record.plans_only,
            "wrong_clock": record.wrong_clock,
            "refresh_pending": list(record.refresh_pending),
            **self._desired(),
            "disabled": admission.maintenance.current,
            "locks": admission.locks.current,
            "policy": admission.policy.status(),
        }


PROBE_BYTES = 4096


def _takes_data(folder: Path) -> bool:
    """Whether a file can be written to the folder. Blocking."""
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
"""The status file is written at most this often."""


class LocalStatus:
    """The status of one running agent."""

    def __init__(self, record: NodeRecord, status: NodeStatus, link: BrokerConnection, clock: Clock) -> None:
        self._record = record
        self._status = status
        self._link = link
        self._clock = clock

    async def now(self) -> dict[str, Any]:
        """Return the complete current status with JSON-compatible values."""
        record = self._record
        status = {
            "node": record.node,
            "pid": os.getpid(),
            "started": record.started,
            "time": self._clock.now(),
            "connected": self._link.connected,
            "assignments": record.assignments,
            **await self._status.status(),
        }
        plain: dict[str, Any] = msgspec.to_builtins(status)
        return plain

    async def keep(self, folder: Path) -> None:
        """Keep the file current until cancelled, then write it once more."""
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
