"""
Changes lines and blocks of a text. No I/O.

Bytes that are not UTF-8 are unchanged. Line endings, a byte order mark, and a last line without a newline are also kept. New
lines use the most common line ending of the file.
"""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.model.errors import CcmError, FileError
from ccm_agent.model.resource import ABSENT
from ccm_agent.resources.edit.model import BEGIN_OF_FILE, END_OF_FILE, Edit
from ccm_agent.templates.regex import PatternError, compile_pattern

_MARK = "\ufeff"
_RETURN = "\r"
_LISTED = 5
"""The maximum number of line numbers in a message."""


def edit_content(content: bytes, edits: Sequence[Edit]) -> bytes:
    """
    Return the content with all edits applied.

    Raises:
        FileError: The content is not text, or an edit is not possible.
    """
    text = content.decode("utf-8", "surrogateescape")
    if "\0" in text:
        raise FileError("it contains NUL bytes, so it is not text (UTF-16 is not supported)")
    lines = _Lines(text)
    for number, edit in enumerate(edits):
        try:
            lines.make(edit)
        except CcmError as err:
            if len(edits) == 1:
                raise
            raise FileError(f"edits[{number}]: {err.message}") from err
    return lines.text.encode("utf-8", "surrogateescape")


class _Lines:
    """
    The lines of a text.

    A line includes the carriage return at its end, if there is one. A last line without a newline gets the usual line ending,
    and `text` removes it again.
    """

    def __init__(self, text: str) -> None:
        self._mark = _MARK if text.startswith(_MARK) else ""
        self._lines = text.removeprefix(_MARK).split("\n")
        self._is_ended = self._lines[-1] == ""
        whole = self._lines[:-1]
        returns = sum(line.endswith(_RETURN) for line in whole)
        self._return = _RETURN if 2 * returns > len(whole) else ""
        if self._is_ended:
            self._lines = whole
        else:
            self._lines[-1] += self._return

    @property
    def text(self) -> str:
        if not self._lines:
            return self._mark
        text = "\n".join(self._lines)
        # an empty last line only exists if it ends with a newline
        is_ended = self._is_ended or not self._plain(-1)
        return self._mark + (f"{text}\n" if is_ended else text.removesuffix(self._return))

    def make(self, edit: Edit) -> None:
        """Make one edit."""
        if edit.block is not None:
            self._make_block(edit, edit.block)
        elif edit.ensure == ABSENT:
            self._remove(edit)
        else:
            self._make_line(edit, edit.line or "")

    # ---- lines ----

    def _make_line(self, edit: Edit, line: str) -> None:
        matched = self._matching(edit.match, "match") if edit.match else []
        if len(matched) > 1 and not edit.multiple:
            raise FileError(
                f"`match` matches {len(matched)} lines ({_numbers(matched)}): make it match one, or set `multiple: true`"
            )
        for number in matched:
            if self._plain(number) != line:
                self._lines[number] = line + self._return
        if not matched and line not in self._plains():
            self._insert(edit, [line])

    def _remove(self, edit: Edit) -> None:
        matched = set(self._matching(edit.match, "match")) if edit.match else set()
        if edit.line is not None:
            matched.update(number for number, line in enumerate(self._plains()) if line == edit.line)
        self._lines = [line for number, line in enumerate(self._lines) if number not in matched]

    # ---- blocks ----

    def _make_block(self, edit: Edit, block: str) -> None:
        found = self._find_block(edit)
        if edit.ensure == ABSENT:
            if found:
                del self._lines[found[0] : found[1] + 1]
            return
        wanted = (
            [line.removesuffix(_RETURN) for line in block.removesuffix("\n").split("\n")] if block else []
        )
        if found is None:
            self._insert(edit, [edit.begin, *wanted, edit.end])
        elif self._plains()[found[0] + 1 : found[1]] != wanted:
            self._lines[found[0] + 1 : found[1]] = [line + self._return for line in wanted]

    def _find_block(self, edit: Edit) -> tuple[int, int] | None:
        """Return the numbers of the lines `begin` and `end`. None if both are missing."""
        lines = self._plains()
        begins = [number for number, line in enumerate(lines) if line == edit.begin]
        ends = [number for number, line in enumerate(lines) if line == edit.end]
        if not begins and not ends:
            return None
        if len(begins) > 1 or len(ends) > 1:
            what, numbers = ("begin", begins) if len(begins) > 1 else ("end", ends)
            raise FileError(
                f"the `{what}` line of the block occurs {len(numbers)} times ({_numbers(numbers)})"
            )
        if not begins or not ends or begins[0] > ends[0]:
            have, lack = ("begin", "end") if begins else ("end", "begin")
            number = (begins or ends)[0] + 1
            raise FileError(
                f"line {number} is the `{have}` line of the block, but the matching `{lack}` line is missing"
            )
        return begins[0], ends[0]

    # ---- places ----

    def _insert(self, edit: Edit, new: list[str]) -> None:
        place = self._place(edit)
        self._lines[place:place] = [line + self._return for line in new]

    def _place(self, edit: Edit) -> int:
        """Return the number of the line before which a new line is inserted."""
        if edit.insert_before == BEGIN_OF_FILE:
            return 0
        if edit.insert_before:
            return self._anchor(edit.insert_before, "insert_before")[0]
        if edit.insert_after and edit.insert_after != END_OF_FILE:
            return self._anchor(edit.insert_after, "insert_after")[-1] + 1
        return len(self._lines)

    def _anchor(self, pattern: str, name: str) -> list[int]:
        found = self._matching(pattern, name)
        if not found:
            raise FileError(f"no line matches `{name}`, so the position of the new line is unknown")
        return found

    def _matching(self, pattern: str, name: str) -> list[int]:
        if not self._lines:
            return []
        try:
            return compile_pattern(pattern).matching_lines("\n".join(self._plains()))
        except (PatternError, CcmError) as err:
            raise FileError(f"`{name}`: {err}") from err

    def _plains(self) -> list[str]:
        return [line.removesuffix(_RETURN) for line in self._lines]

    def _plain(self, number: int) -> str:
        return self._lines[number].removesuffix(_RETURN)


def _numbers(found: Sequence[int]) -> str:
    """Return the numbers of lines, starting at 1, for a message."""
    listed = ", ".join(str(number + 1) for number in found[:_LISTED])
    more = ", …" if len(found) > _LISTED else ""
    return f"line{'s' if len(found) > 1 else ''} {listed}{more}"
