"""Feeding readers with what no honest writer wrote: changed samples, by a random generator that can be begun again."""

from __future__ import annotations

import contextlib
import random
import signal
import time
import warnings
from collections.abc import Iterator
from types import FrameType

from tests.fuzz.target import Target

LIMIT_S = 1.0
"""No reader may take longer for one input."""
LARGEST = 4096
PIECES = [
    b"\0",
    b"\xff",
    b"\xc3\xc3J1",
    b"\r\n",
    b"\n",
    b" ",
    b"'",
    b'"',
    b"{",
    b"}",
    b"[" * 300,
    b"(" * 300,
    b"{{",
    b"}}",
    b"${",
    b"[[",
    b"]]",
    b"-1",
    b"9" * 40,
    b"1e999",
    b"0x",
    b"..",
    b"*",
    b"&a ",
    b"*a ",
    b": ",
    b"- ",
    b"| ",
    b"#",
    b"\\u0000",
    b"\xed\xa0\x80",
    b"\xe2\x80\xae",
    b"true",
    b"null",
    b"nan",
    b"%s",
    b"$",
    b"=",
    b"?",
    b"\t",
]


class TooSlowError(Exception):
    """A reader took longer than LIMIT_S."""


def inputs(target: Target, seed: int) -> Iterator[bytes]:
    """The samples, then changed ones without end; the same ones for the same seed."""
    yield from target.samples
    chance = random.Random(f"{target.name} {seed}")
    pool = [*target.samples, b""]
    while True:
        data = bytearray(chance.choice(pool))
        for _ in range(chance.randint(1, 6)):
            _change(data, chance, pool)
        yield bytes(data[:LARGEST])


def _change(data: bytearray, chance: random.Random, pool: list[bytes]) -> None:
    at = chance.randint(0, len(data))
    to = min(len(data), at + chance.choice((1, 1, 2, 8, 64)))
    kind = chance.randrange(6)
    if kind == 0 and at < len(data):
        data[at] = chance.randrange(256)
    elif kind == 1:
        del data[at:to]
    elif kind == 2:
        data[at:at] = chance.choice(PIECES)
    elif kind == 3:
        data[at:at] = data[at:to] * chance.choice((1, 2, 20))
    elif kind == 4:
        other = chance.choice(pool)
        data[at:to] = other[chance.randint(0, len(other)) :]
    else:
        data[at:to] = chance.choice(PIECES)


def feed(target: Target, data: bytes) -> None:
    """
    Let a target read one input.

    Raises:
        TooSlowError: It took too long.
        Exception: Anything else that the target may not raise.
    """
    # the time that it takes itself, not what this machine does besides
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        with warnings.catch_warnings(), contextlib.suppress(*target.raises):
            warnings.simplefilter("ignore")
            target.read(data)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """Interrupt a reader that takes too long; for the main thread."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGVTALRM, before)


def run_for(targets: list[Target], seconds: float, seed: int) -> tuple[int, str]:
    """Feed all targets in turn; how many inputs that were, and what was found ("" for nothing)."""
    streams = [(target, inputs(target, seed)) for target in targets]
    end, count = time.monotonic() + seconds, 0
    with in_time():
        while time.monotonic() < end:
            for target, stream in streams:
                data = next(stream)
                count += 1
                try:
                    feed(target, data)
                except Exception as err:  # noqa: BLE001 - whatever it is, it is what we look for
                    return count, f"{target.name}: {type(err).__name__}: {err}\n{data!r}"
    return count, ""
