"""
What the agent tells whoever is at its host, and leaves there in a file for when it does not run.

The file is a convenience: it is written without a flush, and whoever reads it must be able to do without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from ccm_agent.agent.cache.state_file import load_state
from ccm_agent.agent.node.node_status import NodeStatus
from ccm_agent.model.json_text import encode_told
from ccm_agent.model.ports import BrokerConnection, Clock

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
