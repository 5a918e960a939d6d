"""
The parts of the documentation that are generated from the code: text in Markdown, by the name in the page's mark, and whole
pages for the commands.

    <!-- generated: NAME -->
    <!-- /generated -->
"""

from __future__ import annotations

import functools
import operator
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
from ccm_json_page import ccm_json
from codes_page import error_codes
from command_pages import command_pages, exit_codes
from environment_page import environment
from events_page import events
from settings_page import settings
from tables import fields, table

COMMANDS = "reference/commands"
"""The folder of the pages that are generated whole."""

FIELDS = ["Field", "Type", "Meaning"]
COMMON = 3
"""A field that at least so many records have, with the same meaning, is explained once."""

_MARKED = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)


def pages(docs: Path) -> dict[Path, str]:
    """The pages that are generated or have generated parts, as they should be."""
    found = {docs / COMMANDS / name: text for name, text in command_pages().items()}
    for path in sorted(docs.rglob("*.md")):
        page = path.read_text()
        new = _MARKED.sub(lambda mark: f"{mark[1]}\n{SECTIONS[mark['name']]().strip()}\n\n{mark[3]}", page)
        if "<!-- generated:" in page:
            found[path] = new
    return found


def records() -> str:
    """The fields that many records of `ccmctl --json` have, then each record with its other fields."""
    from ccm_ctl.render.record_types import RECORDS

    schema = msgspec.json.schema(functools.reduce(operator.or_, RECORDS))
    by_kind = schema["discriminator"]["mapping"]
    kinds = {kind: schema["$defs"][path.rpartition("/")[2]] for kind, path in by_kind.items()}
    rows = {
        kind: [row for row in fields(definition, schema["$defs"]) if row[0] != "`record`"]
        for kind, definition in kinds.items()
    }
    times = Counter((name, text) for kind in rows for name, _, text in rows[kind])
    common = {row: "" for row, number in times.items() if number >= COMMON}
    for kind in rows:
        common |= {
            (name, text): type_.rstrip("?") for name, type_, text in rows[kind] if (name, text) in common
        }
    parts = [
        table(FIELDS, [(name, type_, text) for (name, text), type_ in common.items()]),
    ]
    for kind, definition in kinds.items():
        own = [row for row in rows[kind] if (row[0], row[2]) not in common]
        shared = [
            name + ("?" if type_.endswith("?") else "")
            for name, type_, text in rows[kind]
            if (name, text) in common
        ]
        parts.append(f"### {kind}")
        parts.append(definition["description"] + (f" Also {', '.join(shared)}." if shared else ""))
        parts += [table(FIELDS, own)] if own else []
    return "\n\n".join(parts)


def common_properties() -> list[tuple[str, str]]:
    """The properties that every resource type has with the same meaning: name and meaning."""
    from ccm_agent.resources.catalog import Catalog
    from ccm_agent.resources.schema import type_schema

    tables = [
        [(name, field.get("description", "")) for name, field in type_schema(kind)["properties"].items()]
        for kind in Catalog().all()
        if not kind.is_extension
    ]
    return [row for row in tables[0] if all(row in other for other in tables)]


def properties() -> str:
    """The properties of every type."""
    from ccm_agent.resources.catalog import Catalog

    ours = {name for kind in Catalog().all() for name in kind.rules.extensions}
    rows = [
        (f"`{name}`", f"{text}{' *(not in Choria CCM)*' if name in ours else ''}")
        for name, text in common_properties()
    ]
    return table(["Property", "Meaning"], rows)


SECTIONS: dict[str, Callable[[], str]] = {
    "records": records,
    "properties": properties,
    "ccm-json": ccm_json,
    "error-codes": error_codes,
    "environment": environment,
    "events": events,
    "agent-settings": settings,
    "ccm-exit-codes": lambda: exit_codes("ccm"),
    "ccmctl-exit-codes": lambda: exit_codes("ccmctl"),
}
"""What stands between the marks of each name."""
