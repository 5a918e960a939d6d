"""Handle Ctrl-C: the first one stops the work cleanly, the second one ends the process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Cancel the current task at the first Ctrl-C, and end the process at the second."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        assert task is not None
        task.cancel()

    try:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    except (
        NotImplementedError,
        RuntimeError,
        ValueError,
    ):  # in other threads, signals do not arrive
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
