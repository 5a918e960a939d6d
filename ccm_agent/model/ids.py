"""
KSUIDs and natural sorting of names.

KSUIDs sort by the second of their creation. KSUIDs of one process sort in the order of their creation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from os import urandom

_PAYLOAD_BYTES = 16
_EPOCH_S = 1_400_000_000
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_LENGTH = 27
_PAYLOAD_BITS = 8 * _PAYLOAD_BYTES
_SECONDS = 1 << 32
_TOO_LATE = (_SECONDS - 1) << _PAYLOAD_BITS
"""Ids of the last second, in 2150, are not incremented because the counter would overflow."""
_DUE_HEADERS = ("nats-stream", "nats-sequence", "nats-time-stamp")
"""Headers that the broker adds to a stored message. The id of a scheduled run is derived from them."""

SHORT_ID = 8
"""
The number of characters in a short id. The first five or six characters encode the second of creation. The
other characters are random.
"""

_last = 0
"""The newest id of this process as a number: seconds since the epoch of KSUIDs above 128 random bits."""


def new_id(at: datetime | None = None) -> str:
    """
    Create a KSUID: 27 characters of base 62, greater than all earlier KSUIDs of this process.

    Within one second the random part is incremented, so events that are sorted by id are in the order of their
    creation. Source: github.com/segmentio/ksuid; epoch 2014-05-13T16:53:20Z.
    """
    global _last
    when = at or datetime.now(UTC)
    # a host without a clock battery boots in 1970, before the first possible KSUID
    second = max(int(when.timestamp()) - _EPOCH_S, 0)
    if second <= _last >> _PAYLOAD_BITS:
        _last += 1
    else:
        _last = second << _PAYLOAD_BITS | int.from_bytes(urandom(_PAYLOAD_BYTES), "big")
    return _encode(_last)


def follow(past: str) -> None:
    """
    Make all later ids of this process greater than an id from another process.

    Call it in a process that continues another process's session. Otherwise its ids within the same second
    could sort before the earlier ids. An id of the last possible second is ignored.
    """
    global _last
    number = 0
    for char in past:
        number = number * 62 + _DIGITS.index(char)
    if number < _TOO_LATE:
        _last = max(_last, number)


def derive_id(second: int, payload: bytes) -> str:
    """
    Derive a KSUID from a time (seconds since 1970) and 16 bytes, with the same result on every host.

    Raises:
        ValueError: The time is before 2014-05-13 or after 2150-06-19: a KSUID stores seconds in 32 bits.
    """
    since = second - _EPOCH_S
    if not 0 <= since < _SECONDS:
        raise ValueError(f"{second}: no KSUID has this time")
    return _encode(since << _PAYLOAD_BITS | int.from_bytes(payload, "big"))


def due_run_id(headers: Mapping[str, str]) -> tuple[str, datetime]:
    """
    Derive the run id and time of a scheduled request from the broker's headers, with the same result for all readers.

    Raises:
        KeyError, ValueError: The broker's headers are missing or malformed.
    """
    from hashlib import sha256

    lowered = {name.lower(): value for name, value in headers.items()}
    stream, sequence, stamp = (lowered[name] for name in _DUE_HEADERS)
    # the broker writes nanoseconds, which Python cannot parse
    due = datetime.fromisoformat(f"{stamp[:19]}+00:00").astimezone(UTC)
    digest = sha256(f"{stream}\n{sequence}\n{stamp}".encode()).digest()
    return derive_id(int(due.timestamp()), digest[:16]), due


def id_time(run: str) -> datetime:
    """
    Return the second in which an id was created, by the clock of the creating host.

    Raises:
        ValueError: The text is not an id.
    """
    if not is_id(run):
        raise ValueError(f"{run!r}: not an id")
    number = 0
    for char in run:
        number = number * 62 + _DIGITS.index(char)
    return datetime.fromtimestamp((number >> _PAYLOAD_BITS) + _EPOCH_S, UTC)


def is_id(text: str) -> bool:
    """Whether a text has the form of a KSUID. Such a text is safe as a file name and as a subject token."""
    return len(text) == _LENGTH and text.isascii() and text.isalnum()


def _encode(number: int) -> str:
    # two digits at a time for speed, because every event of thousands of resources has an id
    first, last = divmod(number, 62**4)
    high, low = divmod(last, 62 * 62)
    return f"{_first_digits(first)}{_PAIRS[high]}{_PAIRS[low]}"


@lru_cache(maxsize=1)
def _first_digits(number: int) -> str:
    """Return all digits except the last four, which are the only ones that differ in ids of the same second."""
    parts = []
    for _ in range((_LENGTH - 4) // 2):
        number, rest = divmod(number, 62 * 62)
        parts.append(_PAIRS[rest])
    parts.append(_DIGITS[number])
    return "".join(reversed(parts))


def short_id(run: str) -> str:
    """
    Return the first characters of a run's id, as shown to people; commands accept them in place of the
    whole id.
    """
    return run[:SHORT_ID]


def short_ids(runs: Iterable[str]) -> dict[str, str]:
    """Return the short form of several ids, longer where needed to distinguish them."""
    shorts: dict[str, str] = {}
    left, length = set(runs), SHORT_ID
    while left:
        counts = Counter(run[:length] for run in left)
        apart = {run for run in left if counts[run[:length]] == 1 or len(run) <= length}
        shorts |= {run: run[:length] for run in apart}
        left -= apart
        length += 1
    return shorts


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts `web2` before `web10`."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part
    ]
