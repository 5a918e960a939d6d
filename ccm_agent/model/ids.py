"""KSUIDs: ids that sort by the second they were made in, and within this process by the order they were made in."""

from __future__ import annotations

from datetime import UTC, datetime

_PAYLOAD_BYTES = 16
_EPOCH_S = 1_400_000_000
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]
_LENGTH = 27
_last: tuple[int, int] = (0, 0)


def new_id(at: datetime | None = None) -> str:
    """
    A KSUID, 27 characters of base 62, greater than every one that this process made before.

    Ids of one second grow because the random part is counted up; readers that sort by id then see events in the order
    in which they happened. Source: github.com/segmentio/ksuid; epoch 2014-05-13T16:53:20Z.
    """
    global _last
    when = at or datetime.now(UTC)
    second = int(when.timestamp())
    if second <= _last[0]:
        second, payload = _last[0], _last[1] + 1
    else:
        from os import urandom

        # the highest bit stays clear, so that counting up never overflows
        payload = int.from_bytes(urandom(_PAYLOAD_BYTES), "big") >> 1
    _last = (second, payload)
    return _encode((second - _EPOCH_S) << (8 * _PAYLOAD_BYTES) | payload)


def follow(past: str) -> None:
    """
    Make the ids of this process greater than an id that another one made.

    A second process that works on the same session within the same second would otherwise sort before the first.
    """
    global _last
    number = 0
    for char in past:
        number = number * 62 + _DIGITS.index(char)
    second, payload = number >> (8 * _PAYLOAD_BYTES), number & ((1 << (8 * _PAYLOAD_BYTES)) - 1)
    _last = max(_last, (second + _EPOCH_S, payload))


def derive_id(second: int, payload: bytes) -> str:
    """The KSUID of a time (seconds since 1970) and 16 bytes: the same wherever it is made."""
    return _encode((second - _EPOCH_S) << (8 * _PAYLOAD_BYTES) | int.from_bytes(payload, "big"))


def is_id(text: str) -> bool:
    """A text has the form of a KSUID, so it is safe as a file name and as a subject token."""
    return len(text) == _LENGTH and text.isascii() and text.isalnum()


def _encode(number: int) -> str:
    # two digits at a time: an event for each of thousands of resources has one
    parts = []
    for _ in range(_LENGTH // 2):
        number, rest = divmod(number, 62 * 62)
        parts.append(_PAIRS[rest])
    parts.append(_DIGITS[number])
    return "".join(reversed(parts))
