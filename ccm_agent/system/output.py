"""Handles the output of a program: keeps its end, and passes on its lines as they arrive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

LINE_LIMIT_BYTES = 1 << 20
"""The maximum length of a line. Longer lines are passed on in pieces, so that output without newlines cannot fill the memory."""
BATCHES_AHEAD = 8
"""The maximum number of batches that wait for the event loop. When it is reached, the program blocks, as with a slow terminal."""

LineSink = Callable[[list[str]], None]


class Tail:
    """Keeps the last bytes of a stream."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._kept = bytearray()
        self._seen = 0

    def add(self, data: bytes) -> None:
        """Add data from the stream."""
        self._seen += len(data)
        self._kept += data
        if len(self._kept) > 2 * self._limit:
            del self._kept[: len(self._kept) - self._limit]

    def value(self) -> bytes:
        """Return the kept bytes."""
        return bytes(self._kept[max(0, len(self._kept) - self._limit) :])

    @property
    def dropped_bytes(self) -> int:
        """Return the number of bytes that were dropped before the kept bytes."""
        return max(0, self._seen - self._limit)


class Lines:
    """Splits a stream into lines."""

    def __init__(self, sink: LineSink) -> None:
        self._sink = sink
        self._rest = bytearray()

    def add(self, data: bytes) -> None:
        """Add data from the stream. Pass on complete lines."""
        first, newline, others = data.partition(b"\n")
        self._rest += first
        lines: list[bytes] = []
        if newline:
            *middle, last = others.split(b"\n")
            lines = [bytes(self._rest), *middle]
            self._rest = bytearray(last)
        elif len(self._rest) > LINE_LIMIT_BYTES:
            lines = [bytes(self._rest)]
            self._rest.clear()
        if lines:
            self._sink([_text(line) for line in lines])

    def close(self) -> None:
        """Pass on the last line if it does not end with a newline."""
        if self._rest:
            self._sink([_text(bytes(self._rest))])


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").decode(errors="replace")


def sink_on(loop: AbstractEventLoop, on_line: Callable[[str], None]) -> LineSink:
    """Return a function that passes batches of lines from a thread to the loop. It blocks while the loop is behind."""
    room = threading.Semaphore(BATCHES_AHEAD)

    def on_loop(lines: list[str]) -> None:
        try:
            for line in lines:
                on_line(line)
        finally:
            room.release()

    def in_thread(lines: list[str]) -> None:
        room.acquire()
        loop.call_soon_threadsafe(on_loop, lines)

    return in_thread
