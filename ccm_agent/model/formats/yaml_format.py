"""
Format a YAML text: indentation, spacing and empty lines. Only white space changes; comments are kept.

    ccm:                        each level is indented by two columns, including lists
      resources:
        - file:                 one space after `-` and `:`
            - /etc/motd:
                ensure: present

At most one empty line in a row. Flow collections, quotes and the content of scalars are not changed.
"""

from __future__ import annotations

import re
from bisect import bisect
from typing import Any, NamedTuple

from ccm_agent.model.errors import DocumentError, Place

STEP = 2
"""Columns of one indentation level."""

_HAS_INDENTATION = re.compile(r"[|>][+-]?[1-9]")
_KEEPS_LINES = re.compile(r"[|>][1-9]?\+")


class Block(NamedTuple):
    """
    An open mapping or list, and its column before and after formatting. `is_implied` marks a list with
    dashes directly below their key.
    """

    is_list: bool
    old: int
    new: int
    is_implied: bool = False


class Start(NamedTuple):
    """A line that begins with a key or a dash: its block, and the blocks that are open after it."""

    block: Block
    open: tuple[Block, ...]


def format_yaml(text: str, source: str = "") -> str:
    """
    Format each document of a YAML text in the layout above. Formatting is idempotent.

    Args:
        text: The text.
        source: The name of the text, for errors.

    Raises:
        DocumentError: The text is not YAML, or has a form that cannot be formatted.
    """
    import yaml

    text = text.replace("\r\n", "\n")
    try:
        before = _events(text)
        new = _Layout(text, source).text()
        is_same = _events(new) == before and _ink(new) == _ink(text)
    except yaml.YAMLError as err:
        from ccm_agent.model.formats.yaml_errors import syntax_error

        raise syntax_error(text, source, err) from err
    if not is_same:
        raise DocumentError("it cannot be formatted without changing its meaning", place=Place(source))
    return new


def _events(text: str) -> list[tuple[Any, ...]]:
    """Return the parser's events, without positions."""
    import yaml

    fields = ("value", "anchor", "tag", "style", "implicit", "flow_style")
    return [
        (event.__class__, *(getattr(event, field, None) for field in fields))
        for event in yaml.parse(text, Loader=yaml.CLoader)
    ]


def _ink(text: str) -> str:
    """Return the text without white space."""
    return "".join(text.split())


