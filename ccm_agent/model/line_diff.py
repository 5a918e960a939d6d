"""The lines that differ between two texts, in bounded time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

_MATCHED_LINES = 1000
"""
The maximum number of lines that are matched with each other, after equal lines at both ends are removed.
Matching takes quadratic time. If there are more lines, all of them are shown as removed and added.
"""

_AROUND = 3
"""The number of unchanged lines shown around a change."""


def diff_lines(old: list[str], new: list[str]) -> Iterator[str]:
    """Yield the lines of a unified diff without its header."""
    shorter = min(len(old), len(new))
    begin = 0
    while begin < shorter and old[begin] == new[begin]:
        begin += 1
    end = 0
    while end < shorter - begin and old[-1 - end] == new[-1 - end]:
        end += 1
    if begin == len(old) == len(new):
        return
    if max(len(old), len(new)) - begin - end > _MATCHED_LINES:
        yield from _replacement(old, new, begin, end)
        return
    # imported here because few runs show a diff
    import difflib

    kept_before, kept_after = max(0, begin - _AROUND), max(0, end - _AROUND)
    found = difflib.unified_diff(
        old[kept_before : len(old) - kept_after],
        new[kept_before : len(new) - kept_after],
        n=_AROUND,
        lineterm="",
    )
    for line in islice(found, 2, None):
        if line.startswith("@@"):
            yield _moved(line, kept_before)
        else:
            yield from line.split("\n")


def _moved(head: str, by: int) -> str:
    """Return the header of a hunk with line numbers of the whole file."""
    words = []
    for word in head.split()[1:3]:
        first, comma, count = word[1:].partition(",")
        words.append(f"{word[0]}{int(first) + by}{comma}{count}")
    return f"@@ {words[0]} {words[1]} @@"


def _replacement(old: list[str], new: list[str], begin: int, end: int) -> Iterator[str]:
    yield f"@@ -{begin + 1},{len(old) - begin - end} +{begin + 1},{len(new) - begin - end} @@"
    for sign, lines in (("-", old), ("+", new)):
        for line in lines[begin : len(lines) - end]:
            yield from f"{sign}{line}".split("\n")
