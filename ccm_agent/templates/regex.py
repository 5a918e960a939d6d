"""
Regular expressions in Go's syntax, which is RE2's, matched by RE2 itself.

RE2's time is linear in the length of the text. Python's `re` has a different syntax and backtracks: a pattern such as `(a+)+$`
can run for years. The library is imported with the first pattern: most runs use no pattern, and the import costs 12 ms.

A text contains surrogate escapes for bytes that are not UTF-8. Such a byte is matched as U+FFFD, as in Go.

Source: github.com/google/re2/wiki/Syntax; the documentation of Go's package regexp.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.values import clean_text

# if RE2 cannot use its fast automaton, an instruction costs up to 170 ns per character: at most 17 s in
# total
WORK_MAX = 100_000_000
SEARCH_S = 5.0  # limit for all matches in one text
_MEMORY_MAX = 8 << 20  # limit for one pattern with its automaton: RE2's default
_CACHED = 16
_LINES_BYTES = 64 << 10  # size of the lines that are searched together

_WHOLE_TEXT = re.compile(r"\\[Az]|\(\?[A-Za-z]*-")
"""
Syntax with a different meaning in a text of several lines: the ends of the text, and flags that are turned
off.
"""

_ESCAPE = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)
_HINTS = {
    "bad repetition operator": "; put the inner repetition in parentheses",
    "invalid escape sequence": "; RE2 has no backreferences",
    "invalid perl operator": "; RE2 has no lookaround, comments or atomic groups",
    "invalid repetition size": "; at most 1000 times, the smaller number first",
}

Spans = list[tuple[int, int]]
"""Start and end of a match and of each group; (-1, -1) for a group that did not participate."""


class PatternError(ValueError):
    """A pattern is malformed. The message contains the reason and the position."""


class Pattern:
    """A compiled regular expression; `compile_pattern` creates it."""

    def __init__(self, text: str) -> None:
        _refuse_single_bytes(text)
        self.text = text
        # RE2's fast automaton can do the whole match only without groups
        self._matcher = _compile(text, never_capture=True)

    def matches(self, text: str) -> bool:
        """
        Whether the pattern matches anywhere in the text.

        Raises:
            TemplateError: The search would take too long.
        """
        self._check_work(text)
        return next(_matches(self._matcher, clean_text(text).encode()), None) is not None

    def find_all(self, text: str) -> Iterator[Spans]:
        """
        Yield the matches from left to right without overlaps; positions are in characters.

        As in Go, an empty match directly after another match is ignored.

        Raises:
            TemplateError: The search would take too long.
        """
        self._check_work(text)
        data = clean_text(text).encode()
        deadline = time.monotonic() + SEARCH_S
        previous = -1
        place = _Place(data, is_ascii=len(data) == len(text))
        for match in _matches(self._searcher, data):
            if time.monotonic() > deadline:
                raise _too_slow()
            begin, end = match.span()
            if begin < end or begin != previous:
                yield place.spans(match)
            previous = end

    def matching_lines(self, text: str) -> list[int]:
        """
        Return the numbers, from 0, of the lines in which the pattern matches.

        `^` and `$` match the ends of a line, and no match spans two lines.

        Raises:
            TemplateError: The search would take too long.
        """
        data = clean_text(text).encode()
        deadline = time.monotonic() + SEARCH_S
        found: list[int] = []
        begin = line = 0
        while begin <= len(data):
            end = data.find(b"\n", begin + _LINES_BYTES)
            part = data[begin : len(data) if end < 0 else end]
            if time.monotonic() > deadline:
                raise _too_slow()
            self._check_work(part.decode())
            found += [line + number for number in self._lines_in(part)]
            line += part.count(b"\n") + 1
            begin += len(part) + 1
        return found

    def _lines_in(self, data: bytes) -> Iterator[int]:
        if _WHOLE_TEXT.search(self.text):
            lines = enumerate(data.split(b"\n"))
            yield from (number for number, line in lines if next(_matches(self._matcher, line), None))
            return
        line, counted, last = 0, 0, -1
        for match in _matches(self._line_matcher, data):
            line += data.count(b"\n", counted, match.start())
            counted = match.start()
            if line != last:
                yield line
            last = line

    @cached_property
    def _line_matcher(self) -> Any:
        """
        Return a matcher for whole lines that contain a match. Searching many lines together is 25 times as
        fast as one by one.
        """
        return _compile(f"(?m:^.*?(?:{self.text}).*$)", never_capture=True, never_nl=True)

    @property
    def size(self) -> int:
        """Return the number of instructions that RE2 may have to run for each character of a text."""
        return int(self._matcher.programsize)

    @cached_property
    def names(self) -> dict[str, int]:
        """Return the numbers of the named groups, by name."""
        return dict(self._searcher.groupindex)

    @cached_property
    def _searcher(self) -> Any:
        return _compile(self.text)

    def _check_work(self, text: str) -> None:
        if len(text) * self._matcher.programsize > WORK_MAX and len(text) * self._size > WORK_MAX:
            raise _too_slow()

    @cached_property
    def _size(self) -> int:
        """
        Return the number of instructions that one character can activate.

        A Unicode class compiles to hundreds of instructions for UTF-8, but to a few for Latin-1.
        """
        import re2

        try:
            return int(
                _compile(self.text.encode("latin-1"), encoding=re2.Options.Encoding.LATIN1).programsize
            )
        except (PatternError, UnicodeEncodeError):
            return int(self._matcher.programsize)


def _matches(regex: Any, data: bytes) -> Iterator[Any]:
    """
    Yield the matches in UTF-8, without empty matches of `\\B` inside a character, which RE2 reports but Go
    does not.
    """
    for match in regex.finditer(data):
        begin = match.start()
        if begin == len(data) or data[begin] & 0xC0 != 0x80:
            yield match


class _Place:
    """Converts positions in UTF-8 to positions in the text, from left to right."""

    def __init__(self, data: bytes, *, is_ascii: bool) -> None:
        self._data = data
        self._is_ascii = is_ascii
        self._begin = self._begin_chars = 0

    def spans(self, match: Any) -> Spans:
        found: Spans = [match.span(group) for group in range(match.re.groups + 1)]
        if self._is_ascii:
            return found
        self._begin_chars = self._chars(found[0][0])
        self._begin = found[0][0]
        return [
            (first, last) if first < 0 else (self._chars(first), self._chars(last)) for first, last in found
        ]

    def _chars(self, place: int) -> int:
        return self._begin_chars + len(self._data[self._begin : place].decode())


def _too_slow() -> TemplateError:
    return TemplateError("the pattern takes too long on this text")


def _compile(pattern: str | bytes, **options: Any) -> Any:
    import re2

    given = re2.Options()
    given.log_errors = False
    given.max_mem = _MEMORY_MAX
    for name, value in options.items():
        setattr(given, name, value)
    try:
        return re2.compile(pattern, given)
    except UnicodeEncodeError:
        raise PatternError("it is not UTF-8") from None
    except re2.error as err:
        raise PatternError(_reason(str(pattern), err.args[0].decode("utf-8", "replace"))) from None
    finally:
        re2.purge()  # its own cache would keep 128 patterns of up to 8 MiB each


def _reason(pattern: str, message: str) -> str:
    """Return RE2's message, with the position in the pattern and a hint."""
    if message.startswith("pattern too large"):
        return "it is too large; repeat less"
    reason, _, part = message.partition(": ")
    hint = _HINTS.get(reason, "")
    if not part or part == pattern:
        return reason + hint
    place = f" at character {pattern.index(part) + 1}" if pattern.count(part) == 1 else ""
    return f"{reason}: `{part}`{place}{hint}"


def _refuse_single_bytes(pattern: str) -> None:
    """Refuse `\\C` (one byte of a character), which RE2 supports but Go does not."""
    for escape in _ESCAPE.finditer(pattern):
        if escape[0] == r"\C":
            raise PatternError(rf"invalid escape sequence: `\C` at character {escape.start() + 1}")


@lru_cache(maxsize=_CACHED)
def compile_pattern(text: str) -> Pattern:
    """
    Compile a regular expression, or return it from the cache.

    Raises:
        PatternError: The pattern is malformed or too large.
    """
    return Pattern(text)
