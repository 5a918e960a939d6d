"""Parse GJSON paths: components of objects and arrays, queries, several paths in one."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ccm_agent.templates.gjson_text import squash, unescape

_OPERATORS = ("!=", "!%", "<=", ">=", "==", "<", ">", "=", "%")


class Component(NamedTuple):
    """
    The first component of a path.

    Attributes:
        part: The text of the component.
        rest: The path after its dot; None if there is none.
        pipe: The path that applies to the whole result; None if there is none.
        is_wild: Whether `*` and `?` in it are wildcards.
    """

    part: str
    rest: str | None = None
    pipe: str | None = None
    is_wild: bool = False


class ElementQuery(NamedTuple):
    """
    A `#(path operator value)`.

    Attributes:
        path: The path inside an element to compare; "" for the element itself.
        operator: The operator; "" tests for existence.
        value: The operand.
        takes_all: Whether every match is used instead of the first: `#(…)#`.
    """

    path: str
    operator: str
    value: str
    takes_all: bool


class ArrayComponent(NamedTuple):
    """
    The first component of a path into an array.

    Attributes:
        part: The text of the component.
        rest: The path after it; None if there is none.
        pipe: The path that applies to the whole result.
        is_hash: Whether it begins with `#`.
        each: The path for each element of `#.path`; None for other components.
        query: The query of the component.
    """

    part: str
    rest: str | None = None
    pipe: str | None = None
    is_hash: bool = False
    each: str | None = None
    query: ElementQuery | None = None


def is_piping(path: str, modifiers: Collection[str]) -> bool:
    """Whether the part after a dot applies to the whole value, as after a pipe: `@modifier`, `[…]`, `{…}`."""
    if path[:1] == "@":
        end = next((index for index, char in enumerate(path) if char in ".|:"), len(path))
        return path[1:end] in modifiers
    return path[:1] in ("[", "{") and bool(path)


def object_component(path: str, modifiers: Collection[str]) -> Component:
    """Parse the first component of a path into an object."""
    part: list[str] = []
    is_wild = False
    at = 0
    while at < len(path):
        char = path[at]
        if char == "|":
            return Component("".join(part), pipe=path[at + 1 :], is_wild=is_wild)
        if char == ".":
            rest = path[at + 1 :]
            if is_piping(rest, modifiers):
                return Component("".join(part), pipe=rest, is_wild=is_wild)
            return Component("".join(part), rest=rest, is_wild=is_wild)
        if char == "\\":
            at += 1
            if at < len(path):
                part.append(path[at])
            at += 1
            continue
        if char in "*?":
            is_wild = True
        part.append(char)
        at += 1
    return Component("".join(part), is_wild=is_wild)


def array_component(path: str, modifiers: Collection[str]) -> ArrayComponent:
    """Parse the first component of a path into an array."""
    is_hash = False
    each: str | None = None
    query: ElementQuery | None = None
    at = 0
    while at < len(path):
        char = path[at]
        if char == "|":
            return ArrayComponent(path[:at], None, path[at + 1 :], is_hash, each, query)
        if char == ".":
            rest = path[at + 1 :]
            if not is_hash and is_piping(rest, modifiers):
                return ArrayComponent(path[:at], None, rest, is_hash, each, query)
            return ArrayComponent(path[:at], rest, None, is_hash, each, query)
        if char == "#":
            is_hash = True
            if at == 0 and len(path) > 1:
                if path[1] == ".":
                    each = path[2:]
                elif path[1] in "[(":
                    found = _query(path)
                    if found is None:  # the query is not closed, so there is none
                        return ArrayComponent(path, None, None, True, None, ElementQuery("", "", "", False))
                    query, at = found
                    continue
        at += 1
    return ArrayComponent(path, None, None, is_hash, each, query)


def _query(path: str) -> tuple[ElementQuery, int] | None:
    """Return the query at the start of a path, and its end."""
    depth = 1
    compared = 0
    has_escape = False
    at = 2
    while at < len(path):
        char = path[at]
        if depth == 1 and not compared and char in "!=<>%":
            compared = at
        elif char == "\\":
            at += 1
        elif char in "[(":
            depth += 1
        elif char in "])":
            depth -= 1
            if depth == 0:
                break
        elif char == '"':
            at += 1
            while at < len(path) and path[at] != '"':
                if path[at] == "\\":
                    has_escape = True
                    at += 1
                at += 1
        at += 1
    if depth > 0 or at >= len(path):
        return None
    left = _trim(path[2 : compared or at])
    sign, value = _comparison(_trim(path[compared:at])) if compared else ("", "")
    if len(value) >= 2 and value[0] == '"' and value[-1] == '"':
        value = unescape(value[1:-1]) if has_escape else value[1:-1]
    takes_all = path[at + 1 : at + 2] == "#"
    return ElementQuery(left, sign, value, takes_all), at + 1


def _comparison(text: str) -> tuple[str, str]:
    """Split `== "x"` into the operator and its operand."""
    if len(text) == 1:
        return text, ""
    for sign in _OPERATORS:
        if text.startswith(sign):
            return ("=" if sign == "==" else sign), _trim(text[len(sign) :])
    return "", _trim(text)


def _trim(text: str) -> str:
    return text.strip("".join(map(chr, range(33))))


def split_pipe(path: str) -> tuple[str, str] | None:
    """Return the path before and after a pipe that is not inside a query; None if there is no such pipe."""
    if "|" not in path:
        return None
    if path[0] == "{":
        end = squash(path)
        return (path[:end], path[end + 1 :]) if path[end : end + 1] == "|" else None
    at = 0
    while at < len(path):
        char = path[at]
        if char == "\\":
            at += 1
        elif char == "." and path[at + 1 : at + 2] == "#" and path[at + 2 : at + 3] in ("[", "("):
            at = _selector_end(path, at + 2)
        elif char == "." and at == len(path) - 1:
            return None
        elif char == "|":
            return path[:at], path[at + 1 :]
        at += 1
    return None


def _selector_end(path: str, start: int) -> int:
    """Return the end of the selector that begins at `start`."""
    opening = path[start]
    closing = "]" if opening == "[" else ")"
    depth = 1
    at = start + 1
    while at < len(path):
        char = path[at]
        if char == "\\":
            at += 1
        elif char == opening:
            depth += 1
        elif char == closing:
            depth -= 1
            if depth == 0:
                return at
        elif char == '"':
            at += 1
            while at < len(path) and path[at] != '"':
                at += 2 if path[at] == "\\" else 1
        at += 1
    return at


class PathSelector(NamedTuple):
    """One of several paths, with its name in an object; "" if it has no explicit name."""

    name: str
    path: str


def selectors(path: str) -> tuple[list[PathSelector], str] | None:
    """Return the paths of `[a,b]` or `{"x":a,b}` and the rest of the text; None if the bracket is not closed."""
    found: list[PathSelector] = []
    depth = 1
    start = 1
    colon = 0
    in_modifier = False
    at = 1

    while at < len(path):
        char = path[at]
        if char == "\\":
            at += 1
        elif char == "@":
            in_modifier = in_modifier or path[at - 1] in ".|"
        elif char == ":":
            if not in_modifier and not colon and depth == 1:
                colon = at
        elif char == '"':
            at += 1
            while at < len(path) and path[at] != '"':
                at += 2 if path[at] == "\\" else 1
        elif char in "[({":
            depth += 1
        elif char in "])}" or (char == "," and depth == 1):
            depth -= char != ","
            if depth == 0 or char == ",":
                name = path[start:colon] if colon else ""
                found.append(PathSelector(name, path[colon + 1 : at] if colon else path[start:at]))
                if char != ",":
                    return found, path[at + 1 :]
                start, colon, in_modifier = at + 1, 0, False
        at += 1
    return None


def last_name(path: str) -> str:
    """Return the default name of a path's value in an object: its last component."""
    for at in range(len(path) - 1, -1, -1):
        if path[at] in "|." and not (at > 0 and path[at - 1] == "\\"):
            path = path[at + 1 :]
            break
    return "_" if any(char < " " or char in "[]{}()#|!" for char in path) else path


def wild_match(text: str, pattern: str) -> bool:
    """
    Whether a text matches a pattern of `*`, `?` and `\\` escapes. The time is proportional to the product of
    their lengths.
    """
    tokens: list[tuple[str, bool]] = []  # (character, whether it is special)
    chars = iter(pattern)
    for char in chars:
        if char == "\\":
            tokens.append((next(chars, ""), False))
        else:
            tokens.append((char, char in "*?"))
    at = place = 0
    star = -1
    mark = 0
    while at < len(text):
        if place < len(tokens) and tokens[place] == ("*", True):
            star, mark = place, at
            place += 1
        elif place < len(tokens) and (tokens[place] == ("?", True) or tokens[place] == (text[at], False)):
            at += 1
            place += 1
        elif star >= 0:
            mark += 1
            at, place = mark, star + 1
        else:
            return False
    return all(token == ("*", True) for token in tokens[place:])
