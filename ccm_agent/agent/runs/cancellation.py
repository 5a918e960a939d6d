"""How tasks end: asked until they have."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

ASK_AGAIN_S = 5.0
"""Longer than any of them needs to tidy up."""


async def cancel_and_wait(tasks: Collection[asyncio.Task[Any]], ask_again_s: float = ASK_AGAIN_S) -> None:
    """
    Cancel tasks, again after a while, until all have ended.

    In Python 3.11 `asyncio.wait_for` loses a cancellation that comes with its result; what a library waits for with it would
    go on for ever, and the process with it.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=ask_again_s)


async def never() -> bool:
    """No other process follows."""
    return False
