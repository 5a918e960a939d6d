"""
GJSON paths: `friends.#(last=="Murphy")#.first`.

A path is applied to the text of a JSON document, as in the GJSON library. A modifier therefore sees the
document's white space, and the first of equal keys is used. Source: github.com/tidwall/gjson, SYNTAX.md.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ccm_agent.model.errors import ExpressionError
from ccm_agent.templates.allowance import Allowance
from ccm_agent.templates.gjson_modifiers import MODIFIERS, NAMES, first_value, string_of
from ccm_agent.templates.gjson_paths import (
    ArrayComponent,
    ElementQuery,
    array_component,
    last_name,
    object_component,
    selectors,
    split_pipe,
    wild_match,
)
from ccm_agent.templates.gjson_text import elements, is_valid, members, parsed, squash, unescape, value_end
from ccm_agent.templates.gojson import quote
from ccm_agent.templates.values import INT_MAX, INT_MIN

PATH_LIMIT = 16 * 1024
# limit of the characters that a path may read and create in total
WORK_LIMIT = 256 * 1024 * 1024

_SAFE_INT = 2**53 - 1
_PAST_INT = 2.0**63
_DIGITS = re.compile(r"-?[0-9]+\Z")
_NUMBER = re.compile(r"[-+]?(?:[0-9]++(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")


class Result:
    """
    The value at a path.

    Attributes:
        raw: The JSON of the value; "" if the path does not exist.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: str) -> None:
        self.raw = raw

    @property
    def exists(self) -> bool:
        """Whether the path exists; a null exists."""
        return self.raw != ""

    def value(self) -> Any:
        """Return the value; numbers are floats. None if the path does not exist."""
        raw = self.raw
        if not raw or raw[0] == "n":
            return None
        if raw[0] in "[{":
            return parsed(raw)
        if raw[0] == '"':
            return string_of(raw)
        return raw[0] == "t" if raw[0] in "tf" else number_of(raw)

    def looked_up(self) -> Any:
        """Return the value as in `lookup()`: a number is an int unless it has a decimal point."""
        return scalar_number(self.raw) if _is_number(self.raw) else self.value()


def _is_number(raw: str) -> bool:
    return raw[:1] != "" and raw[0] not in '[{"tfn'


def number_of(raw: str) -> float:
    """Parse a number; 0 if the text is not a number."""
    return float(raw) if _NUMBER.match(raw) else 0.0


def scalar_number(raw: str) -> int | float:
    """
    Parse a number as in `lookup()`: a float if its text has a decimal point, otherwise an int if it fits into 64 bits.

    A number that does not fit becomes the nearest float. Choria CCM returns the smallest int, or an int that
    has wrapped around.
    """
    number = number_of(raw)
    if "." in raw:
        return number
    if -_SAFE_INT <= number <= _SAFE_INT:
        return int(number)
    if abs(number) > _PAST_INT:
        return number
    whole = int(raw) if _DIGITS.match(raw) else int(number)
    return whole if INT_MIN <= whole <= INT_MAX else number


def get(json: str, path: str, allowance: Allowance | None = None) -> Result:
    """
    Return the value at a path.

    Args:
        json: A JSON document, which is not validated. The result for an invalid document is undefined.
        path: The path.
        allowance: Limits to which the search is charged, in addition to its own limit.

    Raises:
        ExpressionError: The path is too long, nested too deeply, or its result is too large.
        ExpressionLimitError: The allowance is used up.
    """
    if len(path) > PATH_LIMIT:
        raise ExpressionError(f"a path may not be longer than {PATH_LIMIT} characters", expression=path[:80])
    try:
        return Result(_Search(allowance).get(json, path))
    except RecursionError:
        raise ExpressionError("the path or the data is nested too deeply", expression=path) from None


class _Found:
    """The result of a walk through the document so far, and the remaining pipe."""

    __slots__ = ("pipe", "raw")

    def __init__(self) -> None:
        self.raw = ""
        self.pipe: str | None = None


class _Plain(NamedTuple):
    """The rest of a path that is not special, although it begins like a special path."""

    rest: str


