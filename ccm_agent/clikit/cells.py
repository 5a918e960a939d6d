"""What tables consist of: cells and columns, the style of a text, and what the colors mean."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ccm_agent.clikit.text import ago

UNLIMITED = 10_000
"""The width without a terminal: nothing is folded for a program or a file."""

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
Each color means one thing, and nothing is said by color alone: `good` is as desired, `change` was changed, waits or needs
attention, `bad` failed or was refused, `gone` did not answer, `quiet` does not count; `strong` stands out without a meaning.
Diffs are the exception: there, green lines are added and red lines removed.
"""

_CODES = {"green": 32, "yellow": 33, "red": 31, "magenta": 35, "bright_black": 90, "bold": 1}
"""The escape codes of the colors, for text that is painted without rich, whose import takes longer than most commands."""


class Style(Struct, frozen=True, kw_only=True):
    """
    How to lay out a text.

    Attributes:
        width: Columns of the terminal; UNLIMITED for anything else.
        color: Escape sequences for color may be written.
        merges: Nodes with equal cells share a row; None: only in the report of a run.
        height: Lines of the terminal; 0 for anything else.
    """

    width: int = UNLIMITED
    color: bool = False
    merges: bool | None = None
    height: int = 0


class Amount(Struct, frozen=True):
    """
    A time or number in a cell, as text and as the value by which it is compared. It may differ among rows that are folded into
    one.
    """

    text: str
    value: float


class Cell(Struct, frozen=True):
    """
    A text, what it means, and perhaps an amount after it.

    Attributes:
        text: The text.
        meaning: A key of COLORS.
        amount: Printed after the text. A row that folds several nodes shows the lowest and the highest amount.
    """

    text: str
    meaning: str = ""
    amount: Amount | None = None

    @property
    def full(self) -> str:
        """The text with its amount."""
        if self.amount is None:
            return self.text
        return f"{self.text} {self.amount.text}" if self.text else self.amount.text


def elapsed(moment: datetime | None, now: datetime) -> Amount | None:
    """Return a cell with the time since a moment; None without a moment."""
    return Amount(ago(moment, now), (now - moment).total_seconds()) if moment is not None else None


class Column(Struct, frozen=True):
    """
    A column.

    Attributes:
        title: Its heading, in capitals.
        right: Align to the right, for numbers.
        fold: It may be folded into several lines when the terminal is narrow; the others keep their width.
        spare: On a narrow terminal, columns with the highest number are left out first; 0 is never left out.
        names: It has names of nodes: rows that are alike in all other columns are printed as one row, with names like web[1-9].
    """

    title: str
    right: bool = False
    fold: bool = False
    spare: int = 0
    names: bool = False


def paint(text: str, meaning: str, style: Style) -> str:
    """A safe text in the color of its meaning."""
    if not style.color or not COLORS[meaning]:
        return text
    begin = f"\x1b[{_CODES[COLORS[meaning]]}m"
    return "\n".join(f"{begin}{line}\x1b[0m" if line else "" for line in text.split("\n"))
