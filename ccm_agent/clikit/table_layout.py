"""The layout of a table: its visible columns, their widths, and the wrapping of long texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from msgspec import Struct

from ccm_agent.clikit.cells import UNLIMITED, Cell, Column, Style, paint

GAP = 2
"""The space between two columns."""

FOLDED_WIDTH = 16
"""The minimum readable width of a wrapped column. To keep it, columns that can be spared are omitted first."""

LEAST_WIDTH = 8
"""The minimum width. Columns do not become narrower to make room for columns of fixed width, such as IDs and times."""

NARROW = 60
"""If a table does not fit and the terminal is narrower than this, each row is printed as a block."""

_GAP = " " * GAP

_WORD = re.compile(r"\S+\s*")


class PlacedColumns(Struct, frozen=True, kw_only=True):
    """
    The positions of the texts of a row.

    Attributes:
        columns: All columns.
        kept: The positions of the visible columns.
        widths: The widths of the visible columns; [] for a block of lines per row.
        style: The width and color.
        is_plain: Whether texts are neither colored, wrapped nor aligned to the right.
    """

    columns: Sequence[Column]
    kept: Sequence[int]
    widths: Sequence[int]
    style: Style
    is_plain: bool = False

    @property
    def head(self) -> str:
        """The titles; "" for blocks, in which each row contains the titles."""
        return (
            self._lines([(self.columns[place].title, "strong") for place in self.kept]) if self.widths else ""
        )

    def row(self, cells: Sequence[Cell]) -> str:
        """Return the lines of a row."""
        if not self.widths:
            return self._block(cells)
        shown = [cells[place] for place in self.kept]
        texts = [cell.full for cell in shown]
        if self.is_plain and (text := "".join(texts)).isascii() and "\n" not in text:
            return f"{_GAP.join(map(str.ljust, texts, self.widths)).rstrip()}\n"
        return self._lines([(text, cell.meaning) for text, cell in zip(texts, shown, strict=True)])

    def _lines(self, texts: Sequence[tuple[str, str]]) -> str:
        is_limited = self.style.width < UNLIMITED
        for (text, _), width in zip(texts, self.widths, strict=True):
            if "\n" in text or (is_limited and cell_width(text) > width):
                break
        else:
            return self._line(texts)
        folded = [
            wrap(text, width if is_limited else max(width, cell_width(text)))
            for (text, _), width in zip(texts, self.widths, strict=True)
        ]
        meanings = [meaning for _, meaning in texts]
        lines = zip_longest(*folded, fillvalue="")
        return "".join(self._line(list(zip(line, meanings, strict=True))) for line in lines)

    def _line(self, texts: Sequence[tuple[str, str]]) -> str:
        parts = []
        for place, width, (text, meaning) in zip(self.kept, self.widths, texts, strict=True):
            pad = " " * (width - cell_width(text))
            shown = paint(text, meaning, self.style) if meaning else text
            parts.append(f"{pad}{shown}" if self.columns[place].right else f"{shown}{pad}")
        return f"{_GAP.join(parts).rstrip()}\n"

    def _block(self, cells: Sequence[Cell]) -> str:
        """Return the first column, then a line for each other column that has a text, then an empty line."""
        first, *rest = self.kept
        style = self.style
        indent = 2 + max((len(self.columns[place].title) for place in rest), default=0) + GAP
        head = wrap(cells[first].full, max(style.width, LEAST_WIDTH))
        lines = [paint(line, "strong", style) for line in head]
        for place in rest:
            cell = cells[place]
            label = f"  {self.columns[place].title}".ljust(indent)
            for line in wrap(cell.full, max(style.width - indent, LEAST_WIDTH)) if cell.full else ():
                lines.append(f"{label}{paint(line, cell.meaning, style)}")
                label = " " * indent
        return "".join(f"{line.rstrip()}\n" for line in lines) + ("\n" if rest else "")


def lay_out(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], style: Style, *, is_sample: bool = False
) -> PlacedColumns:
    """
    Lay out a table for its rows. Columns without text are omitted, unless these rows are only a sample.

    If the columns do not fit, columns that can be spared are omitted first, then foldable columns become narrower. If they still
    do not fit, every column is wrapped. On a narrow terminal, each row becomes a block instead. Text is never truncated.
    """
    places = range(len(columns))
    widths = [max((cell_width(row[place].full) for row in rows), default=0) for place in places]
    kept = [place for place in places if widths[place] or is_sample]
    widths = [max(width, cell_width(columns[place].title)) for place, width in enumerate(widths)]

    def needed(folded: int) -> int:
        """Return the total width if foldable columns have this width."""
        least = (min(widths[place], folded) if columns[place].fold else widths[place] for place in kept)
        return sum(least) + GAP * (len(kept) - 1)

    if style.width < min(NARROW, needed(UNLIMITED)):
        return PlacedColumns(columns=columns, kept=kept, widths=[], style=style)
    while kept and needed(FOLDED_WIDTH) > style.width:
        least = max(kept, key=lambda place: columns[place].spare)
        if not columns[least].spare:
            break
        kept.remove(least)
    own = [widths[place] for place in kept]
    if style.width < UNLIMITED and needed(UNLIMITED) > style.width:
        fits = needed(LEAST_WIDTH) <= style.width
        lowest = [
            (min(width, LEAST_WIDTH) if columns[place].fold else width) if fits else 1
            for place, width in zip(kept, own, strict=True)
        ]
        own = _narrow(own, lowest, style.width - GAP * (len(kept) - 1))
    is_plain = (
        style.width == UNLIMITED and not style.color and not any(columns[place].right for place in kept)
    )
    return PlacedColumns(columns=columns, kept=kept, widths=own, style=style, is_plain=is_plain)


def _narrow(widths: Sequence[int], lowest: Sequence[int], limit: int) -> list[int]:
    """Shrink the widest columns until all fit together. No column shrinks below its lowest width."""
    found = [min(width, max(limit, low)) for width, low in zip(widths, lowest, strict=True)]
    while sum(found) > limit:
        spare = [place for place, width in enumerate(found) if width > lowest[place]]
        if not spare:
            break
        found[max(spare, key=lambda place: found[place])] -= 1
    return found


def cell_width(text: str) -> int:
    """Return the number of columns that a text occupies on a terminal; for several lines, the widest."""
    if "\n" in text:
        return max(map(cell_width, text.split("\n")))
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap(text: str, width: int) -> list[str]:
    """Wrap a safe text to a width. Words that are too long are broken, so no text is truncated."""
    return [line for part in text.split("\n") for line in _wrapped(part, width)]


def _wrapped(text: str, width: int) -> Iterator[str]:
    line, used = "", 0
    words = _WORD.findall(text)
    if words:  # only the first word keeps the indentation
        words[0] = text[: len(text) - len(text.lstrip())] + words[0]
    for word in words:
        rest = word.rstrip()
        if used and used + cell_width(rest) > width:
            yield line.rstrip()
            line, used = "", 0
        if cell_width(rest) > width:
            *heads, last = _pieces(rest, width)
            yield from heads
            word, rest = last + word[len(rest) :], last
        line, used = (line + word, used + cell_width(word)) if rest else (line, used)
    yield line.rstrip()


def _pieces(text: str, width: int) -> list[str]:
    """Split a text without spaces into pieces that fit, each with at least one character. Long texts take linear time."""
    if text.isascii():
        return [text[at : at + width] for at in range(0, len(text), width)]
    from rich.cells import chop_cells

    return [piece for piece in chop_cells(text, width) if piece]
