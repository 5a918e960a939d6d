"""Fake `Locks` within one test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ccm_agent.model.errors import LockError


class FakeLocks:
    """
    `Locks` without files.

    Attributes:
        held: The names of the acquired locks, in order.
        foreign: Other holders, by the name of the lock. Such locks cannot be acquired.
    """

    def __init__(self) -> None:
        self.held: list[str] = []
        self.foreign: dict[str, str] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """See `Locks.hold`."""
        if name in self.foreign:
            raise LockError(f"the {name} lock of this host is still held by {self.foreign[name]}")
        async with self._locks.setdefault(name, asyncio.Lock()):
            self.held.append(name)
            yield
