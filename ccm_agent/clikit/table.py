"""Tables for people: columns that fit the width, and no line that says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.clikit.text import safe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDED_WIDTH = 16
"""A column that is folded to less is hard to read: others that can be spared are left out first."""

LEAST_WIDTH = 8
"""No column is folded to less for the sake of those that keep their width, such as ids and times."""

GAP = 2
"""Between two columns."""

UNLIMITED = 10_000
"""Width of what is not a terminal: nothing is folded for a program or a file."""

COLOURS = {
    "good": "green",
    "change": "yellow",
    "bad": "red",
    "gone": "magenta",
    "quiet": "bright_black",
    "strong": "bold",
    "": "",
}
"""What a style means; the meaning never stands in the colour alone."""


class Style(Struct, frozen=True, kw_only=True):
    """
    What the text is for.

    Attributes:
        width: Columns of the terminal; UNLIMITED for anything else.
        colour: Escape sequences for colour may be written.
    """

    width: int = UNLIMITED
    colour: bool = False


class Cell(Struct, frozen=True):
    """A text and what it means: a key of COLOURS."""

    text: str
    meaning: str = ""


class Column(Struct, frozen=True):
    """
    A column.

    Attributes:
        title: Its heading, in capitals.
        right: Numbers stand to the right.
        fold: It may be folded into several lines when the terminal is narrow; the others keep their width.
        spare: It may be left out when the terminal is too narrow even so, the highest number first; 0 never is.
    """

    title: str
    right: bool = False
    fold: bool = False
    spare: int = 0


def table(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], style: Style) -> str:
    """
    The table as text that ends with a newline; "" without rows.

    Texts are made safe here. Empty columns are left out, and on a narrow terminal those that can be spared. No text is cut off:
    where nothing else helps, every column is folded.
    """
    if not rows:
        return ""
    from rich.table import Table
    from rich.text import Text

    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    kept = [place for place in range(len(columns)) if any(row[place].text for row in cells)]
    widths = {place: _width(columns[place], [row[place].text for row in cells]) for place in kept}
    while kept and _needed(columns, widths, kept, FOLDED_WIDTH) > style.width:
        least = max(kept, key=lambda place: columns[place].spare)
        if not columns[least].spare:
            break
        kept.remove(least)
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
    for row in cells:
        texts = [(safe(row[place].text), COLOURS[row[place].meaning]) for place in kept]
        grid.add_row(*(Text(text, style=colour) for text, colour in texts))
    return printed(grid, style)


def _width(column: Column, texts: Sequence[str]) -> int:
    """What a column takes unfolded."""
    from rich.cells import cell_len

    return max(cell_len(column.title), *(cell_len(safe(text)) for text in texts))


def _needed(columns: Sequence[Column], widths: Mapping[int, int], kept: Sequence[int], folded: int) -> int:
    """What these columns take, where those that may be are folded to a width."""
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
        force_terminal=style.colour,
        no_color=not style.colour,
        color_system="standard" if style.colour else None,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )
    console.print(thing)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def paint(text: str, meaning: str, style: Style) -> str:
    """A safe text in the colour of its meaning."""
    if not style.colour or not COLOURS[meaning]:
        return text
    from rich.style import Style as RichStyle

    look = RichStyle.parse(COLOURS[meaning])
    return "\n".join(look.render(line) if line else "" for line in text.split("\n"))
