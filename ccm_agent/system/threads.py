"""
Runs blocking work in threads.

Switching to a thread costs about 0.1 ms, which is longer than most single system calls. Therefore a whole operation runs in a
single call of a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """The threads for one kind of work. They are separate, so that one kind of work does not block another."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._pool: ThreadPoolExecutor | None = None

    async def call(
        self, function: Callable[..., T], *args: Any, on_cancel: Callable[[], None] | None = None
    ) -> T:
        """
        Run the function in a thread. Return its result or raise its error.

        A cancelled caller waits until the function has ended. Otherwise the thread could continue to write to a file that the
        next step already uses.

        Args:
            on_cancel: Called on the loop when the caller is cancelled, to request an early end of the function.
        """
        # run_in_executor with a shield would need 50% more CPU time and an additional iteration of the loop
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
    """A flag that requests an early end. A thread checks it between steps."""

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
            continue  # the first cancellation is raised again when the thread has ended
