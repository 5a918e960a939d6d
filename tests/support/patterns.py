"""
The regular expressions of the project, and texts that are costly for those that backtrack.

Run as a program, it tries each pattern of a package with such texts and prints the ones that take more CPU time than a pattern
of linear time can. A text is made from the pattern: what leads to a repetition, then what is repeated, many times, then what
makes the match fail.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import re
import re._constants as sre  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from ccm_agent.model.formats.patterns import LazyPattern

LENGTH = 100_000
"""Characters of a text. At this length a quadratic pattern takes several seconds, and a linear one a millisecond."""

LIMIT_S = 1.0
"""CPU seconds that a pattern may take for one text."""

_SEARCHES = {"search", "finditer", "findall", "sub", "subn", "split"}
_METHODS = _SEARCHES | {"match", "fullmatch"}
_ENDS = ("", "\0", "!", "\n!", " ", "x")


SEARCH, SCAN, WHOLE = "search", "scan", "whole"
"""Ways to use a pattern: at any place; again and again behind its last match, as a scanner does; at the text's start."""


class Use:
    """A pattern, where it is defined, and the ways in which it is used."""

    def __init__(self, name: str, pattern: re.Pattern[Any], ways: set[str]) -> None:
        self.name = name
        self.pattern = pattern
        self.ways = ways


def uses_in(package: str) -> list[Use]:
    """The patterns of a package: those that its modules hold, and literals in calls of `re`."""
    root = importlib.import_module(package)
    modules = [found.name for found in pkgutil.walk_packages(root.__path__, f"{package}.")]
    modules = [name for name in modules if not name.endswith("__main__") and ".testing" not in name]
    trees = {name: ast.parse(_source(name)) for name in modules}
    methods: dict[tuple[str, str], set[str]] = defaultdict(set)
    uses: list[Use] = []
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in _METHODS and ast.unparse(node.func.value) == "re":
                uses += _literal(name, node)
            elif node.func.attr in _METHODS:
                methods[_key(name, node.func.value)].add(_way(node))
            else:
                for argument in (*node.args, *(one.value for one in node.keywords)):
                    if isinstance(argument, (ast.Name, ast.Attribute)):
                        methods[_key(name, argument)].add(SEARCH)  # passed on to another function
    for name in modules:
        module = importlib.import_module(name)
        for variable, value in vars(module).items():
            for index, pattern in enumerate(_patterns(value)):
                ways = methods.get((name, variable), set()) | methods.get(("", variable), set())
                uses.append(
                    Use(f"{name}:{variable}" + (f"[{index}]" if index else ""), pattern, ways or {SEARCH})
                )
    return uses


def _way(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr in _SEARCHES:
        return SEARCH
    return SCAN if len(call.args) > 1 else WHOLE


def _key(module: str, owner: ast.expr) -> tuple[str, str]:
    """The module and name of a pattern; the module is "" where an attribute could be of any module."""
    if isinstance(owner, ast.Attribute):
        return "", owner.attr
    return module, ast.unparse(owner)


def _source(module: str) -> str:
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).read_text(encoding="utf-8")


def _patterns(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, LazyPattern):
        yield re.compile(value.pattern, value.flags)
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _patterns(one)
    elif isinstance(value, dict):
        yield from _patterns(list(value.values()))


def _literal(module: str, call: ast.Call) -> list[Use]:
    assert isinstance(call.func, ast.Attribute)
    text = call.args[0]
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
        return []
    flags = 0
    for one in (*call.args[2:], *(key.value for key in call.keywords if key.arg == "flags")):
        for word in re.findall(r"re\.([A-Z]+)", ast.unparse(one)):
            flags |= getattr(re, word)
    return [
        Use(
            f"{module}:{text.value}",
            re.compile(text.value, flags),
            {_way(call) if call.func.attr in _SEARCHES else WHOLE},
        )
    ]


# ---- texts ----


