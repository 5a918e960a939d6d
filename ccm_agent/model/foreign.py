"""
What somebody else wrote, read so that it can do no harm: neither its depth nor its times end whoever reads it.

Whoever may write one key or one subject says what stands there, and many read it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T")

Moment = Annotated[datetime, Meta(tz=True)]
"""A time that says its zone: one that does not cannot be compared with the others, and comparing it would raise."""


def decode_foreign(body: bytes, kind: type[T]) -> T:
    """
    A JSON document of somebody else's as a Struct or plain values.

    Raises:
        msgspec.DecodeError: It is none of that kind, or nested deeper than the interpreter reads, which is no error of msgspec's.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except RecursionError as err:
        raise msgspec.DecodeError("it is nested too deeply") from err
