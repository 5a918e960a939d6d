"""What changed between two texts."""

from __future__ import annotations

import difflib

from ccm_agent.clikit.table import Style, paint
from ccm_agent.clikit.text import safe

_MEANINGS = {"+": "good", "-": "bad", "@": "quiet"}


def diff(old: str, new: str, old_name: str, new_name: str, style: Style) -> str:
    """A unified diff as text; "" when nothing changed."""
    lines = difflib.unified_diff(
        safe(old).splitlines(), safe(new).splitlines(), safe(old_name), safe(new_name), lineterm=""
    )
    return "".join(f"{paint(line, _meaning(line), style)}\n" for line in lines)


def _meaning(line: str) -> str:
    return "strong" if line.startswith(("---", "+++")) else _MEANINGS.get(line[:1], "")