def texts_for(pattern: re.Pattern[Any]) -> Iterator[str]:
    """Texts that make a pattern backtrack if it can."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = parser.parse(
        text, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    )
    seen = set()
    for before, pump in _pumps(list(tree), ""):
        if pump and (before, pump) not in seen:
            seen.add((before, pump))
            for end in _ENDS:
                yield before + pump * (LENGTH // len(pump)) + end
                if before:
                    yield (before + pump) * (LENGTH // len(before + pump)) + end


def _pumps(items: list[Any], before: str) -> Iterator[tuple[str, str]]:
    """A text that leads to each unbounded repetition, and texts of one round of it."""
    for operator, value in items:
        if operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            least, most, body = value
            if most > 1000:
                for choice in range(4):
                    yield before, _sample(list(body), choice)
            yield from _pumps(list(body), before)
            before += _sample(list(body), 0) * max(least, 0)
            continue
        for inner in _inside(operator, value):
            yield from _pumps(inner, before)
        before += _sample([(operator, value)], 0)


def _inside(operator: Any, value: Any) -> list[list[Any]]:
    if operator is sre.SUBPATTERN:
        return [list(value[3])]
    if operator is sre.ATOMIC_GROUP:
        return [list(value)]
    if operator is sre.BRANCH:
        return [list(one) for one in value[1]]
    if operator in (sre.ASSERT, sre.ASSERT_NOT):
        return [list(value[1])]
    return []


def _sample(items: list[Any], choice: int) -> str:
    """A text that fits some items; choices differ where several characters do."""
    out = ""
    for operator, value in items:
        if operator is sre.LITERAL:
            out += chr(value)
        elif operator in (sre.NOT_LITERAL, sre.ANY, sre.IN):
            out += _character(operator, value, choice)
        elif operator in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            out += _sample(list(value[2]), choice) * max(value[0], 1 if choice % 2 else 0)
        elif operator is sre.BRANCH:
            out += _sample(list(value[1][choice % len(value[1])]), choice)
        elif operator in (sre.SUBPATTERN, sre.ATOMIC_GROUP):
            out += _sample(_inside(operator, value)[0], choice)
    return out


_CANDIDATES = "a0 -.:\"'\\\n\t/{}[]()$_=<>,#%AZ\x1b~\x80"


def _character(operator: Any, value: Any, choice: int) -> str:
    if operator is sre.ANY:
        return 'a- "0:'[choice % 6]
    if operator is sre.NOT_LITERAL:
        return next(one for one in (*("a", " ", "0", "-")[choice % 4 :], "b") if one != chr(value))
    compiled = _compile_class(value)
    fitting = [one for one in _CANDIDATES if compiled.fullmatch(one)]
    return fitting[choice % len(fitting)] if fitting else "\u0100"


def _compile_class(value: Any) -> re.Pattern[str]:
    """The pattern of a character class from its parsed form."""
    parts, negated = "", ""
    for operator, one in value:
        if operator is sre.NEGATE:
            negated = "^"
        elif operator is sre.LITERAL:
            parts += re.escape(chr(one))
        elif operator is sre.RANGE:
            parts += f"{re.escape(chr(one[0]))}-{re.escape(chr(one[1]))}"
        elif operator is sre.CATEGORY:
            parts += _CATEGORIES[one]
    return re.compile(f"[{negated}{parts}]")


_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}


class TooSlowError(Exception):
    """A pattern took too long."""


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise TooSlowError


def slow_text(use: Use) -> str:
    """The beginning of a text for which a pattern takes more than LIMIT_S; "" if there is none."""
    signal.signal(signal.SIGVTALRM, _stop)
    for text in texts_for(use.pattern):
        data: Any = text if isinstance(use.pattern.pattern, str) else text.encode("latin-1", "replace")
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
            try:
                _try(use, data)
            finally:
                # the time may run out here, too
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        except TooSlowError:
            return repr(text[:40])
    return ""


def _try(use: Use, data: Any) -> None:
    if SEARCH in use.ways:
        for _ in use.pattern.finditer(data):
            pass
    if SCAN in use.ways:
        at = 0
        while at < len(data) and (found := use.pattern.match(data, at)) is not None:
            at = max(found.end(), at + 1)
    if WHOLE in use.ways:
        use.pattern.fullmatch(data)
        use.pattern.match(data)


def main() -> None:
    for package in sys.argv[1:]:
        for use in uses_in(package):
            if slow := slow_text(use):
                print(f"{use.name}\t{slow}", flush=True)


if __name__ == "__main__":
    main()