class _Layout:
    """Reads the tokens of a text, and writes its lines in the new layout."""

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._old = text.split("\n")
        self._starts: dict[int, Start] = {}
        self._gaps: dict[int, list[tuple[int, int]]] = {}
        self._shifts: dict[int, int] = {}
        """By line: the number of columns by which a line within a value moves."""
        self._kept: set[int] = set()
        """Lines with trailing white space or empty lines that are part of a scalar."""
        self._open: list[Block] = []
        self._begun = -1
        self._read(text)
        self._places = sorted(self._starts)

    # ---- reading ----

    def _read(self, text: str) -> None:
        import yaml

        depth = begin = 0
        tokens = list(yaml.scan(text, Loader=yaml.CLoader))
        for token, after in zip(tokens, [*tokens[1:], None], strict=True):
            kind = token.__class__.__name__.removesuffix("Token")
            if kind in ("FlowSequenceStart", "FlowMappingStart"):
                begin = begin if depth else token.start_mark.line
                depth += 1
            elif kind in ("FlowSequenceEnd", "FlowMappingEnd"):
                depth -= 1
                if not depth:
                    self._continue(begin, token.end_mark.line)
            elif kind == "Scalar":
                self._scalar(token)
            elif not depth:
                self._structure(kind, token, after)

    def _structure(self, kind: str, token: Any, after: Any) -> None:
        mark = token.start_mark
        if kind in ("BlockMappingStart", "BlockSequenceStart"):
            self._enter(kind == "BlockSequenceStart", mark.column)
        elif kind == "BlockEnd":
            self._leave_implied()
            self._open.pop()
        elif kind == "Key":
            if token.end_mark.index > mark.index:
                raise DocumentError(
                    "a key with `?` cannot be formatted",
                    place=Place(self._source, mark.line + 1, mark.column + 1),
                )
            self._leave_implied()
            self._begin(mark.line, mark.column)
        elif kind == "BlockEntry":
            if not self._open[-1].is_list:
                self._enter(True, mark.column, is_implied=True)
            self._begin(mark.line, mark.column)
            self._gap(mark, after)
        elif kind == "Value":
            self._gap(mark, after)

    def _enter(self, is_list: bool, column: int, *, is_implied: bool = False) -> None:
        new = self._open[-1].new + STEP if self._open else 0
        self._open.append(Block(is_list, column, new, is_implied))
        self._follow()

    def _leave_implied(self) -> None:
        if self._open[-1].is_implied:
            self._open.pop()

    def _begin(self, line: int, column: int) -> None:
        """Begin a key or dash. The first key or dash of a line determines the line's position."""
        self._begun = line
        if not self._old[line][:column].strip():
            self._starts[line] = Start(self._open[-1], ())
        self._follow()

    def _follow(self) -> None:
        """Store the blocks that are open after the current line."""
        if (start := self._starts.get(self._begun)) is not None:
            self._starts[self._begun] = start._replace(open=tuple(self._open))

    def _gap(self, mark: Any, after: Any) -> None:
        """Reduce the gap after a dash or colon to one space, if something follows on the line."""
        if (
            after is not None
            and after.start_mark.line == mark.line
            and after.start_mark.column > mark.column + 1
        ):
            self._gaps.setdefault(mark.line, []).append((mark.column + 1, after.start_mark.column))

    def _continue(self, first: int, last: int) -> None:
        """Move the continuation lines of a value with the block that contains it."""
        by = self._open[-1].new - self._open[-1].old if self._open else 0
        self._shifts.update(dict.fromkeys(range(first + 1, last + 1), by))

    def _scalar(self, token: Any) -> None:
        first, last = token.start_mark.line, token.end_mark.line
        if token.style in ("|", ">"):
            self._block_scalar(first, last if token.end_mark.column else last - 1)
        elif last > first:
            self._continue(first, last)
            self._kept.update(range(first, last))

    def _block_scalar(self, first: int, last: int) -> None:
        header = self._old[first]
        lines = range(first + 1, last + 1)
        filled = [line for line in lines if self._old[line].strip(" ")]
        if not _KEEPS_LINES.search(header):
            lines = range(first + 1, filled[-1] + 1 if filled else first + 1)
        self._kept.update(lines)
        if not filled or not self._open:
            return
        block = self._open[-1]
        if _HAS_INDENTATION.search(header):
            by = block.new - block.old
        else:
            by = block.new + STEP - _indentation(self._old[filled[0]])
        self._shifts.update(dict.fromkeys(lines, by))

    # ---- writing ----

    def text(self) -> str:
        """Return the text in its new layout."""
        found: list[str] = []
        last = 0  # number of lines without the empty lines at the end
        for number in range(len(self._old)):
            line = self._line_of(number)
            if line or number in self._kept or (found and found[-1]):
                found.append(line)
            if line or number in self._kept:
                last = len(found)
        return "\n".join([*found[:last], ""])

    def _line_of(self, number: int) -> str:
        old = self._old[number]
        if number in self._starts:
            line = self._spaced(number)
            return line if number in self._kept else line.rstrip()
        by = self._shifts.get(number)
        if by is not None:
            moved = _moved(old, by)
            return moved if number in self._kept else moved.rstrip()
        if number in self._kept:
            return old
        if old.lstrip().startswith("#"):
            return " " * self._comment_column(number, _indentation(old)) + old.strip()
        return old.rstrip()

    def _spaced(self, number: int) -> str:
        """Return a line that begins with a key or dash, at its new column and with closed gaps."""
        line = self._old[number]
        for begin, end in sorted(self._gaps.get(number, ()), reverse=True):
            line = f"{line[:begin]} {line[end:]}"
        return " " * self._starts[number].block.new + line.lstrip(" ")

    def _comment_column(self, number: int, column: int) -> int:
        """
        Return the column of a comment. A comment belongs to the block in the same column: the following block,
        or an open block.
        """
        at = bisect(self._places, number)
        below = self._starts[self._places[at]].block if at < len(self._places) else None
        if below is not None and below.old == column:
            return below.new
        above = self._starts[self._places[at - 1]].open if at else ()
        same = [block.new for block in above if block.old == column]
        if same:
            return same[-1]
        return below.new if below is not None else 0


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _moved(line: str, by: int) -> str:
    """Return a line with a changed indentation. In a blank line, only the removed columns are cut."""
    return (
        " " * max(0, _indentation(line) + by) + line.lstrip(" ") if line.strip(" ") else line[max(0, -by) :]
    )
