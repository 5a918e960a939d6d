"""Markdown output: tables, descriptions of JSON types, and escaped text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

Row = tuple[str, str, str]
"""A field: name, type, meaning."""

_CODE = re.compile(r"(`[^`]*`)")
_MARKUP = re.compile(r"([*<\[]|(?<!\w)_|_(?!\w))")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in lines
    )


def field_table(rows: Sequence[Sequence[str]]) -> str:
    """
    Format a table of fields: name, with a `?` if it can be missing, and meaning. Adjacent fields with the same meaning share a
    row.
    """
    shown: list[list[str]] = []
    for name, type_, text in rows:
        spelled = name + ("?" if type_.endswith("?") else "")
        if shown and shown[-1][1] == text:
            shown[-1][0] += f", {spelled}"
        else:
            shown.append([spelled, text])
    return table(["Field", "Meaning"], shown)


def plain(text: str) -> str:
    """Escape text so that it is shown unchanged, except for code in backticks."""
    parts = _CODE.split(text)
    return "".join(part if part.startswith("`") else _MARKUP.sub(r"\\\1", part) for part in parts)


def fields(definition: dict[str, Any], others: dict[str, Any]) -> list[Row]:
    """Return the fields of an object: name, type with a `?` if the field can be missing, description."""
    required = definition.get("required", ())
    return [
        (
            f"`{name}`",
            type_words(field, others) + ("" if name in required else "?"),
            field.get("description", ""),
        )
        for name, field in definition["properties"].items()
    ]


def type_words(field: dict[str, Any], others: dict[str, Any]) -> str:
    """Describe a JSON type: `text`, `integer or text`."""
    if "$ref" in field:
        return type_words(others[field["$ref"].rpartition("/")[2]], others)
    if "enum" in field:
        return "one of " + ", ".join(f"`{value}`" for value in field["enum"] if value != "")
    if "anyOf" in field:
        return " or ".join(
            dict.fromkeys(type_words(one, others) for one in field["anyOf"] if one != {"type": "null"})
        )
    kind = field.get("type")
    if kind == "array":
        return "list"
    if kind == "string":
        return FORMATS.get(field.get("format", ""), "text")
    return {"integer": "integer", "number": "number", "boolean": "boolean", "object": "object"}.get(
        str(kind), "any"
    )


FORMATS = {"date-time": "time", "duration": "duration"}
