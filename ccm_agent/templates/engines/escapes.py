"""
Text made safe for HTML, JavaScript, a URL's query, JSON and Go source, exactly as Go's standard library does it.

Source: text/template HTMLEscape and JSEscape, net/url QueryEscape, encoding/json, strconv.Quote.
"""

from __future__ import annotations

import base64
import math
import re
from typing import Any
from urllib.parse import quote_plus

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.bounds import OUTPUT_MAX
from ccm_agent.templates.engines.gotypes import TypedList, go_type
from ccm_agent.templates.values import (
    GoValue,
    clean_text,
    float_digits,
    plain_digits,
    print_scalar,
    sorted_keys,
    to_bytes,
)

_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"})

_JS_SPECIAL = re.compile(r"""[\\'"<>&=\x00-\x1f]|[^\x00-\x7f]""")
_JS_SHORT = {"\\": "\\\\", "'": "\\'", '"': '\\"'}

_JSON_SPECIAL = re.compile('["\\\\\x00-\x1f<>&\u2028\u2029]')
_JSON_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}

_QUOTE_SPECIAL = re.compile(r"""[\\"\x00-\x1f\x7f]|[^\x00-\x7f]""")
_QUOTE_SHORT = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def escape_html(text: str) -> str:
    """The text with HTML's special characters as character references."""
    return text.translate(_HTML)


def escape_html_nul(text: str) -> str:
    """As `escape_html`, with U+FFFD for a NUL: what templates do, where the function `html` of Jet does not."""
    return text.translate(_HTML).replace("\0", "\ufffd")


def escape_js(text: str) -> str:
    """The text for the inside of a JavaScript string."""
    return _JS_SPECIAL.sub(_js_char, text)


def _js_char(match: re.Match[str]) -> str:
    char = match[0]
    if char in _JS_SHORT:
        return _JS_SHORT[char]
    if char > "\x7f" and char.isprintable():
        return char
    return f"\\u{ord(char):04X}"


def escape_query(text: str) -> str:
    """The text for a URL's query: a space is `+`, what is not unreserved `%XX`."""
    return quote_plus(to_bytes(text), safe="~")


def quote(text: str, delimiter: str = '"', *, ascii_only: bool = False) -> str:
    """The text as a Go string literal; what cannot be printed is escaped."""
    if delimiter == '"' and not ascii_only:
        return f'"{_QUOTE_SPECIAL.sub(_quoted_char, text)}"'
    return delimiter + "".join(_quoted(char, delimiter, ascii_only) for char in text) + delimiter


def _quoted_char(match: re.Match[str]) -> str:
    return _quoted(match[0], '"', False)


def _quoted(char: str, delimiter: str, ascii_only: bool) -> str:
    if char == delimiter or char == "\\":
        return "\\" + char
    if char.isprintable() and (char <= "\x7f" or not ascii_only):
        return char
    if char in _QUOTE_SHORT and char != '"':
        return _QUOTE_SHORT[char]
    number = ord(char)
    if 0xDC80 <= number <= 0xDCFF:
        return f"\\x{number - 0xDC00:02x}"
    if number < 0x20 or number == 0x7F:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def go_json(value: Any, *, escape: bool = True, indent: str = "") -> str:
    """
    The value as Go's `json.Marshal` writes it: keys sorted, no white space.

    Args:
        value: What to write.
        escape: Write `<`, `>` and `&` as `\\u003c` and so on, as Go does unless told otherwise.
        indent: What a level is indented by; "" for one line.

    Raises:
        TemplateError: A value has no JSON form (NaN, an infinity, a function), or the text would be too long.
    """
    out: list[str] = []
    try:
        _write_json(value, out, _JsonStyle(escape, indent), "\n" if indent else "")
    except RecursionError:
        raise TemplateError("value cannot be written as JSON: it is nested too deeply") from None
    return "".join(out)


class _JsonStyle:
    __slots__ = ("colon", "escape", "indent", "room")

    def __init__(self, escape: bool, indent: str) -> None:
        self.escape = escape
        self.indent = indent
        self.colon = ": " if indent else ":"
        self.room = OUTPUT_MAX

    def spend(self, length: int) -> None:
        self.room -= length
        if self.room < 0:
            raise TemplateError(
                f"value cannot be written as JSON: its text is longer than {OUTPUT_MAX} characters"
            )

    def text(self, text: str) -> str:
        def char(match: re.Match[str]) -> str:
            found = match[0]
            if found in "<>&" and not self.escape:
                return found
            return _JSON_SHORT.get(found) or f"\\u{ord(found):04x}"

        return f'"{_JSON_SPECIAL.sub(char, clean_text(text))}"'


def _write_json(value: Any, out: list[str], style: _JsonStyle, newline: str) -> None:
    style.spend(2)
    if isinstance(value, dict):
        _write_members(value, out, style, newline)
    elif isinstance(value, (list, tuple)):
        if isinstance(value, TypedList) and value.is_nil:
            out.append("null")
        else:
            _write_elements(value, out, style, newline)
    else:
        text = _json_scalar(value, style)
        style.spend(len(text))
        out.append(text)


def _write_members(value: dict[Any, Any], out: list[str], style: _JsonStyle, newline: str) -> None:
    inner = newline + style.indent
    separator = "{" + inner
    for key in sorted_keys(value):
        out.append(separator + style.text(print_scalar(key)) + style.colon)
        _write_json(value[key], out, style, inner)
        separator = "," + inner
    out.append(newline + "}" if value else "{}")


def _write_elements(
    value: list[Any] | tuple[Any, ...], out: list[str], style: _JsonStyle, newline: str
) -> None:
    inner = newline + style.indent
    separator = "[" + inner
    for item in value:
        out.append(separator)
        _write_json(item, out, style, inner)
        separator = "," + inner
    out.append(newline + "]" if value else "[]")


def _json_scalar(value: Any, style: _JsonStyle) -> str:
    if isinstance(value, str):
        return style.text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return _json_float(value)
    if isinstance(value, bytes):
        return style.text(base64.b64encode(value).decode())
    if isinstance(value, GoValue):
        return _json_go_value(value, style)
    raise TemplateError(f"value cannot be written as JSON: it is a {go_type(value)}")


def _json_go_value(value: GoValue, style: _JsonStyle) -> str:
    as_json = getattr(type(value), "go_json", None)
    return str(as_json(value)) if as_json is not None else style.text(value.go_text())


def _json_float(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        raise TemplateError(f"value cannot be written as JSON: {print_scalar(value)} has no JSON form")
    sign, digits, point = float_digits(value)
    exponent = point - 1
    if value and (exponent < -6 or exponent >= 21):
        mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        return f"{sign}{mantissa}e{exponent:+d}"
    return sign + plain_digits(digits, point)
