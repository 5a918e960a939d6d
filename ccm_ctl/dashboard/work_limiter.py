"""A bound on costly answers: a few are made at once, a few more wait, and the rest are refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from ccm_agent.model.errors import CcmError

AT_ONCE = 2
OF_ONE_USER = 3
"""Answers that are made for one user or wait, so that one user leaves room for others."""

IN_ALL = 12


class TooBusyError(CcmError):
    """Too many costly answers are being made."""

    code = "dashboard.busy"


class WorkLimiter:
    """Lets a few costly answers be made at once."""

    def __init__(self, at_once: int = AT_ONCE, of_one_user: int = OF_ONE_USER, in_all: int = IN_ALL) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._of_one_user = of_one_user
        self._in_all = in_all
        self._users: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def place(self, user: str) -> AsyncIterator[None]:
        """
        Wait for a place, and hold it within the block.

        Raises:
            TooBusyError: Too many of this user, or of all users, wait already.
        """
        if self._users[user] >= self._of_one_user or self._users.total() >= self._in_all:
            raise TooBusyError("too many costly requests are in progress; try again in a moment")
        self._users[user] += 1
        try:
            async with self._places:
                yield
        finally:
            self._users[user] -= 1
            self._users += Counter()  # forget users without any
