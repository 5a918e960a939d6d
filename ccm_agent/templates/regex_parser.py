"""RE2's syntax to a tree of pieces."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache

MAX_REPEAT = 1000
MAX_NESTING = 100

TEXT_START = "text start"
TEXT_END = "text end"
LINE_START = "line start"
LINE_END = "line end"
WORD_BOUNDARY = "word boundary"
NOT_WORD_BOUNDARY = "no word boundary"


class PatternError(ValueError):
    """A pattern does not parse; the message says why."""


class Matcher:
    """
    What one character may be.

    Attributes:
        ranges: First and last character of each range.
        tests: Other ways to be in.
        is_negated: Everything else is meant.
        folds: Upper and lower case are the same.
    """

    __slots__ = ("folds", "is_negated", "ranges", "tests")

    def __init__(
        self,
        ranges: Iterable[tuple[str, str]] = (),
        tests: Iterable[Callable[[str], bool]] = (),
        *,
        is_negated: bool = False,
        folds: bool = False,
    ) -> None:
        self.ranges = tuple(ranges)
        self.tests = tuple(tests)
        self.is_negated = is_negated
        self.folds = folds

    def accepts(self, char: str) -> bool:
        found = any(self._has(twin) for twin in (fold(char) if self.folds else (char,)))
        return found != self.is_negated

    def _has(self, char: str) -> bool:
        return any(first <= char <= last for first, last in self.ranges) or any(
            test(char) for test in self.tests
        )


class Piece:
    """
    A part of a pattern.

    Attributes:
        kind: "one" character, "assert", "all" parts in turn, "any" of the parts, "repeat" the only part.
        most: None for without end.
        is_lazy: A repetition that takes as few as it can; which texts match does not depend on it.
        group: The number of the group that an "all" with one part is, from 1; 0 for none.
        name: Its name, if it has one.
    """

    __slots__ = ("assertion", "group", "is_lazy", "kind", "least", "matcher", "most", "name", "parts")

    def __init__(
        self,
        kind: str,
        parts: tuple[Piece, ...] = (),
        *,
        matcher: Matcher | None = None,
        assertion: str = "",
        least: int = 0,
        most: int | None = None,
        is_lazy: bool = False,
        group: int = 0,
        name: str = "",
    ) -> None:
        self.kind = kind
        self.parts = parts
        self.matcher = matcher
        self.assertion = assertion
        self.least = least
        self.most = most
        self.is_lazy = is_lazy
        self.group = group
        self.name = name


@lru_cache(maxsize=4096)
def fold(char: str) -> tuple[str, ...]:
    """A character and those that differ from it in case only."""
    if char.isascii() and char not in "kKsS":
        return (char, char.swapcase()) if char.isalpha() else (char,)
    return tuple({char, *_twins().get(_base(char), (char,))})


def _base(char: str) -> str:
    upper = char.upper()
    lower = upper.lower() if len(upper) == 1 else char.lower()
    return lower if len(lower) == 1 else char


@lru_cache(maxsize=1)
def _twins() -> dict[str, tuple[str, ...]]:
    """Characters by their common small form."""
    twins: dict[str, list[str]] = {}
    for code in (
        *range(0x80),
        *range(0x80, 0x2D30),
        *range(0xA640, 0xABC0),
        *range(0xFF21, 0xFF5B),
        *range(0x10400, 0x10450),
    ):
        char = chr(code)
        if _base(char) != char or char.upper() != char or char.lower() != char:
            twins.setdefault(_base(char), []).append(char)
    return {base: tuple(chars) for base, chars in twins.items()}


_DIGITS = (("0", "9"),)
_WORDS = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACES = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_PERL = {"d": _DIGITS, "w": _WORDS, "s": _SPACES}
_POSIX: dict[str, tuple[tuple[str, str], ...]] = {
    "alnum": (("0", "9"), ("A", "Z"), ("a", "z")),
    "alpha": (("A", "Z"), ("a", "z")),
    "ascii": (("\0", "\x7f"),),
    "blank": (("\t", "\t"), (" ", " ")),
    "cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "digit": _DIGITS,
    "graph": (("!", "~"),),
    "lower": (("a", "z"),),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": (("\t", "\r"), (" ", " ")),
    "upper": (("A", "Z"),),
    "word": _WORDS,
    "xdigit": (("0", "9"), ("A", "F"), ("a", "f")),
}
_SIMPLE = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_ASSERTIONS = {"A": TEXT_START, "z": TEXT_END, "b": WORD_BOUNDARY, "B": NOT_WORD_BOUNDARY}
_CATEGORY = re.compile(r"(?:L[ulmto]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfso]?)\Z")
# Scripts are known by how the names of their characters begin.
_SCRIPT_NAMES = (
    "Arabic Armenian Bengali Bopomofo Cherokee Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Hangul "
    "Hebrew Hiragana Kannada Katakana Khmer Lao Latin Malayalam Mongolian Myanmar Oriya Sinhala Syriac Tamil Telugu "
    "Thaana Thai Tibetan"
)
_SCRIPTS: dict[str, tuple[str, ...]] = {name: (name.upper() + " ",) for name in _SCRIPT_NAMES.split()}
_SCRIPTS["Han"] = ("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "CJK RADICAL", "KANGXI RADICAL")
_GROUP = re.compile(r"\(\?(?:P?<([A-Za-z0-9_]+)>|([imsU]*(?:-[imsU]+)?)([:)]))")
_REPEAT = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")


def parse_pattern(text: str) -> Piece:
    """
    The tree of a pattern.

    Raises:
        PatternError: It is none.
    """
    parser = _Parser(text)
    piece = parser.alternatives()
    if parser.at < len(text):
        raise PatternError("a ) has no ( before it")
    return piece


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.flags: frozenset[str] = frozenset()
        self.groups = 0
        self.nesting = 0

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def take(self) -> str:
        char = self.text[self.at]
        self.at += 1
        return char

    def alternatives(self) -> Piece:
        branches = [self.branch()]
        while self.peek() == "|":
            self.at += 1
            branches.append(self.branch())
        return branches[0] if len(branches) == 1 else Piece("any", tuple(branches))

    def branch(self) -> Piece:
        parts: list[Piece] = []
        is_repeated = False
        while self.at < len(self.text) and self.peek() not in "|)":
            repeat = self.repetition()
            if repeat is None:
                self.atom(parts)
                is_repeated = False
                continue
            if not parts:
                raise PatternError("a repetition has nothing before it to repeat")
            if is_repeated:
                raise PatternError("two repetitions stand behind each other; use parentheses")
            least, most, is_lazy = repeat
            parts[-1] = Piece("repeat", (parts[-1],), least=least, most=most, is_lazy=is_lazy)
            is_repeated = True
        return Piece("all", tuple(parts))

    def repetition(self) -> tuple[int, int | None, bool] | None:
        """A repetition that stands here: how often at least and at most, and whether it is lazy."""
        char = self.peek()
        if char and char in "*+?":
            self.at += 1
            found: tuple[int, int | None] = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]
        elif char == "{" and (match := _REPEAT.match(self.text, self.at)) is not None:
            least = _bounded(match.group(1))
            most = least
            if match.group(2):
                most = _bounded(match.group(3)) if match.group(3) else -1
            if least > MAX_REPEAT or most > MAX_REPEAT or -1 < most < least:
                raise PatternError(
                    f"{match.group()} is no repetition: at most {MAX_REPEAT}, and least before most"
                )
            self.at = match.end()
            found = (least, None if most < 0 else most)
        else:
            return None
        is_lazy = "U" in self.flags
        if self.peek() == "?":
            self.at += 1
            is_lazy = not is_lazy
        return *found, is_lazy

    def atom(self, parts: list[Piece]) -> None:
        char = self.peek()
        if char == "(":
            self.group(parts)
        elif char == "[":
            parts.append(Piece("one", matcher=self.char_class()))
        elif char == ".":
            self.at += 1
            ranges = () if "s" in self.flags else (("\n", "\n"),)
            parts.append(Piece("one", matcher=Matcher(ranges, is_negated=True)))
        elif char == "^":
            self.at += 1
            parts.append(Piece("assert", assertion=LINE_START if "m" in self.flags else TEXT_START))
        elif char == "$":
            self.at += 1
            parts.append(Piece("assert", assertion=LINE_END if "m" in self.flags else TEXT_END))
        elif char == "\\":
            self.escape(parts)
        else:
            parts.append(self.literal(self.take()))

    def literal(self, char: str) -> Piece:
        return Piece("one", matcher=Matcher(((char, char),), folds="i" in self.flags))

    def group(self, parts: list[Piece]) -> None:
        flags = self.flags
        number, name = 0, ""
        if self.peek(2) == "(?":
            match = _GROUP.match(self.text, self.at)
            if match is None:
                raise PatternError(f"{self.peek(4)!r} is no group of RE2; it has no lookaround")
            self.at = match.end()
            if match.group(1):
                name = match.group(1)
                number = self.groups = self.groups + 1
            else:
                on, _, off = match.group(2).partition("-")
                if match.group(3) == ")":
                    self.flags = (flags | set(on)) - set(off)
                    return
                self.flags = (flags | set(on)) - set(off)
        else:
            self.at += 1
            number = self.groups = self.groups + 1
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise PatternError(f"groups are nested more than {MAX_NESTING} deep")
        inner = self.alternatives()
        if self.peek() != ")":
            raise PatternError("a ( has no ) behind it")
        self.at += 1
        self.nesting -= 1
        self.flags = flags
        parts.append(Piece("all", (inner,), group=number, name=name) if number else inner)

    def escape(self, parts: list[Piece]) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if following in _ASSERTIONS and following:
            self.at += 2
            parts.append(Piece("assert", assertion=_ASSERTIONS[following]))
        elif following == "Q":
            end = self.text.find("\\E", self.at + 2)
            body = self.text[self.at + 2 : end if end >= 0 else None]
            self.at = end + 2 if end >= 0 else len(self.text)
            parts.extend(self.literal(char) for char in body)
        elif following and following in "dDwWsSpP":
            ranges, tests = self.named_class()
            parts.append(Piece("one", matcher=Matcher(ranges, tests, folds="i" in self.flags)))
        else:
            parts.append(self.literal(self.escaped_char()))

    def named_class(self) -> tuple[tuple[tuple[str, str], ...], tuple[Callable[[str], bool], ...]]:
        """`\\d`, `\\pL`, `\\P{Greek}`: the ranges or the test that they mean."""
        letter = self.text[self.at + 1]
        self.at += 2
        if letter.lower() in _PERL:
            ranges = _PERL[letter.lower()]
            return (ranges, ()) if letter.islower() else ((), (_outside(ranges),))
        if self.peek() == "{":
            end = self.text.find("}", self.at)
            if end < 0:
                raise PatternError("a class name has no } behind it")
            name = self.text[self.at + 1 : end]
            self.at = end + 1
        else:
            name = self.peek()
            self.at += 1
        is_negated = (letter == "P") != name.startswith("^")
        return (), (_unicode_class(name.removeprefix("^"), is_negated),)

    def escaped_char(self) -> str:
        """The character that a backslash and what follows it mean."""
        rest = self.text[self.at + 1 : self.at + 12]
        if not rest:
            raise PatternError("the pattern ends with a backslash")
        char = rest[0]
        if char in _SIMPLE:
            self.at += 2
            return _SIMPLE[char]
        if char.isascii() and not char.isalnum():
            self.at += 2
            return char
        match = re.match(r"x\{([0-9a-fA-F]{1,8})\}|x([0-9a-fA-F]{2})|(0[0-7]{0,2}|[1-7][0-7]{1,2})", rest)
        if match is None:
            raise PatternError(f"\\{char} is no escape of RE2; it has no backreferences")
        code = int(match.group(3), 8) if match.group(3) else int(match.group(1) or match.group(2), 16)
        if code > 0x10FFFF:
            raise PatternError(f"\\{match.group()} is no character")
        self.at += 1 + match.end()
        return chr(code)

    def char_class(self) -> Matcher:
        self.at += 1
        is_negated = self.peek() == "^"
        if is_negated:
            self.at += 1
        ranges: list[tuple[str, str]] = []
        tests: list[Callable[[str], bool]] = []
        is_first = True
        while is_first or self.peek() != "]":
            if self.at >= len(self.text):
                raise PatternError("a [ has no ] behind it")
            is_first = False
            if self.peek(2) == "[:" and self.posix_class(ranges, tests):
                continue
            if self.peek() == "\\" and self.text[self.at + 1 : self.at + 2] in set("dDwWsSpP"):
                more_ranges, more_tests = self.named_class()
                ranges.extend(more_ranges)
                tests.extend(more_tests)
                continue
            ranges.append(self.char_range())
        self.at += 1
        return Matcher(ranges, tests, is_negated=is_negated, folds="i" in self.flags)

    def char_range(self) -> tuple[str, str]:
        first = self.class_char()
        if self.peek() != "-" or self.text[self.at + 1 : self.at + 2] in ("]", ""):
            return first, first
        self.at += 1
        last = self.class_char()
        if last < first:
            raise PatternError(f"the range {first}-{last} runs backwards")
        return first, last

    def class_char(self) -> str:
        if self.at >= len(self.text):
            raise PatternError("a [ has no ] behind it")
        return self.escaped_char() if self.peek() == "\\" else self.take()

    def posix_class(self, ranges: list[tuple[str, str]], tests: list[Callable[[str], bool]]) -> bool:
        """Take `[:alpha:]` or `[:^alpha:]` when it stands here."""
        end = self.text.find(":]", self.at + 2)
        if end < 0:
            return False
        name = self.text[self.at + 2 : end]
        found = _POSIX.get(name.removeprefix("^"))
        if found is None:
            raise PatternError(f"[:{name}:] is no class of characters")
        self.at = end + 2
        if name.startswith("^"):
            tests.append(_outside(found))
        else:
            ranges.extend(found)
        return True


def _bounded(digits: str) -> int:
    return int(digits) if len(digits) < 6 else MAX_REPEAT + 1


def _outside(ranges: tuple[tuple[str, str], ...]) -> Callable[[str], bool]:
    return lambda char: not any(first <= char <= last for first, last in ranges)


def _unicode_class(name: str, is_negated: bool) -> Callable[[str], bool]:
    if name == "Any":
        return lambda _char: not is_negated
    if _CATEGORY.match(name):
        return lambda char: unicodedata.category(char).startswith(name) != is_negated
    prefixes = _SCRIPTS.get(name)
    if prefixes is None:
        raise PatternError(f"\\p{{{name}}} is no class of characters that is known here")
    return lambda char: unicodedata.name(char, "").startswith(prefixes) != is_negated
