"""
Go's literals, which are used in Jet and Go templates: quoted text, characters and numbers.

Source: The Go Programming Language Specification, "Lexical elements"; strconv.Unquote, strconv.ParseInt.
"""

from __future__ import annotations

import re

from ccm_agent.templates.values import from_bytes, to_bytes

_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_ESCAPE = re.compile(
    r"""\\(?:([abfnrtv\\'"])|x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))|\\""",
    re.DOTALL,
)
_FLOAT = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEX_FLOAT = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_PREFIXES = {16: "0x", 8: "0o", 2: "0b"}
_UNDERSCORE = re.compile(r"(?<=[0-9])_(?=[0-9])")
_HEX_UNDERSCORE = re.compile(r"(?<=[0-9a-fA-FxX])_(?=[0-9a-fA-F])")
_UNDERSCORED = re.compile(r"(?:0[xXbBoO])?_?[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*")


def unquote(text: str) -> str | None:
    r"""
    Return the value of a string literal with its quotes, "…" or `…`.

    Returns:
        The text; None if it is malformed. Bytes from `\x` or `\ooo` that are not UTF-8 become surrogate escapes.
    """
    quote, body = text[:1], text[1:-1]
    if quote == "`":
        return body.replace("\r", "")
    if "\\" not in body:
        return body
    parts: list[bytes] = []
    position = 0
    for match in _ESCAPE.finditer(body):
        parts.append(to_bytes(body[position : match.start()]))
        piece = _escaped(match, quote)
        if piece is None:
            return None
        parts.append(piece)
        position = match.end()
    parts.append(to_bytes(body[position:]))
    return from_bytes(b"".join(parts))


def unquote_char(text: str) -> int | None:
    """
    Return the number of a character literal with its quotes, 'x'; None if it does not contain exactly one
    character.
    """
    body = text[1:-1]
    if len(body) == 1 and body not in "\\'":
        return ord(body)
    match = _ESCAPE.fullmatch(body)
    if match is None:
        return None
    if match[2] or match[3]:
        number = int(match[2], 16) if match[2] else int(match[3], 8)
        return number if number < 256 else None
    piece = _escaped(match, "'")
    return None if piece is None else ord(from_bytes(piece))


def _escaped(match: re.Match[str], quote: str) -> bytes | None:
    if match[1]:
        if match[1] in "'\"":
            return match[1].encode() if match[1] == quote else None
        return _ESCAPES[match[1]].encode()
    if match[2]:
        return bytes([int(match[2], 16)])
    if match[3]:
        number = int(match[3], 8)
        return bytes([number]) if number < 256 else None
    if match[4] or match[5]:
        number = int(match[4] or match[5], 16)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            return None
        return chr(number).encode()
    return None


def parse_integer(text: str, base: int = 0) -> int | None:
    """
    Parse an integer like `strconv.ParseInt`, but of any size.

    Args:
        text: Digits with an optional sign.
        base: The base. 0 means that a prefix determines the base (0x, 0o, 0b, or 0 for octal), and `_` is
            allowed between digits.
    """
    if not text.isascii():
        return None
    sign, body = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if base == 0:
        base, body = _base_of(body)
    if not body.isalnum() or body[:2].lower() == _PREFIXES.get(base):  # int() would accept a base prefix
        return None
    try:
        number = int(body, base)
    except ValueError:
        return None
    return -number if sign == "-" else number


def _base_of(body: str) -> tuple[int, str]:
    if "_" in body:
        if not _UNDERSCORED.fullmatch(body):
            return 10, ""
        body = body.replace("_", "")
    prefix = body[:2].lower()
    for base, known in _PREFIXES.items():
        if prefix == known:
            return base, body[2:]
    if len(body) > 1 and body[0] == "0":
        return 8, body
    return 10, body


def parse_float(text: str) -> float | None:
    """
    Parse a float like `strconv.ParseFloat`: decimal or hexadecimal digits, with `_` between them, `Inf`, `NaN`.

    Returns:
        The float; None if the text is malformed or the number is too large.
    """
    if "_" in text:
        text = (_HEX_UNDERSCORE if text.lstrip("+-")[:2].lower() == "0x" else _UNDERSCORE).sub("", text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return None if number in (float("inf"), float("-inf")) else number
    if _HEX_FLOAT.fullmatch(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            return None
    if text.lower().lstrip("+-") in ("inf", "infinity", "nan") and text[1:2] not in ("+", "-"):
        return float(text)
    return None
