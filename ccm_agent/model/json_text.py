"""
Make texts of the host safe to publish.

A name in an archive, a mount point or a value of a bucket may hold bytes that are no UTF-8; they stand in a text as surrogate
escapes, which neither JSON nor MessagePack can hold. What is told of them has `?` in their place: not to tell it at all, or to
end because of it, would be worse.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


def json_safe(text: str) -> str:
    """A text without halves of surrogate pairs."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def encode_message(value: object, order: Literal["deterministic", "sorted"] | None = None) -> bytes:
    """A value or Struct as JSON, whatever its texts hold."""
    try:
        return msgspec.json.encode(value, order=order)
    except UnicodeEncodeError:
        return msgspec.json.encode(_tellable(msgspec.to_builtins(value)), order=order)


def _tellable(value: Any) -> Any:
    if isinstance(value, str):
        return json_safe(value)
    if isinstance(value, dict):
        return {_tellable(key): _tellable(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_tellable(one) for one in value]
    return value
