"""
Decode untrusted JSON safely: neither its depth nor its times can crash the reader.

A client that may write a key or a subject controls its content, and many programs read it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from ccm_agent.model.nesting import is_too_deep

T = TypeVar("T")

_TOO_DEEP = "it is nested too deeply"

Moment = Annotated[datetime, Meta(tz=True)]
"""A time that says its zone: one that does not cannot be compared with the others, and comparing it would raise."""


EVENTS_LIMIT = 1_000_000
"""A run has no more events than this: 60 GiB of them."""

EventNumber = Annotated[int, Meta(ge=0, le=EVENTS_LIMIT)]
"""Place of an event within its run, from 1; 0 outside of runs. Readers look for numbers that are missing, so it is bounded."""

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""How many; no more than 64 bits hold."""

ExitCode = Annotated[int, Meta(ge=-255, le=255)]
"""Exit code of a program; -N when signal N ended it."""

Nanoseconds = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A duration as Go writes it. A larger one cannot be divided into seconds."""

Seconds = Annotated[float, Meta(ge=0, le=1e12)]
"""A duration; 30,000 years are enough."""


def decode_foreign(body: bytes, kind: type[T]) -> T:
    """
    Decode an untrusted JSON document to a Struct or plain values.

    Raises:
        msgspec.DecodeError: It is not of that type, or nested too deeply.
    """
    try:
        value = msgspec.json.decode(body, type=kind)
    except RecursionError as err:
        raise msgspec.DecodeError(_TOO_DEEP) from err
    except UnicodeDecodeError as err:
        raise msgspec.DecodeError("it is not UTF-8 text") from err
    if is_too_deep(body):
        raise msgspec.DecodeError(_TOO_DEEP)
    return value