class _Search:
    """The search for one path. It counts the text that it reads and creates."""

    def __init__(self, allowance: Allowance | None) -> None:
        self.work = WORK_LIMIT
        self._allowance = allowance

    def spend(self, characters: int) -> None:
        self.work -= characters + 32
        if self._allowance is not None:
            self._allowance.spend(1 + (characters >> 6))
        if self.work < 0:
            raise ExpressionError("the path reads too much text: make it simpler")

    def get(self, json: str, path: str) -> str:
        """Return the JSON at a path; "" if it does not exist."""
        self.spend(len(json))
        if len(path) > 1 and path[0] in "@![{":
            found = self.special(json, path)
            if isinstance(found, str):
                return found
            path = found.rest
        search = _Found()
        if path.startswith(".."):
            self.in_array(search, elements(json, 0), path[2:])
        else:
            self.in_document(search, json, path)
        return search.raw if search.pipe is None else self.get(search.raw, search.pipe)

    def special(self, json: str, path: str) -> str | _Plain:
        """
        Handle a path that begins with a modifier, a literal or several paths. Return a _Plain if it only
        looks like one.
        """
        if path[0] in "[{":
            parts = selectors(path)
            if parts is None:
                return _Plain("")
            if parts[1] and parts[1][0] not in "|.":
                return _Plain(parts[1])
            made: str | None = self.several(json, path[0], parts[0])
            rest = parts[1]
        else:
            made, rest = self.modified(json, path) if path[0] == "@" else _literal(path)
        if made is None:
            return _Plain(path)
        self.spend(len(made))
        if rest[:1] in ("|", ".") and rest:
            return self.get(made, rest[1:])
        return made if path[0] in "[{" else first_value(made)

    def several(self, json: str, opening: str, paths: list[Any]) -> str:
        """Handle `[a,b]` and `{"x":a}`: return a new document with the values at the paths."""
        parts = []
        for name, path in paths:
            raw = self.get(json, path)
            if not raw:
                continue
            if opening == "{":
                if not name:
                    name = quote(last_name(path))
                elif name[0] != '"' or not is_valid(name):
                    name = quote(name)
                raw = f"{name}:{raw}"
            parts.append(raw)
        return opening + ",".join(parts) + ("]" if opening == "[" else "}")

    def modified(self, json: str, path: str) -> tuple[str | None, str]:
        """Handle `@name:argument`: return the modifier's result and the rest of the path."""
        end = next((at for at in range(1, len(path)) if path[at] in ":|."), len(path))
        name = path[1:end]
        if name not in NAMES:
            return None, ""
        rest = path[end:]
        argument = ""
        if rest[:1] == ":":
            rest = rest[1:]
            if rest:
                end = _argument_end(rest)
                argument, rest = rest[:end], rest[end:]
        if name == "dig":
            return self.dig(json, argument), rest
        return MODIFIERS[name](json, argument), rest

    def dig(self, json: str, path: str) -> str:
        """Handle `@dig:path`: return the values at the path anywhere in the document."""
        found: list[str] = []

        def look(raw: str) -> None:
            here = self.get(raw, path)
            if here:
                found.append(here)
            if raw[:1] == "[":
                for item in elements(raw):
                    look(item)
            elif raw[:1] == "{":
                for _, value in members(raw):
                    look(value)

        look(first_value(json))
        return "[" + ",".join(found) + "]"

    # walking

    def in_document(self, search: _Found, json: str, path: str) -> None:
        start = next((at for at, char in enumerate(json) if char in "[{"), -1)
        if start >= 0:
            self.inside(search, json[start:], path)

    def inside(self, search: _Found, raw: str, path: str) -> bool:
        """Continue in an object or array; return whether the walk is over."""
        if raw[0] == "{":
            return self.in_object(search, raw, path)
        return raw[0] == "[" and self.in_array(search, elements(raw), path)

    def in_object(self, search: _Found, raw: str, path: str) -> bool:
        component = object_component(path, NAMES)
        if component.rest is None and component.pipe is not None:
            search.pipe = component.pipe
        for key, value in members(raw):
            name = unescape(key[1:-1])
            if not (wild_match(name, component.part) if component.is_wild else name == component.part):
                continue
            if component.rest is None:
                search.raw = value
                return True
            if self.inside(search, value, component.rest):
                return True
        return False

    def in_array(self, search: _Found, items: Any, path: str) -> bool:
        component = array_component(path, NAMES)
        if component.rest is None and component.pipe is not None:
            search.pipe = component.pipe
        if component.query is not None:
            return self.queried(search, items, component, component.query)
        if component.is_hash:
            return self.counted(search, list(items), component)
        index = int(component.part) if component.part.isdecimal() and component.part.isascii() else -1
        for at, item in enumerate(items):
            if at == index:
                if component.rest is None:
                    search.raw = item
                    return True
                return self.inside(search, item, component.rest)
        return False

    def counted(self, search: _Found, items: list[str], component: ArrayComponent) -> bool:
        """Handle `#` and `#.path`."""
        if component.part != "#":
            return False
        if component.each is None:
            search.raw = str(len(items))
            return True
        each = component.each
        parts = split_pipe(each)
        if parts is not None:
            each, search.pipe = parts
        found = [raw for raw in (self.get(item, each) for item in items) if raw]
        search.raw = "[" + ",".join(found) + "]"
        return True

    def queried(self, search: _Found, items: Any, component: ArrayComponent, query: ElementQuery) -> bool:
        """Handle `#(…)` and `#(…)#`."""
        rest = component.rest
        found: list[str] = []
        is_split = False
        for item in items:
            if item[0] in "[{":
                asked = self.get(item, query.path)
            elif query.path:
                continue
            else:
                asked = item
            if not _answers(query, asked):
                continue
            if rest is not None and not is_split:
                is_split = True
                parts = split_pipe(rest)
                if parts is not None:
                    rest, search.pipe = parts
            raw = item if rest is None else self.get(item, rest)
            if not query.takes_all:
                search.raw = raw
                return True
            if raw:
                found.append(raw)
        if query.takes_all and not search.raw:
            search.raw = "[" + ",".join(found) + "]"
        return False


