"""
Tables for people, with columns that fit the width of the terminal.

A table of more than LONG rows is written while its rows are made, with widths by the first ones. A terminal gets as many of its
rows as it can show, unless nodes that read alike share so few rows that all of them fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Generic, TypeVar, overload

from msgspec.structs import replace

from ccm_agent.clikit.cells import COLORS as COLORS
from ccm_agent.clikit.cells import UNLIMITED as UNLIMITED
from ccm_agent.clikit.cells import Amount as Amount
from ccm_agent.clikit.cells import Cell as Cell
from ccm_agent.clikit.cells import Column as Column
from ccm_agent.clikit.cells import Style as Style
from ccm_agent.clikit.cells import elapsed as elapsed
from ccm_agent.clikit.cells import paint as paint
from ccm_agent.clikit.table_layout import lay_out
from ccm_agent.clikit.text import fold_names, safe

LONG = 2_000
"""A table with more rows is long: its widths are those of the first rows, and a terminal does not get all of them."""

AT_ONCE = 500
"""Rows of a long table that are written together."""

BESIDE = 5
"""Lines of a terminal that a long table leaves free: for its titles, what is written about it, and the prompt."""

LEAST_ROWS = 10
"""The fewest lines of a long table, for a terminal of few lines."""

AGAIN = "`| less`"
"""What shows all rows of a command that changes nothing: it may be given once more."""

NAMES_MOST = 100
"""Groups of names in a cell of a long table."""

Row = Sequence[Cell]
Item = TypeVar("Item")


class Rows(Sequence[Sequence[str | Cell]], Generic[Item]):
    """Rows that are made when they are written: with `--json` and on a terminal, most of a long table never is."""

    def __init__(self, items: Sequence[Item], make: Callable[[Item], Sequence[str | Cell]]) -> None:
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, place: int) -> Sequence[str | Cell]: ...

    @overload
    def __getitem__(self, place: slice) -> Rows[Item]: ...

    def __getitem__(self, place: int | slice) -> Sequence[str | Cell] | Rows[Item]:
        if isinstance(place, slice):
            return Rows(self._items[place], self._make)
        return self._make(self._items[place])


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str | Cell]],
    style: Style,
    *,
    is_worst_last: bool = False,
    again: str = AGAIN,
) -> str:
    """
    The table as text that ends with a newline; "" without rows.

    Texts are made safe here. Empty columns are left out, and on a narrow terminal those that can be spared. No text is cut off:
    below a certain width a table that does not fit is a block per row, and where nothing else helps, every column is folded.
    """
    return "".join(draw(columns, rows, style, is_worst_last=is_worst_last, again=again))


def draw(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str | Cell]],
    style: Style,
    *,
    unit: str = "rows",
    narrow: str = "",
    is_worst_last: bool = False,
    again: str = AGAIN,
) -> Iterator[str]:
    """
    The pieces of `table`, each as soon as its rows are made.

    Args:
        columns, rows, style: The table.
        unit: What the rows are.
        narrow: The option that selects rows, such as `-t`; "" for none.
        is_worst_last: The rows that an operator must see are the last, so a terminal that cannot show all of them shows these.
        again: What shows all rows without changing anything; "": nothing does, so they are all written.
    """
    if len(rows) <= LONG:
        yield _drawn(columns, [_safe_row(row) for row in rows], style)
    elif style.height and again:
        hint = f"narrow with {narrow}, or show all with {again}" if narrow else f"show all with {again}"
        yield _screen(columns, rows, style, unit=unit, hint=hint, is_worst_last=is_worst_last)
    else:
        first = [_safe_row(row) for row in rows[:LONG]]
        layout = lay_out(columns, first, style, is_sample=True)
        yield layout.head
        lines = (layout.row(row) for row in chain(first, map(_safe_row, rows[LONG:])))
        while some := "".join(islice(lines, AT_ONCE)):
            yield some


def _drawn(columns: Sequence[Column], rows: Sequence[Row], style: Style, names_most: int = LONG) -> str:
    if not rows:
        return ""
    if style.merges:
        columns, rows = _merged(columns, rows, names_most)
    layout = lay_out(columns, rows, style)
    return layout.head + "".join(layout.row(row) for row in rows)


def _screen(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str | Cell]],
    style: Style,
    *,
    unit: str,
    hint: str,
    is_worst_last: bool,
) -> str:
    """What a terminal shows of a long table."""
    limit = max(style.height - BESIDE, LEAST_ROWS)
    if style.merges and (whole := _whole(columns, rows, style, limit)):
        return whole
    cells = [_safe_row(row) for row in (rows[-limit:] if is_worst_last else rows[:limit])]
    layout = lay_out(columns, cells, style)
    texts = [layout.row(row) for row in cells]
    kept = [*_that_fit(reversed(texts), limit)][::-1] if is_worst_last else [*_that_fit(texts, limit)]
    which = "the last" if is_worst_last else "the first"
    return f"{layout.head}{''.join(kept)}{which} {len(kept)} of {len(rows):,} {unit}; {hint}\n"


def _whole(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], style: Style, limit: int) -> str:
    """The table with shared rows if it fits into these lines, otherwise "". Its first rows usually decide."""
    text = ""
    for some in (rows[:LONG], rows):
        text = _drawn(columns, [_safe_row(row) for row in some], style, NAMES_MOST)
        if text.count("\n") > limit:
            return ""
    return text


def _that_fit(texts: Iterable[str], limit: int) -> Iterator[str]:
    """The first texts that fit into these lines together, at least one."""
    lines = 0
    for text in texts:
        lines += text.count("\n")
        if lines > limit and lines > text.count("\n"):
            return
        yield text


def _safe_row(row: Sequence[str | Cell]) -> Row:
    return [Cell(safe(cell)) if isinstance(cell, str) else _safe_cell(cell) for cell in row]


def _safe_cell(cell: Cell) -> Cell:
    text = safe(cell.text)
    return cell if text is cell.text else Cell(text, cell.meaning, cell.amount)


def _merged(columns: Sequence[Column], rows: Sequence[Row], most: int) -> tuple[Sequence[Column], list[Row]]:
    """Fold rows that differ only in names and amounts into one, at the position of the first."""
    place = next((place for place, column in enumerate(columns) if column.names), None)
    if place is None:
        return columns, list(rows)
    groups: dict[tuple[tuple[str, str], ...], list[Sequence[Cell]]] = {}
    for row in rows:
        key = tuple((cell.text, cell.meaning) for at, cell in enumerate(row) if at != place)
        groups.setdefault(key, []).append(row)
    merged: list[list[Cell]] = [
        [_joined([row[at] for row in group]) for at in range(len(columns))] for group in groups.values()
    ]
    for row, group in zip(merged, groups.values(), strict=True):
        row[place] = Cell(fold_names((one[place].text for one in group), most=most), group[0][place].meaning)
    if len(merged) == len(rows):
        return columns, [*merged]
    titles = list(columns)
    titles[place] = replace(columns[place], fold=True)
    return titles, [*merged]


def _joined(cells: Sequence[Cell]) -> Cell:
    """Return one cell for several that differ only in their amount."""
    amounts = sorted((cell.amount for cell in cells if cell.amount), key=lambda amount: amount.value)
    first = cells[0]
    if not amounts or amounts[0].text == amounts[-1].text:
        return first
    return Cell(
        first.text, first.meaning, Amount(f"{amounts[0].text} … {amounts[-1].text}", amounts[0].value)
    )
