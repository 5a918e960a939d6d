"""
Draws a table while its rows arrive, as soon as its column widths are known.

A table of more than LONG rows takes its widths from the first rows. A terminal shows only as many of its rows as fit, unless
all rows fit after nodes with equal cells are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ccm_agent.clikit.cells import Cell, Column, Style
from ccm_agent.clikit.table_layout import PlacedColumns, lay_out
from ccm_agent.clikit.table_merge import MergedRows
from ccm_agent.clikit.text import safe

LONG = 2_000
"""A table with more rows than this is long. Its widths are those of the first rows, and a terminal does not show all rows."""

BESIDE = 5
"""The number of terminal lines that a long table leaves free for its titles, a note and the prompt."""

LEAST_ROWS = 10
"""The minimum number of lines of a long table on a terminal with few lines."""

AGAIN = "`| less`"
"""The advice for showing all rows. It is printed for commands that change nothing and can therefore be repeated."""

AT_ONCE = 500
"""The number of rows of a long table that are written together."""

NAMES_MOST = 100
"""The maximum number of groups of names in a cell of a long table."""


class TableStream:
    """
    Draws a table while its rows are made.

    Attributes:
        needs_rows: Whether further rows would change the output. If not, the caller need not create them.
        at_once: The number of rows to create before they are added, because later rows may not be needed.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        total: int,
        style: Style,
        *,
        unit: str = "rows",
        narrow: str = "",
        again: str = AGAIN,
    ) -> None:
        """
        Begin a table.

        Args:
            columns, style: The table.
            total: The total number of rows.
            unit: The plural noun for the rows.
            narrow: The option that selects rows, such as `-t`; "" for none.
            again: How to show all rows without changing anything. "" if there is no way, so all rows are written.
        """
        self._columns = columns
        self._total = total
        self._style = style
        self._unit = unit
        self._hint = format_hint(narrow, again)
        self._is_long = total > LONG
        self._limit = count_lines(style) if self._is_long and style.height and again else 0
        self._first: list[Sequence[Cell]] = []
        self._merged = MergedRows(columns) if self._limit and style.merges else None
        self._layout: PlacedColumns | None = None
        self.needs_rows = True
        is_screen_only = self._limit and self._merged is None
        self.at_once = self._limit if is_screen_only else AT_ONCE

    def add(self, rows: Sequence[Sequence[str | Cell]]) -> list[str]:
        """Add rows, and return the pieces of text that can be written now; [] if they depend on later rows."""
        if not self.needs_rows:
            return []
        cells = [safe_row(row) for row in rows]
        if self._limit:
            return self._add_to_screen(cells)
        if self._layout is not None:
            return ["".join(map(self._layout.row, cells))]
        self._first += cells
        return self._begin() if self._is_long and len(self._first) >= LONG else []

    def end(self) -> list[str]:
        """Return the remaining pieces of text after the last row."""
        if not self.needs_rows or self._layout is not None:
            return []
        self.needs_rows = False
        if self._merged is not None:
            text = lay_out_all(*self._merged.merged(NAMES_MOST), self._style)
            return [text] if text.count("\n") <= self._limit else self._show_screen()
        if self._limit:
            return self._show_screen()
        return self._begin() if self._is_long else [draw_all(self._columns, self._first, self._style)]

    def _begin(self) -> list[str]:
        """Return the titles and the first rows of a table that is not limited to one screen."""
        first, self._first = self._first, []
        layout = self._layout = lay_out(self._columns, first, self._style, is_sample=True)
        starts = range(0, len(first), AT_ONCE)
        return [layout.head, *("".join(map(layout.row, first[at : at + AT_ONCE])) for at in starts)]

    def _add_to_screen(self, cells: Sequence[Sequence[Cell]]) -> list[str]:
        self._first += cells[: self._limit - len(self._first)]
        if self._merged is not None:
            self._merged.add(cells)
            is_decided = self._merged.count > self._limit
        else:
            is_decided = len(self._first) >= self._limit
        return self._show_screen() if is_decided else []

    def _show_screen(self) -> list[str]:
        self.needs_rows, self._merged = False, None
        layout = lay_out(self._columns, self._first, self._style)
        kept = list(that_fit(map(layout.row, self._first), self._limit))
        note = f"the first {len(kept)} of {self._total:,} {self._unit}; {self._hint}\n"
        return [f"{layout.head}{''.join(kept)}{note}"]


def format_hint(narrow: str, again: str) -> str:
    """Describe how to see all rows of a long table. See TableStream for `narrow` and `again`."""
    return f"narrow with {narrow}, or show all with {again}" if narrow else f"show all with {again}"


def count_lines(style: Style) -> int:
    """Return the number of terminal lines for a long table."""
    return max(style.height - BESIDE, LEAST_ROWS)


def draw_all(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], style: Style) -> str:
    """Draw a short table. Nodes with equal cells share a row if the style allows it."""
    if style.merges:
        merged = MergedRows(columns)
        merged.add(rows)
        columns, rows = merged.merged(LONG)
    return lay_out_all(columns, rows, style)


def lay_out_all(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], style: Style) -> str:
    """Draw a table of these rows; "" without rows."""
    if not rows:
        return ""
    layout = lay_out(columns, rows, style)
    return layout.head + "".join(map(layout.row, rows))


def that_fit(texts: Iterable[str], limit: int) -> Iterator[str]:
    """Yield as many of the first texts as fit into `limit` lines, but at least one."""
    lines = 0
    for text in texts:
        lines += text.count("\n")
        if lines > limit and lines > text.count("\n"):
            return
        yield text


def safe_row(row: Sequence[str | Cell]) -> Sequence[Cell]:
    """Return the cells of a row without terminal control sequences."""
    return [Cell(safe(cell)) if isinstance(cell, str) else _safe_cell(cell) for cell in row]


def _safe_cell(cell: Cell) -> Cell:
    text = safe(cell.text)
    return cell if text is cell.text else Cell(text, cell.meaning, cell.amount)
