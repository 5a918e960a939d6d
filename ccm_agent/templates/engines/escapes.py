"""
Escape text for HTML, JavaScript, URL queries, JSON and Go source, exactly like Go's standard library.

Source: text/template HTMLEscape and JSEscape, net/url QueryEscape, encoding/json, strconv.Quote.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote_plus

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.gojson import JSONError, write
from ccm_agent.templates.values import to_bytes

_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"})

_JS_SPECIAL = re.compile(r"""[\\'"<>&=\x00-\x1f]|[^\x00-\x7f]""")
_JS_SHORT = {"\\": "\\\\", "'": "\\'", '"': '\\"'}

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
    """Replace HTML's special characters with character references."""
    return text.translate(_HTML)


def escape_html_nul(text: str) -> str:
    """
    Escape like `escape_html`, and replace NUL with U+FFFD. Go templates do this; Jet's function `html` does
    not.
    """
    return text.translate(_HTML).replace("\0", "\ufffd")


def escape_js(text: str) -> str:
    """Escape the text for the inside of a JavaScript string."""
    return _JS_SPECIAL.sub(_js_char, text)


def _js_char(match: re.Match[str]) -> str:
    char = match[0]
    if char in _JS_SHORT:
        return _JS_SHORT[char]
    if char > "\x7f" and char.isprintable():
        return char
    return f"\\u{ord(char):04X}"


def escape_query(text: str) -> str:
    """Escape the text for a URL's query: a space becomes `+`, each other reserved byte `%XX`."""
    return quote_plus(to_bytes(text), safe="~")


def quote(text: str, delimiter: str = '"', *, ascii_only: bool = False) -> str:
    """Format the text as a Go string literal; unprintable characters are escaped."""
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
    Write a value like Go's `json.Marshal`: keys sorted, without white space unless an indentation is given.

    Args:
        value: The value to write.
        escape: Whether to write `<`, `>` and `&` as `\\u003c` and so on, which is Go's default.
        indent: The indentation of a level; "" for one line.

    Raises:
        TemplateError: A value has no JSON form (NaN, an infinity, a function), or the text would be too long.
    """
    try:
        return write(value, indent, escapes_markup=escape)
    except JSONError as err:
        raise TemplateError(f"value cannot be written as JSON: {err}") from None
