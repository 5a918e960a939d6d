"""
Blocking work in threads, one hop for a whole operation.

A hop costs about 0.1 ms, more than most single calls that it takes off the loop; so an operation goes over as a whole.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")


class Threads:
    """Some threads of one kind of work, so that no kind keeps another waiting."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._pool: ThreadPoolExecutor | None = None

    async def call(
        self, function: Callable[..., T], *args: Any, on_cancel: Callable[[], None] | None = None
    ) -> T:
        """
        What the function returns or raises.

        Who is cancelled while it runs is not let go before it has ended: a file half written by a thread that nobody waits
        for would come as a surprise to what follows.

        Args:
            on_cancel: Asks the function, from the loop, to end early.
        """
        future = asyncio.get_running_loop().run_in_executor(self._threads(), function, *args)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if on_cancel:
                on_cancel()
            await _ended(future)
            raise

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix=self._name)
        return self._pool


class CancelFlag:
    """A wish, seen by a thread between two pieces of work, that it end early."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Wish it."""
        self._event.set()

    def check(self) -> None:
        """Raise InterruptedError when it is wished."""
        if self._event.is_set():
            raise InterruptedError("nobody waits for this any more")


async def _ended(future: asyncio.Future[Any]) -> None:
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            continue  # the first one is raised again by the caller when the thread is done
    if not future.cancelled():
        future.exception()  # looked at, so that nobody logs it as forgotten
