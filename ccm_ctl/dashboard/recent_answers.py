"""Answers that many browsers ask for at the same moment: each is made once, and kept for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

KEPT_S = 1.0
KEPT = 50
"""The most questions whose answers are kept."""


class RecentAnswers:
    """The newest answers, by what was asked."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def give(self, key: Hashable, make: Callable[[], Awaitable[Any]]) -> Any:
        """The answer to a question, made now unless one was begun less than KEPT_S ago; errors are those of `make`."""
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
        # a browser that leaves must not end what others wait for
        return await asyncio.shield(found[1])


def _look_at_error(task: asyncio.Task[Any]) -> None:
    """All browsers may have left before it failed."""
    if not task.cancelled():
        task.exception()
