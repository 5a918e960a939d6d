"""
Rate limits for log lines that other programs can cause. They prevent a flood of bad messages from filling a
disk.

`LimitedLog` is for refused input from outside. `FloodFilter` limits every message of a log, as a second
line of defense.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from msgspec import Struct

LINES = 10
"""The maximum number of lines of one message within a window."""

LINES_OF_ANY = 100
"""
The maximum number of lines of one message that `FloodFilter` passes within a window. Each run of a node writes
a few lines.
"""

WINDOW_S = 60.0

MESSAGES_LIMIT = 1_000
"""
The maximum number of tracked messages. The program has fewer messages, because they are constants. The limit
guards against messages that contain values.
"""

LEFT_OUT = "repeated messages were not logged"


class _Window(Struct):
    began: float
    written: int = 0
    left_out: int = 0


class _Windows:
    """Counts lines by key within windows, and reports the number of dropped lines at the end of each window."""

    def __init__(
        self, lines: int, report: Callable[[int, Any, int], None], monotonic: Callable[[], float]
    ) -> None:
        self._lines = lines
        self._report = report
        self._monotonic = monotonic
        self._windows: dict[Hashable, _Window] = {}

    def admit(self, level: int, key: Hashable) -> bool:
        """Whether one more line may be written."""
        now = self._monotonic()
        window = self._windows.get(key)
        if window is None or now - window.began >= WINDOW_S:
            self._close(level, key)
            if len(self._windows) >= MESSAGES_LIMIT:
                self._close(level, next(iter(self._windows)))
            window = self._windows[key] = _Window(now)
        if window.written < self._lines:
            window.written += 1
            return True
        window.left_out += 1
        if window.left_out == 1:
            self._close_later(level, key, window)
        return False

    def _close_later(self, level: int, key: Hashable, window: _Window) -> None:
        """Report the number of dropped lines when the window ends, even if the flood has already ended."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # the next message after the window reports it
        loop.call_later(WINDOW_S, self._close_window, level, key, window)

    def _close_window(self, level: int, key: Hashable, window: _Window) -> None:
        if self._windows.get(key) is window:
            self._close(level, key)

    def _close(self, level: int, key: Hashable) -> None:
        window = self._windows.pop(key, None)
        if window is not None and window.left_out:
            self._report(level, key, window.left_out)


class LimitedLog:
    """
    A logger that writes at most ten lines of each message per minute, and then reports how many lines it dropped.

    It is used for refused input from outside. Messages must be constants, which limits their number. Values
    belong in `extra`.
    """

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._windows = _Windows(LINES, self._report, monotonic)

    def warning(self, message: str, extra: Mapping[str, Any] | None = None) -> None:
        """Write a warning, unless the limit for this message is reached."""
        self._write(logging.WARNING, message, extra)

    def error(self, message: str, extra: Mapping[str, Any] | None = None) -> None:
        """Write an error, unless the limit for this message is reached."""
        self._write(logging.ERROR, message, extra)

    def exception(self, message: str, extra: Mapping[str, Any] | None = None) -> None:
        """
        Write an error with the traceback of the current exception, unless the limit for this message is
        reached.
        """
        self._write(logging.ERROR, message, extra, exc_info=True)

    def info(self, message: str, extra: Mapping[str, Any] | None = None) -> None:
        """Write an informational line, unless the limit for this message is reached."""
        self._write(logging.INFO, message, extra)

    def _write(
        self, level: int, message: str, extra: Mapping[str, Any] | None, *, exc_info: bool = False
    ) -> None:
        if self._windows.admit(level, message):
            self._log.log(level, message, extra=extra, stacklevel=3, exc_info=exc_info)

    def _report(self, level: int, message: str, count: int) -> None:
        self._log.log(level, LEFT_OUT, extra={"of": message, "count": count})


class FloodFilter(logging.Filter):
    """
    Passes at most LINES_OF_ANY lines of each message per minute, and then reports how many lines it
    dropped.

    Use it on a handler of the root logger. Debug lines are not limited.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._windows = _Windows(LINES_OF_ANY, self._report, monotonic)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a record."""
        if record.levelno < logging.INFO or record.msg == LEFT_OUT:
            return True
        return self._windows.admit(record.levelno, (record.name, str(record.msg)))

    def _report(self, level: int, key: tuple[str, str], count: int) -> None:
        name, message = key
        logging.getLogger(name).log(level, LEFT_OUT, extra={"of": message, "count": count})
