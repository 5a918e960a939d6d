"""The parts of a table: its cells and columns, the style of its text, and the meanings of colors."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ccm_agent.clikit.text import ago

UNLIMITED = 10_000
"""The width for output that is not a terminal. Output to a program or a file is not wrapped."""

COLORS = {
    "good": "green",
    "change": "yellow",
    "bad": "red",
    "gone": "magenta",
    "quiet": "bright_black",
    "strong": "bold",
    "": "",
}
"""
Each color has one meaning, and the text is complete without color. `good`: in the desired state. `change`: changed, waiting, or
needing attention. `bad`: failed or refused. `gone`: did not reply. `quiet`: ignored. `strong`: emphasis. In diffs, added lines
are green and removed lines are red.
"""

_CODES = {"green": 32, "yellow": 33, "red": 31, "magenta": 35, "bright_black": 90, "bold": 1}
"""Escape codes of the colors. Used to paint text without rich, because importing rich takes longer than most commands."""


class Style(Struct, frozen=True, kw_only=True):
    """
    The layout of a text.

    Attributes:
        width: The columns of the terminal; UNLIMITED for other outputs.
        color: Whether the text may contain escape sequences for color.
        merges: Whether nodes with equal cells share a row. None means only in the report of a run.
        height: The lines of the terminal; 0 for other outputs.
    """

    width: int = UNLIMITED
    color: bool = False
    merges: bool | None = None
    height: int = 0


class Amount(Struct, frozen=True):
    """
    A time or number in a cell: its text, and the value for comparisons. Rows with different amounts can be merged.
    """

    text: str
    value: float


class Cell(Struct, frozen=True):
    """
    A text, its meaning, and an optional amount after it.

    Attributes:
        text: The text.
        meaning: A key of COLORS.
        amount: Printed after the text. A row that merges several nodes shows the lowest and the highest amount.
    """

    text: str
    meaning: str = ""
    amount: Amount | None = None

    @property
    def full(self) -> str:
        """The text followed by its amount."""
        if self.amount is None:
            return self.text
        return f"{self.text} {self.amount.text}" if self.text else self.amount.text


def elapsed(moment: datetime | None, now: datetime) -> Amount | None:
    """Return the time since a moment as an amount; None if there is no moment."""
    return Amount(ago(moment, now), (now - moment).total_seconds()) if moment is not None else None


class Column(Struct, frozen=True):
    """
    A column.

    Attributes:
        title: The heading, in capitals.
        right: Whether to align to the right, for numbers.
        fold: Whether the text may wrap to several lines on a narrow terminal. Other columns keep their width.
        spare: On a narrow terminal, columns with the highest number are omitted first. Columns with 0 are always shown.
        names: Whether the column contains names of nodes. Rows that are otherwise equal are merged, with names like web[1-9].
    """

    title: str
    right: bool = False
    fold: bool = False
    spare: int = 0
    names: bool = False


def paint(text: str, meaning: str, style: Style) -> str:
    """Make a text safe, and color it according to its meaning."""
    if not style.color or not COLORS[meaning]:
        return text
    begin = f"\x1b[{_CODES[COLORS[meaning]]}m"
    return "\n".join(f"{begin}{line}\x1b[0m" if line else "" for line in text.split("\n"))
