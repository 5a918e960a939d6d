"""Tables and escaped text in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CODE = re.compile(r"(`[^`]*`)")
_MARKUP = re.compile(r"([*<\[]|(?<!\w)_|_(?!\w))")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in lines
    )


def plain(text: str) -> str:
    """A text that is shown as it is written, except for the code in backticks."""
    parts = _CODE.split(text)
    return "".join(part if part.startswith("`") else _MARKUP.sub(r"\\\1", part) for part in parts)
