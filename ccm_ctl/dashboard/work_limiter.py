"""A limit on expensive requests. A few run at the same time, a few more wait, and others are refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from ccm_agent.model.errors import CcmError

AT_ONCE = 2
OF_ONE_USER = 3
"""The maximum number of one user's requests that run or wait. The limit leaves places for other users."""

IN_ALL = 12


class TooBusyError(CcmError):
    """Too many expensive requests are in progress."""

    code = "dashboard.busy"


class WorkLimiter:
    """Limits the number of expensive requests that run at the same time."""

    def __init__(self, at_once: int = AT_ONCE, of_one_user: int = OF_ONE_USER, in_all: int = IN_ALL) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._of_one_user = of_one_user
        self._in_all = in_all
        self._users: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def place(self, user: str) -> AsyncIterator[None]:
        """
        Wait for a free place, and occupy it during the block.

        Raises:
            TooBusyError: Too many requests of this user, or of all users, are already waiting.
        """
        if self._users[user] >= self._of_one_user or self._users.total() >= self._in_all:
            raise TooBusyError("too many costly requests are in progress; try again in a moment")
        self._users[user] += 1
        try:
            async with self._places:
                yield
        finally:
            self._users[user] -= 1
            self._users += Counter()  # remove users without requests
