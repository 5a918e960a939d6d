"""
Make texts from the host safe to publish.

A name in an archive, a mount point or a value of a bucket may contain bytes that are not UTF-8. Python
represents them as surrogate escapes, which neither JSON nor MessagePack supports. Published texts contain `?`
instead, because omitting the text or failing would be worse.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


def json_safe(text: str) -> str:
    """Return a text without lone surrogates."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def encode_message(value: object, order: Literal["deterministic", "sorted"] | None = None) -> bytes:
    """Encode a value or Struct as JSON, even if its texts contain lone surrogates."""
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
