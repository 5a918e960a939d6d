"""How long a reader waits for a replica that lags."""

from __future__ import annotations

import asyncio

LAG_S = 5.0
"""How long a replica may lag behind a write that is known to be stored."""


class RetryWindow:
    """Short pauses while a replica catches up, up to LAG_S in total."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + LAG_S
        self._next_s = 0.005

    async def pause(self) -> bool:
        """Wait a moment. Returns False immediately if LAG_S is used up."""
        if self._loop.time() >= self._deadline:
            return False
        await asyncio.sleep(self._next_s)
        self._next_s = min(0.1, self._next_s * 2)
        return True
