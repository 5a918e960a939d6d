"""A short-lived cache. An answer that many browsers request at the same time is computed only once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

KEPT_S = 1.0
KEPT = 50
"""The maximum number of cached answers."""


class RecentAnswers:
    """Caches recent answers by key."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def give(self, key: Hashable, make: Callable[[], Awaitable[Any]]) -> Any:
        """
        Return the answer for a key. Raises the errors of `make`.

        `make` is called unless an earlier call for the key is still running, or started less than KEPT_S ago.
        """
        now = asyncio.get_running_loop().time()
        self._made = {
            one: (at, task)
            for one, (at, task) in list(self._made.items())[-KEPT:]
            if not task.done() or now - at < KEPT_S
        }
        found = self._made.get(key)
        if found is None:

            async def made() -> Any:
                return await make()

            task = asyncio.create_task(made(), name="dashboard:answer")
            task.add_done_callback(_look_at_error)
            self._made[key] = found = now, task
        # a browser that disconnects must not cancel an answer that others wait for
        return await asyncio.shield(found[1])


def _look_at_error(task: asyncio.Task[Any]) -> None:
    """Retrieve the error, so that asyncio does not log it if all browsers have disconnected."""
    if not task.cancelled():
        task.exception()
