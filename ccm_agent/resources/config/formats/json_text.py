"""Changes keys of a JSON text. Only the changed values are written, and the rest of the text is unchanged."""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import Struct

from ccm_agent.model.errors import FileError
from ccm_agent.resources.config.keys import DEPTH_LIMIT, KeyChange, is_same, nested

_SPACE = re.compile(r"[ \t\r\n]*+")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*+"')
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null")


class JsonNode(Struct, kw_only=True):
    """
    A value in the text, with its position.

    Attributes:
        begin, end: The position of the value in the text.
        value: The value.
        members: The keys of an object, with their positions and values.
        items: The elements of an array.
    """

    begin: int
    end: int = 0
    value: Any = None
    members: dict[str, tuple[int, JsonNode]] | None = None
    items: list[JsonNode] | None = None


def change_json(text: str, changes: list[KeyChange]) -> str:
    """Return the text with the changes. Raises FileError if a change is not possible."""
    if not text.strip():
        text = "{}\n"
    root = _Reader(text).read() if changes else None
    for change in changes:
        # a text that was not changed is not read again, because a file may have many keys
        after = _change(text, root or _Reader(text).read(), change)
        root = root if after == text else None
        text = after
    return text


def read_json(text: str) -> Any:
    """Return the value of a text. Raises FileError if it is not JSON."""
    return _Reader(text).read().value if text.strip() else {}


def _change(text: str, node: JsonNode, change: KeyChange) -> str:
    for number, name in enumerate(change.path):
        rest = change.path[number + 1 :]
        if node.items is not None:
            if not name.isdecimal() or int(name) >= len(node.items):
                if change.is_removed:
                    return text
                raise FileError(
                    f"the key `{change.shown}`: `{name}` is not an index of a list of length {len(node.items)}"
                )
            if not rest and change.is_removed:
                raise FileError(f"the key `{change.shown}` is a list element, which cannot be removed")
            node = node.items[int(name)]
        elif node.members is None:
            if change.is_removed:
                return text
            raise FileError(f"the key `{change.shown}`: the value before `{name}` is not an object")
        elif name not in node.members:
            return text if change.is_removed else _insert(text, node, name, nested(rest, change.value))
        elif not rest and change.is_removed:
            return _remove(text, node, name)
        else:
            node = node.members[name][1]
    if is_same(node.value, change.value):
        return text
    return text[: node.begin] + _dump(text, change.value, _indent_at(text, node.begin)) + text[node.end :]


def _insert(text: str, node: JsonNode, name: str, value: Any) -> str:
    assert node.members is not None
    base = _indent_at(text, node.begin)
    if not node.members:
        inner = base + _unit(text)
        new = _ending(text) + inner + _member(text, name, value, inner) + _ending(text) + base
        return text[: node.begin] + "{" + new + "}" + text[node.end :]
    begin, last = list(node.members.values())[-1]
    line = text[text.rfind("\n", 0, begin) + 1 : begin]
    if line.strip():  # all members are on one line
        return text[: last.end] + ", " + _member(text, name, value, base) + text[last.end :]
    return text[: last.end] + "," + _ending(text) + line + _member(text, name, value, line) + text[last.end :]


def _remove(text: str, node: JsonNode, name: str) -> str:
    assert node.members is not None
    names = list(node.members)
    at = names.index(name)
    begin, value = node.members[name]
    if len(names) == 1:
        return text[: node.begin] + "{}" + text[node.end :]
    if at + 1 < len(names):
        return text[:begin] + text[node.members[names[at + 1]][0] :]
    return text[: node.members[names[at - 1]][1].end] + text[value.end :]


def _member(text: str, name: str, value: Any, indent: str) -> str:
    return f"{json.dumps(name, ensure_ascii=False)}: {_dump(text, value, indent)}"


def _dump(text: str, value: Any, indent: str) -> str:
    try:
        dumped = json.dumps(value, ensure_ascii=False, indent=_unit(text), allow_nan=False)
    except ValueError as err:
        raise FileError(f"JSON does not support the value: {err}") from err
    return dumped.replace("\n", _ending(text) + indent)


def _unit(text: str) -> str:
    match = re.search(r"\n([ \t]++)\S", text)
    return match[1] if match else "  "


def _ending(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_at(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip())]


class _Reader:
    """Reads a text, with the positions of all values."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> JsonNode:
        node = self._value(0)
        if self._at != len(self._text):
            raise self._error("the end of the text")
        return node

    def _value(self, depth: int) -> JsonNode:
        if depth > DEPTH_LIMIT:
            raise FileError(f"it is nested more than {DEPTH_LIMIT} levels deep")
        self._skip()
        node = JsonNode(begin=self._at)
        first = self._text[self._at : self._at + 1]
        if first == "{":
            self._object(node, depth)
        elif first == "[":
            self._array(node, depth)
        elif first == '"':
            node.value = self._string()
        else:
            node.value = self._decoded(_SCALAR.match(self._text, self._at), "a value")
        node.end = self._at
        self._skip()
        return node

    def _object(self, node: JsonNode, depth: int) -> None:
        node.members, node.value = {}, {}
        self._at += 1
        self._skip()
        while not self._takes("}"):
            if node.members:
                self._expect(",")
                self._skip()
            begin = self._at
            key = self._string()
            if key in node.members:
                raise FileError(
                    f"line {self._text.count(chr(10), 0, begin) + 1}: the key `{key}` occurs twice"
                )
            self._skip()
            self._expect(":")
            value = self._value(depth + 1)
            node.members[key] = begin, value
            node.value[key] = value.value

    def _array(self, node: JsonNode, depth: int) -> None:
        node.items, node.value = [], []
        self._at += 1
        self._skip()
        while not self._takes("]"):
            if node.items:
                self._expect(",")
            node.items.append(self._value(depth + 1))
            node.value.append(node.items[-1].value)

    def _string(self) -> str:
        return str(self._decoded(_STRING.match(self._text, self._at), "a string in double quotes"))

    def _decoded(self, match: re.Match[str] | None, what: str) -> Any:
        if match is None:
            raise self._error(what)
        self._at = match.end()
        try:
            return json.loads(match[0])
        except ValueError as err:
            raise self._error(what) from err

    def _takes(self, mark: str) -> bool:
        if not self._text.startswith(mark, self._at):
            return False
        self._at += 1
        return True

    def _expect(self, mark: str) -> None:
        if not self._takes(mark):
            raise self._error(f"`{mark}`")

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _error(self, what: str) -> FileError:
        return FileError(
            f"it is not JSON: line {self._text.count(chr(10), 0, self._at) + 1}: expected {what}"
        )
