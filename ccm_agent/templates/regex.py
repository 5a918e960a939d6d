"""
Patterns in RE2's syntax, matched in linear time.

Go's patterns are RE2's: no lookaround and no backreferences, and so no pattern that takes for ever on some text. Python's
`re` reads another syntax and backtracks; a pattern such as `(a+)+$` would hang an agent. Here a pattern becomes a
non-deterministic automaton, which is walked as a deterministic one that is built while it is needed.

Source: github.com/google/re2/wiki/Syntax.
"""

from __future__ import annotations

from functools import lru_cache

from ccm_agent.templates.regex_parser import (
    LINE_END,
    LINE_START,
    NOT_WORD_BOUNDARY,
    TEXT_END,
    TEXT_START,
    WORD_BOUNDARY,
    Matcher,
    PatternError,
    Piece,
    parse_pattern,
)
from ccm_agent.templates.values import clean_text

__all__ = ["Pattern", "PatternError", "compile_pattern"]

MAX_INSTRUCTIONS = 20_000
_MAX_STATES = 2_000

# What stands before or after a position, as far as assertions ask.
_EDGE, _NEWLINE, _WORD, _OTHER = range(4)

_Instruction = tuple[Matcher | None, str, tuple[int, ...]]


class _State:
    """A state of the deterministic automaton: where the other one can be, and what kind of character came last."""

    __slots__ = ("at", "before", "following")

    def __init__(self, at: frozenset[int], before: int) -> None:
        self.at = at
        self.before = before
        self.following: dict[str, _State | None] = {}  # None: matched on the way


class Pattern:
    """A pattern that is ready to match; `compile_pattern` makes it."""

    def __init__(self, text: str) -> None:
        self.text = text
        # (what one character must be, or which assertion must hold, and where to go on); the last instruction is the end
        self._program: list[_Instruction] = []
        self._start = self._emit(parse_pattern(text), self._add(None, "match", ()))
        self._states: dict[tuple[frozenset[int], int], _State] = {}

    def matches(self, text: str) -> bool:
        """Whether the pattern matches anywhere in the text."""
        state: _State | None = self._state(frozenset(), _EDGE)
        for char in clean_text(text):
            assert state is not None
            following = state.following
            state = following[char] if char in following else self._step(state, char)
            if state is None:
                return True
        assert state is not None
        return self._closure(state, _EDGE) is None

    # Building

    def _add(self, matcher: Matcher | None, kind: str, targets: tuple[int, ...]) -> int:
        if len(self._program) >= MAX_INSTRUCTIONS:
            raise PatternError("it is too large; repeat less")
        self._program.append((matcher, kind, targets))
        return len(self._program) - 1

    def _emit(self, piece: Piece, following: int) -> int:
        """Put a piece before what follows it; where it begins."""
        kind = piece.kind
        if kind == "one":
            return self._add(piece.matcher, "one", (following,))
        if kind == "assert":
            return self._add(None, piece.assertion, (following,))
        if kind == "all":
            for part in reversed(piece.parts):
                following = self._emit(part, following)
            return following
        if kind == "any":
            return self._add(None, "split", tuple(self._emit(part, following) for part in piece.parts))
        return self._emit_repeat(piece, following)

    def _emit_repeat(self, piece: Piece, following: int) -> int:
        body = piece.parts[0]
        if piece.most is None:
            loop = self._add(None, "split", ())
            begin = self._emit(body, loop)
            self._program[loop] = (None, "split", (begin, following))
            following = loop
        else:
            for _ in range(piece.most - piece.least):
                following = self._add(None, "split", (self._emit(body, following), following))
        for _ in range(piece.least):
            following = self._emit(body, following)
        return following

    # Walking

    def _state(self, at: frozenset[int], before: int) -> _State:
        state = self._states.get((at, before))
        if state is None:
            if len(self._states) >= _MAX_STATES:
                self._states.clear()
            state = self._states[at, before] = _State(at, before)
        return state

    def _step(self, state: _State, char: str) -> _State | None:
        kind = _kind(char)
        places = self._closure(state, kind)
        following: _State | None = None
        if places is not None:
            at = frozenset(
                target
                for matcher, targets in places
                if matcher is not None and matcher.accepts(char)
                for target in targets
            )
            following = self._state(at, kind)
        state.following[char] = following
        return following

    def _closure(self, state: _State, after: int) -> list[tuple[Matcher | None, tuple[int, ...]]] | None:
        """What can be asked of the next character, or None when the end is reached already."""
        places: list[tuple[Matcher | None, tuple[int, ...]]] = []
        seen: set[int] = set()
        todo = [self._start, *state.at]
        while todo:
            index = todo.pop()
            if index in seen:
                continue
            seen.add(index)
            matcher, kind, targets = self._program[index]
            if kind == "match":
                return None
            if kind == "one":
                places.append((matcher, targets))
            elif kind == "split" or _holds(kind, state.before, after):
                todo.extend(targets)
        return places


def _kind(char: str) -> int:
    if char == "\n":
        return _NEWLINE
    return _WORD if char.isascii() and (char.isalnum() or char == "_") else _OTHER


def _holds(assertion: str, before: int, after: int) -> bool:
    if assertion == TEXT_START:
        return before == _EDGE
    if assertion == TEXT_END:
        return after == _EDGE
    if assertion == LINE_START:
        return before in (_EDGE, _NEWLINE)
    if assertion == LINE_END:
        return after in (_EDGE, _NEWLINE)
    boundary = (before == _WORD) != (after == _WORD)
    return boundary if assertion == WORD_BOUNDARY else assertion == NOT_WORD_BOUNDARY and not boundary


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """
    A pattern, ready to match.

    Raises:
        PatternError: It is no pattern of RE2, or too large.
    """
    return Pattern(text)
