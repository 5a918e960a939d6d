"""Measure the nesting of a JSON document from its text, before code processes its values recursively."""

from __future__ import annotations

from ccm_agent.model.formats.yaml_reader import MAX_DEPTH

_AS_SQUARE = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def is_too_deep(body: bytes) -> bool:
    """
    Whether valid JSON has more levels than MAX_DEPTH, which is the same limit as for YAML.

    Python's JSON parser accepts several hundred levels more. Recursive functions on the values would then
    exceed the recursion limit, and untrusted input must not cause that.
    """
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return False
    # without escapes, every second piece between quotes is a string; a regular expression would be slower than
    # parsing
    pieces = body.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
    left = b"".join(pieces[::2]).translate(_AS_SQUARE, _OTHERS)
    for _ in range(MAX_DEPTH):
        if not left:
            return False
        left = left.replace(b"[]", b"")  # removes all innermost levels in one pass
    return bool(left)
