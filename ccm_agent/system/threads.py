"""
Run blocking work in threads.

A thread hop costs about 0.1 ms, more than most single calls, so a whole operation is one hop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """The threads for one kind of work. Separate threads keep one kind of work from blocking another."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._pool: ThreadPoolExecutor | None = None

    async def call(
        self, function: Callable[..., T], *args: Any, on_cancel: Callable[[], None] | None = None
    ) -> T:
        """
        Run the function in a thread, and return its result or raise its error.

        A cancelled caller still waits until the function has ended. Otherwise the thread could keep writing to a file that the
        next step already uses.

        Args:
            on_cancel: Called on the loop to request an early end of the function.
        """
        # run_in_executor with a shield would take half as much CPU time again, and one more turn of the loop
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        future = self._threads().submit(function, *args)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
        try:
            await ended.wait()
        except asyncio.CancelledError:
            if on_cancel:
                on_cancel()
            await _wait_through(ended)
            raise
        return future.result()

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix=self._name)
        return self._pool


class CancelFlag:
    """A request to end early, which a thread checks between steps."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Request an early end."""
        self._is_set = True

    def check(self) -> None:
        """Raise InterruptedError if an early end is requested."""
        if self._is_set:
            raise InterruptedError("cancelled: the caller does not need the result")


async def _wait_through(ended: asyncio.Event) -> None:
    while not ended.is_set():
        try:
            await ended.wait()
        except asyncio.CancelledError:
            continue  # the caller raises the first cancellation again when the thread has ended
