"""
Decode untrusted JSON safely: neither its nesting nor its times can crash the reader.

Any client that may write to a key or subject controls the content, and many programs read it.
"""

from __future__ import annotations

import functools
import threading
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from ccm_agent.model.formats.nesting import is_too_deep

T = TypeVar("T")

_TOO_DEEP = "it is nested too deeply"

Moment = Annotated[datetime, Meta(tz=True)]
"""A time with a zone. Comparing times with and without a zone would raise an error."""


EVENTS_LIMIT = 1_000_000
"""The maximum number of events of a run, which corresponds to 60 GiB."""

EventNumber = Annotated[int, Meta(ge=0, le=EVENTS_LIMIT)]
"""
The position of an event in its run, from 1; 0 outside of runs. The limit exists because readers search for
missing numbers.
"""

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""A count that fits into 64 bits."""

ExitCode = Annotated[int, Meta(ge=-255, le=255)]
"""Exit code of a program; -N when signal N ended it."""

Nanoseconds = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A duration in nanoseconds, as in Go. A larger number cannot be converted to seconds."""

Seconds = Annotated[float, Meta(ge=0, le=1e12)]
"""A duration in seconds; the limit corresponds to 30,000 years."""


_MAKING = threading.Lock()


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """
    Return a decoder of a type. Creating a decoder for a type such as `dict[str, Any]` costs more than
    decoding a small document.
    """
    # msgspec may crash when two threads create decoders of a new type
    with _MAKING:
        return msgspec.json.Decoder(kind)


def decode_foreign(body: bytes, kind: type[T]) -> T:
    """
    Decode an untrusted JSON document to a Struct or plain values.

    Raises:
        msgspec.DecodeError: The document is not of that type, or is nested too deeply.
    """
    try:
        value: T = _decoder(kind).decode(body)  # type: ignore[arg-type]  # mypy does not know that a type is hashable
    except RecursionError as err:
        raise msgspec.DecodeError(_TOO_DEEP) from err
    except UnicodeDecodeError as err:
        raise msgspec.DecodeError("it is not UTF-8 text") from err
    if is_too_deep(body):
        raise msgspec.DecodeError(_TOO_DEEP)
    return value