def _argument_end(text: str) -> int:
    """Return the end of a modifier's argument: after its JSON, or at the next pipe."""
    if text[0] in "[{":
        return squash(text)
    if text[0] == '"':
        return value_end(text, 0)
    at = 0
    while at < len(text) and text[at] != "|":
        if text[at] in '{["(':
            at = (squash(text, at) if text[at] != '"' else value_end(text, at)) - 1
        at += 1
    return min(at, len(text))


def _literal(path: str) -> tuple[str | None, str]:
    """Handle `!value`: return the literal and the rest of the path."""
    body = path[1:]
    if body[0] in '{["+-0123456789':
        end = squash(body)
        return body[:end], body[end:]
    end = next((at for at, char in enumerate(body) if char in "|."), len(body))
    if body[:end].lower() in ("true", "false", "null", "nan", "inf"):
        return body[:end], body[end:]
    return None, ""


def _answers(query: ElementQuery, raw: str) -> bool:
    """Whether a value matches a query."""
    value = query.value
    if value[:1] == "~":
        ish = _ish(value[1:], raw)
        raw, value = ("" if ish is None else "true" if ish else "false"), "true"
        if ish is None:
            return False
    if not raw:
        return False
    if not query.operator:
        return True
    if raw[0] == '"':
        return _text_answers(query.operator, string_of(raw), value)
    if raw[0] == "t":
        return {"=": value == "true", "!=": value != "true", ">": value == "false", ">=": True}.get(
            query.operator, False
        )
    if raw[0] == "f":
        return {"=": value == "false", "!=": value != "false", "<": value == "true", "<=": True}.get(
            query.operator, False
        )
    return _is_number(raw) and _compares(query.operator, number_of(raw), number_of(value))


def _text_answers(operator: str, text: str, value: str) -> bool:
    if operator in ("%", "!%"):
        return wild_match(text, value) == (operator == "%")
    return _compares(operator, text, value)


def _compares(operator: str, left: Any, right: Any) -> bool:
    answers = {
        "=": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    return bool(answers.get(operator, False))


_TRUE = ("1", "t", "true")
_FALSE = ("0", "f", "false")


def _ish(kind: str, raw: str) -> bool | None:
    """Whether a value is truthy, falsy or null-like, depending on `kind`; None for an unknown kind."""
    is_null = not raw or raw[0] == "n"
    text = string_of(raw).lower() if raw[:1] == '"' else None
    if kind == "*":
        return raw != ""
    if kind == "null":
        return is_null
    if kind == "true":
        return raw[:1] == "t" or text in _TRUE or (_is_number(raw) and number_of(raw) != 0)
    if kind == "false":
        return is_null or raw[:1] == "f" or text in _FALSE or (_is_number(raw) and number_of(raw) == 0)
    return None
