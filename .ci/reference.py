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
from collections.abc import Callable
from pathlib import Path

import msgspec
from ccm_json_page import ccm_json
from codes_page import error_codes
from command_pages import command_pages, exit_codes
from environment_page import environment
from events_page import events
from settings_page import settings
from tables import fields_table

COMMANDS = "reference/commands"
"""The folder of the pages that are generated whole."""

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


SECTIONS: dict[str, Callable[[], str]] = {
    "records": records,
    "ccm-json": ccm_json,
    "error-codes": error_codes,
    "environment": environment,
    "events": events,
    "agent-settings": settings,
    "ccm-exit-codes": lambda: exit_codes("ccm"),
    "ccmctl-exit-codes": lambda: exit_codes("ccmctl"),
}
"""What stands between the marks of each name."""
