"""
What somebody else wrote, read so that it can do no harm: neither its depth nor its times end whoever reads it.

Whoever may write one key or one subject says what stands there, and many read it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from ccm_agent.model.depth import is_too_deep

T = TypeVar("T")

_TOO_DEEP = "it is nested too deeply"

Moment = Annotated[datetime, Meta(tz=True)]
"""A time that says its zone: one that does not cannot be compared with the others, and comparing it would raise."""


def decode_foreign(body: bytes, kind: type[T]) -> T:
    """
    A JSON document of somebody else's as a Struct or plain values.

    Raises:
        msgspec.DecodeError: It is none of that kind, or nested deeper than anybody reads.
    """
    try:
        value = msgspec.json.decode(body, type=kind)
    except RecursionError as err:
        raise msgspec.DecodeError(_TOO_DEEP) from err
    if is_too_deep(body):
        raise msgspec.DecodeError(_TOO_DEEP)
    return value
