"""KSUIDs: ids that sort by the second they were made in, and within this process by the order they were made in."""

from __future__ import annotations

from datetime import UTC, datetime

_PAYLOAD_BYTES = 16
_last: tuple[int, int] = (0, 0)


def new_id(at: datetime | None = None) -> str:
    """
    A KSUID, 27 characters of base 62, greater than every one that this process made before.

    Ids of one second grow because the random part is counted up; readers that sort by id then see events in the order
    in which they happened. Source: github.com/segmentio/ksuid; epoch 2014-05-13T16:53:20Z.
    """
    global _last
    from secrets import randbits

    when = at or datetime.now(UTC)
    second = int(when.timestamp())
    if second <= _last[0]:
        second, payload = _last[0], _last[1] + 1
    else:
        payload = randbits(8 * _PAYLOAD_BYTES - 1)
    _last = (second, payload)
    return derive_id(second, payload.to_bytes(_PAYLOAD_BYTES, "big"))


def derive_id(second: int, payload: bytes) -> str:
    """The KSUID of a time (seconds since 1970) and 16 bytes: the same wherever it is made."""
    from ksuid import Ksuid

    return str(Ksuid(datetime.fromtimestamp(second, UTC), payload))


def is_id(text: str) -> bool:
    """A text has the form of a KSUID, so it is safe as a file name and as a subject token."""
    return len(text) == 27 and text.isascii() and text.isalnum()
