"""Tables for people, with columns that fit the width of the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.clikit.text import ago, fold_names, safe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

FOLDED_WIDTH = 16
"""Columns narrower than this are hard to read: columns that can be spared are left out first."""

LEAST_WIDTH = 8
"""No column is made narrower than this for columns that keep their width, such as IDs and times."""

GAP = 2
"""Between two columns."""

UNLIMITED = 10_000
"""The width without a terminal: nothing is folded for a program or a file."""

NARROW = 60
"""Below this width a table that does not fit is printed as a block per row."""

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
    """

    width: int = UNLIMITED
    color: bool = False
    merges: bool | None = None


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
        return " ".join(part for part in (self.text, self.amount.text if self.amount else "") if part)


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


def table(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], style: Style) -> str:
    """
    The table as text that ends with a newline; "" without rows.

    Texts are made safe here. Empty columns are left out, and on a narrow terminal those that can be spared. No text is cut off:
    below NARROW columns a table that does not fit is a block per row, and where nothing else helps, every column is folded.
    """
    if not rows:
        return ""
    cells = [[_safe_cell(cell) for cell in row] for row in rows]
    if style.merges:
        columns, cells = _merged(columns, cells)
    texts = [[cell.full for cell in row] for row in cells]
    kept = [place for place in range(len(columns)) if any(row[place] for row in texts)]
    widths = {place: _width(columns[place], [row[place] for row in texts]) for place in kept}
    if style.width < min(NARROW, _needed(columns, widths, kept, UNLIMITED)):
        return _blocks(columns, cells, kept, style)
    while kept and _needed(columns, widths, kept, FOLDED_WIDTH) > style.width:
        least = max(kept, key=lambda place: columns[place].spare)
        if not columns[least].spare:
            break
        kept.remove(least)
    fits = _needed(columns, widths, kept, UNLIMITED) <= style.width
    if fits and not any("\n" in row[place] for row in texts for place in kept):
        return _lines(columns, cells, kept, widths, style)
    return _grid(columns, cells, kept, widths, style)


def _safe_cell(cell: str | Cell) -> Cell:
    if isinstance(cell, str):
        return Cell(safe(cell))
    return Cell(safe(cell.text), cell.meaning, cell.amount)


def _merged(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]]
) -> tuple[Sequence[Column], list[list[Cell]]]:
    """Fold rows that differ only in names and amounts into one, at the position of the first."""
    place = next((place for place, column in enumerate(columns) if column.names), None)
    if place is None:
        return columns, [list(row) for row in rows]
    groups: dict[tuple[tuple[str, str], ...], list[Sequence[Cell]]] = {}
    for row in rows:
        key = tuple((cell.text, cell.meaning) for at, cell in enumerate(row) if at != place)
        groups.setdefault(key, []).append(row)
    merged = [
        [_joined([row[at] for row in group]) for at in range(len(columns))] for group in groups.values()
    ]
    for row, group in zip(merged, groups.values(), strict=True):
        row[place] = Cell(
            fold_names((one[place].text for one in group), most=len(rows)), group[0][place].meaning
        )
    if len(merged) == len(rows):
        return columns, merged
    titles = list(columns)
    titles[place] = replace(columns[place], fold=True)
    return titles, merged


def _joined(cells: Sequence[Cell]) -> Cell:
    """Return one cell for several that differ only in their amount."""
    amounts = sorted((cell.amount for cell in cells if cell.amount), key=lambda amount: amount.value)
    first = cells[0]
    if not amounts or amounts[0].text == amounts[-1].text:
        return first
    return Cell(
        first.text, first.meaning, Amount(f"{amounts[0].text} … {amounts[-1].text}", amounts[0].value)
    )


def _blocks(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], kept: Sequence[int], style: Style
) -> str:
    """A block for each row, with an empty line below: its first column, then a line for each of the others that has a text."""
    first, *rest = kept
    indent = 2 + max((len(columns[place].title) for place in rest), default=0) + GAP
    blocks = []
    for row in rows:
        lines = [paint(line, "strong", style) for line in _wrapped(row[first].full, style.width)]
        for place in rest:
            cell = row[place]
            label = f"  {columns[place].title}".ljust(indent)
            for line in _wrapped(cell.full, style.width - indent) if cell.full else ():
                lines.append(f"{label}{paint(line, cell.meaning, style)}")
                label = " " * indent
        blocks.append("".join(f"{line.rstrip()}\n" for line in lines))
    return "".join(f"{block}\n" for block in blocks) if rest else "".join(blocks)


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of a safe text; what has no space is broken, so that nothing is cut off."""
    from rich.console import Console
    from rich.text import Text

    console = Console(width=max(width, LEAST_WIDTH), legacy_windows=False, color_system=None, _environ={})
    return [
        line.plain.rstrip() for line in Text(text).wrap(console, max(width, LEAST_WIDTH), overflow="fold")
    ]


def _lines(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    kept: Sequence[int],
    widths: Mapping[int, int],
    style: Style,
) -> str:
    """A line for each row. The layout of rich takes twenty times as long for this."""

    def padded(place: int, text: str, meaning: str) -> str:
        pad = " " * (widths[place] - _cells(text))
        shown = paint(text, meaning, style) if text else text
        return f"{pad}{shown}" if columns[place].right else f"{shown}{pad}"

    gap = " " * GAP
    lines = [gap.join(padded(place, columns[place].title, "strong") for place in kept)]
    lines += [gap.join(padded(place, row[place].full, row[place].meaning) for place in kept) for row in rows]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _cells(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _grid(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    kept: Sequence[int],
    widths: Mapping[int, int],
    style: Style,
) -> str:
    from rich.table import Table
    from rich.text import Text

    fits = _needed(columns, widths, kept, LEAST_WIDTH) <= style.width
    grid = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for place in kept:
        column = columns[place]
        grid.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            no_wrap=fits and not column.fold,
            overflow="fold",
            min_width=min(widths[place], LEAST_WIDTH) if fits and column.fold else None,
        )
    for row in rows:
        grid.add_row(*(Text(row[place].full, style=COLORS[row[place].meaning]) for place in kept))
    return printed(grid, style)


def _width(column: Column, texts: Sequence[str]) -> int:
    """Return the width of a column without folding."""
    return max(_cells(column.title), *map(_cells, texts))


def _needed(columns: Sequence[Column], widths: Mapping[int, int], kept: Sequence[int], folded: int) -> int:
    """Return the total width of the columns if foldable ones are folded to a width."""
    least = (min(widths[place], folded) if columns[place].fold else widths[place] for place in kept)
    return sum(least) + GAP * (len(kept) - 1)


def printed(thing: object, style: Style) -> str:
    """What rich makes of one of its own, as text without trailing spaces."""
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    console = Console(
        file=out,
        width=style.width,
        force_terminal=style.color,
        no_color=not style.color,
        color_system="standard" if style.color else None,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )
    console.print(thing)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def paint(text: str, meaning: str, style: Style) -> str:
    """A safe text in the color of its meaning."""
    if not style.color or not COLORS[meaning]:
        return text
    begin = f"\x1b[{_CODES[COLORS[meaning]]}m"
    return "\n".join(f"{begin}{line}\x1b[0m" if line else "" for line in text.split("\n"))
