"""
Where RE2's patterns match, and what their groups took: finding, replacing, splitting.

`regex.py` says whether a pattern matches and is quick at it; here the same tree becomes a program for threads that run side
by side over the text, each with the places of its groups. Of several matches the leftmost counts, of those the one that a
backtracking matcher would find first. The work is bounded by the text times the pattern, and by WORK_MAX.

Source: Russ Cox, "Regular Expression Matching: the Virtual Machine Approach"; the documentation of Go's package regexp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from ccm_agent.templates.regex import MAX_INSTRUCTIONS
from ccm_agent.templates.regex_parser import (
    LINE_END,
    LINE_START,
    TEXT_END,
    TEXT_START,
    WORD_BOUNDARY,
    Matcher,
    PatternError,
    Piece,
    parse_pattern,
)

WORK_MAX = 3_000_000  # threads advanced in one call: some five seconds

Span = tuple[int, ...]
"""Where a match begins and ends, then each group; -1 for a group that took no part."""


class SearchError(ValueError):
    """A search was stopped; the message says why."""


class _Step:
    """One instruction: what it does, and where to go on, the preferred way first."""

    __slots__ = ("assertion", "kind", "matcher", "next", "slot")

    def __init__(self, kind: str, matcher: Matcher | None = None, assertion: str = "", slot: int = 0) -> None:
        self.kind = kind  # "char", "assert", "split", "save" or "match"
        self.matcher = matcher
        self.assertion = assertion
        self.slot = slot
        self.next: tuple[_Step, ...] = ()


class Searcher:
    """
    A pattern that is ready to search; `compile_searcher` makes it.

    Attributes:
        text: The pattern as written.
        names: The groups that have a name, by it.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: dict[str, int] = {}
        self._groups = 0
        self._size = 0
        end = self._step("match")
        close = self._step("save", slot=1)
        close.next = (end,)
        self._start = self._step("save", slot=0)
        self._start.next = (self._emit(parse_pattern(text), close),)
        self._no_span: Span = (-1,) * (2 * self._groups + 2)
        self._openers = self._first_matchers()
        self._may_open: dict[str, bool] = {}

    # -- building

    def _step(self, kind: str, matcher: Matcher | None = None, assertion: str = "", slot: int = 0) -> _Step:
        self._size += 1
        if self._size > MAX_INSTRUCTIONS:
            raise PatternError("it is too large; repeat less")
        return _Step(kind, matcher, assertion, slot)

    def _emit(self, piece: Piece, following: _Step) -> _Step:
        """Put a piece before what follows it; where it begins."""
        if piece.group:
            return self._emit_group(piece, following)
        if piece.kind in ("one", "assert"):
            kind = "char" if piece.kind == "one" else "assert"
            step = self._step(kind, piece.matcher, piece.assertion)
            step.next = (following,)
            return step
        if piece.kind == "all":
            for part in reversed(piece.parts):
                following = self._emit(part, following)
            return following
        if piece.kind == "any":
            step = self._step("split")
            step.next = tuple(self._emit(part, following) for part in piece.parts)
            return step
        return self._emit_repeat(piece, following)

    def _emit_group(self, piece: Piece, following: _Step) -> _Step:
        self._groups = max(self._groups, piece.group)
        if piece.name:
            self.names[piece.name] = piece.group
        close = self._step("save", slot=2 * piece.group + 1)
        close.next = (following,)
        begin = self._step("save", slot=2 * piece.group)
        begin.next = (self._emit(piece.parts[0], close),)
        return begin

    def _emit_repeat(self, piece: Piece, following: _Step) -> _Step:
        body = piece.parts[0]
        if piece.most is None:
            loop = self._step("split")
            begin = self._emit(body, loop)
            loop.next = (following, begin) if piece.is_lazy else (begin, following)
            if piece.least:
                return self._emit_times(body, piece.least - 1, begin)
            if not _can_be_empty(body):
                return loop
            # A body that matched nothing must not find itself at the loop that it came through: Go issue 46123.
            entry = self._step("split")
            entry.next = loop.next
            return entry
        behind = following
        for _ in range(piece.most - piece.least):
            step = self._step("split")
            begin = self._emit(body, following)
            step.next = (behind, begin) if piece.is_lazy else (begin, behind)
            following = step
        return self._emit_times(body, piece.least, following)

    def _emit_times(self, body: Piece, times: int, following: _Step) -> _Step:
        for _ in range(times):
            following = self._emit(body, following)
        return following

    def _first_matchers(self) -> list[Matcher] | None:
        """What the first character of a match can be; None when a match may begin without one."""
        matchers: list[Matcher] = []
        seen: set[_Step] = set()
        todo = [self._start]
        while todo:
            step = todo.pop()
            if step in seen:
                continue
            seen.add(step)
            if step.kind == "match":
                return None
            if step.matcher is not None:
                matchers.append(step.matcher)
            else:
                todo.extend(step.next)
        return matchers

    # -- searching

    def find(self, text: str, start: int = 0, work: list[int] | None = None) -> Span | None:
        """
        The leftmost match that begins at `start` or later; assertions see the text before it.

        Args:
            text: Where to look.
            start: From where on.
            work: Counts what this and other searches may still do.

        Raises:
            SearchError: It would take too long.
        """
        work = [WORK_MAX] if work is None else work
        threads: list[tuple[_Step, Span]] = []
        found: Span | None = None
        position = start
        while True:
            if not threads:
                if found is not None:
                    return found
                position = self._skip(text, position)
                if position > len(text):
                    return None
            ready: list[tuple[_Step, Span]] = []
            seen: set[_Step] = set()
            for step, span in threads:
                self._follow(step, span, text, position, seen, ready)
            if found is None:
                self._follow(self._start, self._no_span, text, position, seen, ready)
            work[0] -= len(seen) + 1
            if work[0] < 0:
                raise SearchError("the pattern takes too long on this text")
            char = text[position : position + 1]
            threads = []
            for step, span in ready:
                if step.kind == "match":
                    found = span
                    break  # threads behind are less preferred
                if char and step.matcher is not None and step.matcher.accepts(char):
                    threads.append((step.next[0], span))
            position += 1
            if position > len(text) + 1:
                return found

    def _skip(self, text: str, position: int) -> int:
        """The next place where a match can begin; beyond the text when there is none."""
        if self._openers is None:
            return position
        may_open = self._may_open
        while position < len(text):
            char = text[position]
            if char not in may_open:
                may_open[char] = any(matcher.accepts(char) for matcher in self._openers)
            if may_open[char]:
                return position
            position += 1
        return len(text) + 1

    def _follow(
        self,
        step: _Step,
        span: Span,
        text: str,
        position: int,
        seen: set[_Step],
        ready: list[tuple[_Step, Span]],
    ) -> None:
        """Put what can be reached without a character behind the threads that are ready, the preferred first."""
        todo = [(step, span)]
        while todo:
            step, span = todo.pop()
            if step in seen:
                continue
            seen.add(step)
            if step.kind in ("char", "match"):
                ready.append((step, span))
            elif step.kind == "save":
                todo.append((step.next[0], (*span[: step.slot], position, *span[step.slot + 1 :])))
            elif step.kind == "split" or _holds(step.assertion, text, position):
                todo.extend((following, span) for following in reversed(step.next))

    def find_all(self, text: str, count: int = -1) -> Iterator[Span]:
        """
        Matches from left to right that do not overlap, at most `count` unless that is negative.

        An empty match right behind another match is none.

        Raises:
            SearchError: It would take too long.
        """
        work = [WORK_MAX]
        position, previous = 0, -1
        while count != 0 and position <= len(text):
            span = self.find(text, position, work)
            if span is None:
                return
            is_empty = span[1] == position
            accepted = not (is_empty and span[0] == previous)
            position = position + 1 if is_empty else span[1]
            previous = span[1]
            if accepted:
                count -= 1
                yield span

    def replace(self, text: str, replacement: Callable[[Span], str], room: int) -> str:
        """
        The text with every match replaced.

        Args:
            text: The text.
            replacement: Gives what stands in a match's place.
            room: How many characters the result may have.

        Raises:
            SearchError: It would take too long, or the result would be too long.
        """
        work = [WORK_MAX]
        out: list[str] = []
        copied, position = 0, 0
        while position <= len(text):
            span = self.find(text, position, work)
            if span is None:
                break
            out.append(text[copied : span[0]])
            if span[1] > copied or span[0] == 0:
                out.append(replacement(span))
            room -= len(out[-1])
            if room < 0:
                raise SearchError("the result would be too long")
            copied = span[1]
            position = max(position + 1, span[1])
        return "".join([*out, text[copied:]])

    def split(self, text: str, count: int = -1) -> list[str]:
        """
        The parts between matches, at most `count` unless that is negative.

        Raises:
            SearchError: It would take too long.
        """
        if self.text and not text:
            return [""]
        parts: list[str] = []
        begin = end = 0
        for span in self.find_all(text, count):
            if 0 < count == len(parts) + 1:
                break
            end = span[0]
            if span[1] != 0:
                parts.append(text[begin:end])
            begin = span[1]
        return parts if end == len(text) else [*parts, text[begin:]]


def _can_be_empty(piece: Piece) -> bool:
    if piece.kind == "one":
        return False
    if piece.kind == "repeat":
        return piece.least == 0 or _can_be_empty(piece.parts[0])
    if piece.kind == "any":
        return any(map(_can_be_empty, piece.parts))
    return all(map(_can_be_empty, piece.parts))


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


def _holds(assertion: str, text: str, position: int) -> bool:
    if assertion == TEXT_START:
        return position == 0
    if assertion == TEXT_END:
        return position == len(text)
    if assertion == LINE_START:
        return position == 0 or text[position - 1] == "\n"
    if assertion == LINE_END:
        return position == len(text) or text[position] == "\n"
    before = position > 0 and _is_word(text[position - 1])
    after = position < len(text) and _is_word(text[position])
    return (before != after) == (assertion == WORD_BOUNDARY)


@lru_cache(maxsize=256)
def compile_searcher(text: str) -> Searcher:
    """
    A pattern, ready to search.

    Raises:
        PatternError: It is no pattern of RE2, or too large.
    """
    return Searcher(text)
