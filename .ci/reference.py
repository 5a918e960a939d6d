"""
The generated parts of the documentation, from the code: Markdown text by the name in the page's mark, and complete pages for
the commands.

    <!-- generated: NAME -->
    <!-- /generated -->
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ccm_json_page import ccm_json
from codes_page import error_codes
from command_pages import command_pages, exit_codes
from environment_page import environment
from events_page import events
from settings_page import settings
from tables import Row, field_table, fields, table

COMMANDS = "reference/commands"
"""The folder of the pages that are fully generated."""

COMMON = 3
"""A field that at least this many records have, with the same meaning, is explained once."""

MANY = 8
"""A record with at least this many fields of another record refers to that record."""

BRIEF = {
    "audit",
    "audit_author",
    "difference",
    "impact_summary",
    "join",
    "left",
    "made",
    "notification_rule",
    "rollout_server",
    "scheduled_start",
    "secret_node",
    "secret_revision",
    "session",
    "signer",
    "token",
    "verification",
}
"""Records whose fields are only named here and explained in the schema, because the names are mostly sufficient."""

_MARKED = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)


def pages(docs: Path) -> dict[Path, str]:
    """Return the pages that are generated or have generated parts, with their expected text."""
    found = {docs / COMMANDS / name: text for name, text in command_pages().items()}
    for path in sorted(docs.rglob("*.md")):
        page = path.read_text()
        new = _MARKED.sub(lambda mark: f"{mark[1]}\n{SECTIONS[mark['name']]().strip()}\n\n{mark[3]}", page)
        if "<!-- generated:" in page:
            found[path] = new
    return found


def records() -> str:
    """Return the common fields of `ccmctl --json` records, then each record with its other fields."""
    from ccm_ctl.render.record_types.catalog import record_schema

    schema = record_schema()
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
        field_table([(name, type_, text) for (name, text), type_ in common.items()]),
    ]
    told: dict[str, list[Row]] = {}
    for kind, definition in kinds.items():
        own = [row for row in rows[kind] if (row[0], row[2]) not in common]
        like, own = _without_those_of_another(own, told)
        told[kind] = own
        shared = [
            name + ("?" if type_.endswith("?") else "")
            for name, type_, text in rows[kind]
            if (name, text) in common
        ]
        parts.append(f"### {kind}")
        also = ", ".join([*like, *shared])
        if kind in BRIEF:
            named = ", ".join(
                [*(name + ("?" if type_.endswith("?") else "") for name, type_, _ in own), also]
            )
            parts.append(f"{definition['description']} Fields: {named.removesuffix(', ')}.")
            continue
        parts.append(definition["description"] + (f" Also {also}." if also else ""))
        parts += [field_table(own)] if own else []
    return "\n\n".join(parts)


def _without_those_of_another(own: list[Row], told: dict[str, list[Row]]) -> tuple[list[str], list[Row]]:
    """Return a link to the earlier record with most of the same fields, if there are many, and the remaining fields."""
    for kind, rows in told.items():
        if len([row for row in rows if row in own]) >= MANY:
            lacks = ", ".join(name for name, *rest in rows if (name, *rest) not in own)
            link = f"the fields of [{kind}](#{kind})" + (f" without {lacks}" if lacks else "")
            return [link], [row for row in own if row not in rows]
    return [], own


def common_properties() -> list[tuple[str, str]]:
    """Return the properties that every resource type has, with their most common meaning."""
    from ccm_agent.resources.catalog import Catalog
    from ccm_agent.resources.schema import type_schema

    tables = [
        [(name, field.get("description", "")) for name, field in type_schema(kind)["properties"].items()]
        for kind in Catalog().all()
        if not kind.is_extension
    ]
    return [
        row
        for row in tables[0]
        if all(row[0] in dict(other) for other in tables)
        and sum(row in other for other in tables) > len(tables) / 2
    ]


def properties() -> str:
    """Return the properties of every type."""
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
"""The function that generates the text for each mark name."""
