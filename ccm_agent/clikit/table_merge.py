"""Merge rows of a table that differ only in names and amounts."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ccm_agent.clikit.cells import Amount, Cell, Column
from ccm_agent.clikit.text import fold_names


class MergedRows:
    """
    Merges rows as they arrive. For equal rows, it keeps only the names and the lowest and highest amounts.

    Attributes:
        count: The number of rows after merging.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        """Prepare to merge rows with these columns. Without a column of names, rows are not merged."""
        self._columns = columns
        self._place = next((place for place, column in enumerate(columns) if column.names), None)
        self._groups: dict[object, _Group] = {}
        self._added = 0

    @property
    def count(self) -> int:
        """The number of rows after merging."""
        return len(self._groups)

    def add(self, rows: Sequence[Sequence[Cell]]) -> None:
        """Merge more rows. Their texts must be safe."""
        for row in rows:
            self._added += 1
            key: object = self._added
            if self._place is not None:
                key = tuple((cell.text, cell.meaning) for at, cell in enumerate(row) if at != self._place)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Group(row)
            else:
                group.take_amounts(row)
            if self._place is not None:
                group.names.append(row[self._place].text)

    def merged(self, names_most: int) -> tuple[Sequence[Column], list[Sequence[Cell]]]:
        """
        Return the columns and merged rows. Each merged row is at the position of its first original row.

        Args:
            names_most: The maximum number of groups of names in a cell.
        """
        place = self._place
        if place is None or self.count == self._added:
            return self._columns, [group.first for group in self._groups.values()]
        rows: list[Sequence[Cell]] = []
        for group in self._groups.values():
            row = group.joined()
            row[place] = Cell(fold_names(group.names, most=names_most), group.first[place].meaning)
            rows.append(row)
        columns = list(self._columns)
        columns[place] = replace(columns[place], fold=True)
        return columns, rows


class _Group:
    """A group of equal rows: the first row, all names, and the lowest and highest amount by column."""

    def __init__(self, row: Sequence[Cell]) -> None:
        self.first = row
        self.names: list[str] = []
        self._lowest = [cell.amount for cell in row]
        self._highest = list(self._lowest)

    def take_amounts(self, row: Sequence[Cell]) -> None:
        for place, cell in enumerate(row):
            amount = cell.amount
            if amount is None:
                continue
            lowest, highest = self._lowest[place], self._highest[place]
            if lowest is None or amount.value < lowest.value:
                self._lowest[place] = amount
            if highest is None or amount.value >= highest.value:
                self._highest[place] = amount

    def joined(self) -> list[Cell]:
        cells = []
        for cell, lowest, highest in zip(self.first, self._lowest, self._highest, strict=True):
            if lowest is not None and highest is not None and lowest.text != highest.text:
                amount = Amount(f"{lowest.text} … {highest.text}", lowest.value)
                cell = Cell(cell.text, cell.meaning, amount)
            cells.append(cell)
        return cells
