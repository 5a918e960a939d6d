"""
Tables for people. The columns fit the width of the terminal. `table_stream` draws a table while its rows arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, overload

from ccm_agent.clikit.cells import COLORS as COLORS
from ccm_agent.clikit.cells import UNLIMITED as UNLIMITED
from ccm_agent.clikit.cells import Amount as Amount
from ccm_agent.clikit.cells import Cell as Cell
from ccm_agent.clikit.cells import Column as Column
from ccm_agent.clikit.cells import Style as Style
from ccm_agent.clikit.cells import elapsed as elapsed
from ccm_agent.clikit.cells import paint as paint
from ccm_agent.clikit.table_layout import lay_out
from ccm_agent.clikit.table_merge import MergedRows
from ccm_agent.clikit.table_stream import AGAIN as AGAIN
from ccm_agent.clikit.table_stream import (
    AT_ONCE,
    NAMES_MOST,
    TableStream,
    count_lines,
    format_hint,
    lay_out_all,
    safe_row,
    that_fit,
)
from ccm_agent.clikit.table_stream import LONG as LONG

Item = TypeVar("Item")


class Rows(Sequence[Sequence[str | Cell]], Generic[Item]):
    """Rows that are created when they are written. With `json` or on a terminal, most rows of a long table are not needed."""

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
    Return the table as text that ends with a newline; "" without rows.

    Cells are made safe for the terminal. Empty columns are omitted. On a narrow terminal, optional columns are omitted too. Text
    is never truncated: if a table does not fit, each row is a block of lines, or, as a last resort, every column is wrapped.
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
    Yield the text of `table` in pieces, each as soon as its rows are made.

    Args:
        columns, rows, style: The table.
        unit: The plural noun for the rows, such as "nodes".
        narrow: The option that selects rows, such as `-t`; "" for none.
        is_worst_last: Whether the most important rows are last. A terminal that cannot show all rows then shows the last rows.
        again: How to show all rows without changing anything, such as `| less`. "" if there is no way, so all rows are written.
    """
    if is_worst_last and len(rows) > LONG and style.height and again:
        limit = count_lines(style)
        whole = _whole(columns, rows, style, limit) if style.merges else ""
        yield whole or _last_screen(columns, rows, style, limit, f"{unit}; {format_hint(narrow, again)}")
        return
    stream = TableStream(columns, len(rows), style, unit=unit, narrow=narrow, again=again)
    for begin in range(0, len(rows), stream.at_once):
        if not stream.needs_rows:
            return
        yield from stream.add(rows[begin : begin + stream.at_once])
    yield from stream.end()


def _whole(columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], style: Style, limit: int) -> str:
    """Return the table with merged rows; "" if it needs more than `limit` lines, which the first rows usually show."""
    merged = MergedRows(columns)
    for begin in range(0, len(rows), AT_ONCE):
        merged.add([safe_row(row) for row in rows[begin : begin + AT_ONCE]])
        if merged.count > limit:
            return ""
    text = lay_out_all(*merged.merged(NAMES_MOST), style)
    return text if text.count("\n") <= limit else ""


def _last_screen(
    columns: Sequence[Column], rows: Sequence[Sequence[str | Cell]], style: Style, limit: int, note: str
) -> str:
    """Return as many of the last rows as fit on the terminal."""
    cells = [safe_row(row) for row in rows[-limit:]]
    layout = lay_out(columns, cells, style)
    kept = [*that_fit(map(layout.row, reversed(cells)), limit)][::-1]
    return f"{layout.head}{''.join(kept)}the last {len(kept)} of {len(rows):,} {note}\n"
