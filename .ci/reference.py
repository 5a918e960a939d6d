"""
The parts of the documentation that are generated from the code: text in Markdown, by the name in the page's mark.

    <!-- generated: NAME -->
    <!-- /generated -->
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from command_pages import commands, exit_codes
from tables import table

_MARKED = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)


def pages(docs: Path) -> dict[Path, str]:
    """The pages that have generated parts, as they should be."""
    found = {}
    for path in sorted(docs.rglob("*.md")):
        page = path.read_text()
        new = _MARKED.sub(lambda mark: f"{mark[1]}\n{SECTIONS[mark['name']]().strip()}\n\n{mark[3]}", page)
        if "<!-- generated:" in page:
            found[path] = new
    return found


def records() -> str:
    """Each record of `ccmctl --json`, with its fields."""
    from ccm_ctl.render.record_types import RECORDS

    schema = msgspec.json.schema(functools.reduce(operator.or_, RECORDS))
    by_kind = schema["discriminator"]["mapping"]
    parts = []
    for kind, path in by_kind.items():
        definition = schema["$defs"][path.rpartition("/")[2]]
        fields = {name: field for name, field in definition["properties"].items() if name != "record"}
        parts += [
            f"### {kind}",
            definition["description"],
            fields_table(definition | {"properties": fields}, schema["$defs"]),
        ]
    return "\n\n".join(parts)


def fields_table(definition: dict[str, Any], others: dict[str, Any]) -> str:
    """The fields of an object: name, type, description."""
    required = definition.get("required", ())
    rows = []
    for name, field in definition["properties"].items():
        kind = type_words(field, others) + ("" if name in required else ", optional")
        rows.append([f"`{name}`", kind, field.get("description", "")])
    return table(["Field", "Type", "Meaning"], rows)


def type_words(field: dict[str, Any], others: dict[str, Any]) -> str:
    """A JSON type in words: `text`, `list of integers`."""
    if "$ref" in field:
        return type_words(others[field["$ref"].rpartition("/")[2]], others)
    if "enum" in field:
        return "one of " + ", ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(
            dict.fromkeys(type_words(one, others) for one in field["anyOf"] if one != {"type": "null"})
        )
    kind = field.get("type")
    if kind == "array":
        return f"list of {PLURALS.get(type_words(field.get('items', {}), others), 'objects')}"
    if kind == "string":
        return "time" if field.get("format") == "date-time" else "text"
    return {"integer": "integer", "number": "number", "boolean": "true or false", "object": "object"}.get(
        str(kind), "any"
    )


PLURALS = {"text": "texts", "integer": "integers", "time": "times"}


def first_line(thing: object) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


SECTIONS: dict[str, Callable[[], str]] = {
    "records": records,
    "ccm-commands": lambda: commands("ccm"),
    "ccm-exit-codes": lambda: exit_codes("ccm"),
    "ccmctl-commands": lambda: commands("ccmctl"),
    "ccmctl-exit-codes": lambda: exit_codes("ccmctl"),
}
"""What stands between the marks of each name."""
