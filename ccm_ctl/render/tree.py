"""Format nested values, such as facts or the details of a node, as an indented tree."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ccm_agent.clikit.table import Style, paint
from ccm_agent.clikit.text import safe


def tree(value: Mapping[str, object], style: Style, *, as_given: bool = False) -> str:
    """
    Return the tree as text that ends with a newline. Keys are sorted. With `as_given`, the top-level keys keep their order.

    A mapping, a list or a text of several lines is below its key, indented by two columns. Empty mappings and lists are `{}` and
    `[]`. Texts that look like a value of another type are in quotes.
    """
    lines: list[str] = []
    for key in value if as_given else sorted(value, key=str):
        lines += _branch(safe(str(key)), value[key], "", style)
    return "".join(f"{line}\n" for line in lines)


def _branch(label: str, value: object, indent: str, style: Style) -> list[str]:
    head = f"{indent}{paint(label, 'quiet', style)}:"
    if isinstance(value, Mapping) and value:
        inner = [
            line
            for key in sorted(value, key=str)
            for line in _branch(safe(str(key)), value[key], f"{indent}  ", style)
        ]
        return [head, *inner]
    if isinstance(value, list) and value:
        if all(not isinstance(one, (Mapping, list)) for one in value):
            return [f"{head} {', '.join(scalar(one) for one in value)}"]
        items = [
            line
            for place, one in enumerate(value)
            for line in _branch(f"[{place}]", one, f"{indent}  ", style)
        ]
        return [head, *items]
    if isinstance(value, str) and "\n" in value:
        return [head, *(f"{indent}  {line}" for line in safe(value).splitlines())]
    return [f"{head} {scalar(value)}"]


def scalar(value: object) -> str:
    """Format one value as a line of JSON. Text has no quotes unless it looks like a value of another type."""
    if isinstance(value, str) and value and value == value.strip() and not _is_special(value):
        return safe(value)

    return safe(msgspec.json.encode(value).decode())


def _is_special(text: str) -> bool:
    if text in ("true", "false", "null"):
        return True
    if text[0].isalpha() and text[0] not in "iInN":  # neither `inf` nor `nan`
        return False
    try:
        float(text)
    except ValueError:
        return text[0] in "\"'{["
    return True
