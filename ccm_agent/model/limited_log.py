"""Lines in a log that others cause: bounded, so that a flood of bad messages does not fill a disk."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LINES = 10
"""So many lines of one message are written within a window."""

WINDOW_S = 60.0


class _Window(Struct):
    began: float
    written: int = 0
    left_out: int = 0


class LimitedLog:
    """
    A logger that writes ten lines a minute of each message and then says how many it left out.

    For what arrives from outside and is refused. The message is a constant, so there are few; what differs goes into `extra`.
    """

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._monotonic = monotonic
        self._windows: dict[str, _Window] = {}

    def warning(self, message: str, extra: Mapping[str, Any] | None = None) -> None:
        """Write a warning, unless there were too many of this message."""
        self._write(logging.WARNING, message, extra)

    def error(self, message: str, extra: Mapping[str, Any] | None = None) -> None:
        """Write an error, unless there were too many of this message."""
        self._write(logging.ERROR, message, extra)

    def exception(self, message: str, extra: Mapping[str, Any] | None = None) -> None:
        """Write an error with the traceback of the exception that is handled now, unless there were too many of this message."""
        self._write(logging.ERROR, message, extra, exc_info=True)

    def info(self, message: str, extra: Mapping[str, Any] | None = None) -> None:
        """Write a line of information, unless there were too many of this message."""
        self._write(logging.INFO, message, extra)

    def _write(
        self, level: int, message: str, extra: Mapping[str, Any] | None, *, exc_info: bool = False
    ) -> None:
        now = self._monotonic()
        window = self._windows.get(message)
        if window is None or now - window.began >= WINDOW_S:
            self._close(level, message)
            window = self._windows[message] = _Window(now)
        if window.written < LINES:
            window.written += 1
            self._log.log(level, message, extra=extra, stacklevel=3, exc_info=exc_info)
            return
        window.left_out += 1
        if window.left_out == 1:
            self._close_later(level, message, window)

    def _close_later(self, level: int, message: str, window: _Window) -> None:
        """Say how many were left out when the window ends, also when the flood has ended by then."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # the next message after the window says it
        loop.call_later(WINDOW_S, self._close_window, level, message, window)

    def _close_window(self, level: int, message: str, window: _Window) -> None:
        if self._windows.get(message) is window:
            self._close(level, message)

    def _close(self, level: int, message: str) -> None:
        window = self._windows.pop(message, None)
        if window is not None and window.left_out:
            extra = {"of": message, "count": window.left_out}
            self._log.log(level, "more of the same were not logged", extra=extra)
