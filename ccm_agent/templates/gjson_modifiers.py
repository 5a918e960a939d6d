"""GJSON's modifiers, such as `@reverse` and `@keys`: functions from the JSON of a value to JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccm_agent.templates.gjson_text import (
    PrettyOptions,
    blank_end,
    elements,
    is_valid,
    members,
    parsed,
    ugly,
    unescape,
    value_end,
)
from ccm_agent.templates.gojson import quote

_BLANKS = " \t\n\r"


def first_value(text: str) -> str:
    """Return the first value of a text; "" if there is none. Arrays and objects extend to the end of the text."""
    start = blank_end(text)
    if start >= len(text):
        return ""
    char = text[start]
    if char in "[{":
        return text[start:]
    if char == '"' or char in "+-0123456789iIN" or char in "tfn":
        return text[start : value_end(text, start)]
    return ""


def string_of(raw: str) -> str:
    """Return the text of a value: the content of a string, "" for null, otherwise its JSON."""
    if raw[:1] == '"':
        return unescape(raw[1:-1] if len(raw) > 1 and raw.endswith('"') else raw[1:])
    return "" if raw[:1] == "n" else raw


def _options(argument: str) -> dict[str, Any]:
    found = first_value(argument)
    value = parsed(found) if found[:1] == "{" else None
    return value if isinstance(value, dict) else {}


def _truth(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() in ("1", "t", "true")
    return isinstance(value, (bool, float)) and bool(value)


def _pretty(text: str, argument: str) -> str:
    if not argument:
        return PrettyOptions().pretty(text)
    options = _options(argument)
    layout = PrettyOptions(sort_keys=_truth(options.get("sortKeys")))
    for name in ("indent", "prefix"):
        value = options.get(name)
        if isinstance(value, str):
            setattr(layout, name, "".join(char for char in value if char in _BLANKS))
    if isinstance(options.get("width"), float):
        layout.width = int(min(max(options["width"], -1), 1_000_000))
    return layout.pretty(text)


def _reverse(text: str, _argument: str) -> str:
    raw = first_value(text)
    if raw[:1] == "[":
        return "[" + ",".join(list(elements(raw))[::-1]) + "]"
    if raw[:1] == "{":
        return "{" + ",".join(f"{key}:{value}" for key, value in list(members(raw))[::-1]) + "}"
    return text


def _flatten(text: str, argument: str) -> str:
    raw = first_value(text)
    if raw[:1] != "[":
        return text
    is_deep = bool(argument) and _truth(_options(argument).get("deep"))
    parts = []
    for item in elements(raw):
        if item[0] == "[":
            item = _flatten(item, argument) if is_deep else item
            item = _unwrapped(item)
        if item.strip():
            parts.append(item.strip())
    return "[" + ",".join(parts) + "]"


def _unwrapped(text: str) -> str:
    text = text.strip("".join(map(chr, range(33))))
    return text[1:-1] if len(text) >= 2 and text[0] in "[{" else text


def _join(text: str, argument: str) -> str:
    raw = first_value(text)
    if raw[:1] != "[":
        return text
    objects = [item for item in elements(raw) if item[0] == "{"]
    if argument and _truth(_options(argument).get("preserve")):
        return "{" + ",".join(map(_unwrapped, objects)) + "}"
    found: dict[str, tuple[str, str]] = {}
    for item in objects:
        for key, value in members(item):
            name = unescape(key[1:-1])
            found[name] = (found[name][0] if name in found else key, value)
    return "{" + ",".join(f"{key}:{value}" for key, value in found.values()) + "}"


def _keys(text: str, _argument: str) -> str:
    raw = first_value(text)
    if not raw:
        return "[]"
    if raw[0] == "{":
        return "[" + ",".join(key for key, _ in members(raw)) + "]"
    count = sum(1 for _ in elements(raw)) if raw[0] == "[" else 1
    return "[" + ",".join(["null"] * count) + "]"


def _values(text: str, _argument: str) -> str:
    raw = first_value(text)
    if not raw:
        return "[]"
    if raw[0] == "[":
        return text
    return "[" + ",".join([value for _, value in members(raw)] if raw[0] == "{" else [raw]) + "]"


def _group(text: str, _argument: str) -> str:
    raw = first_value(text)
    if raw[:1] != "{":
        return ""
    groups: list[list[str]] = []
    for key, value in members(raw):
        if value[0] != "[":
            continue
        for index, item in enumerate(elements(value)):
            if index == len(groups):
                groups.append([])
            groups[index].append(f"{key}:{item}")
    return "[" + ",".join("{" + ",".join(group) + "}" for group in groups) + "]"


def _from_string(text: str, _argument: str) -> str:
    return string_of(first_value(text)) if is_valid(text) else ""


# `@dig` is in gjson.py, because it needs the search
MODIFIERS: dict[str, Callable[[str, str], str]] = {
    "pretty": _pretty,
    "ugly": lambda text, _argument: ugly(text),
    "reverse": _reverse,
    "this": lambda text, _argument: text,
    "flatten": _flatten,
    "join": _join,
    "valid": lambda text, _argument: text if is_valid(text) else "",
    "keys": _keys,
    "values": _values,
    "tostr": lambda text, _argument: quote(text),
    "fromstr": _from_string,
    "group": _group,
}
NAMES = frozenset((*MODIFIERS, "dig"))
