"""Format the differences of two texts."""

from __future__ import annotations

from ccm_agent.clikit.table import Style, paint
from ccm_agent.clikit.text import safe
from ccm_agent.model.line_diff import diff_lines

_MEANINGS = {"+": "good", "-": "bad", "@": "quiet"}


def diff(old: str, new: str, old_name: str, new_name: str, style: Style) -> str:
    """Return a unified diff as text; "" if the texts are equal."""
    lines = list(diff_lines(safe(old).splitlines(), safe(new).splitlines()))
    if lines:
        lines = [f"--- {safe(old_name)}", f"+++ {safe(new_name)}", *lines]
    return "".join(f"{paint(line, _meaning(line), style)}\n" for line in lines)


def _meaning(line: str) -> str:
    return "strong" if line.startswith(("---", "+++")) else _MEANINGS.get(line[:1], "")
