"""
Assign the comments of a YAML document to keys.

A comment belongs to the key on its line, or otherwise to the key below it. A comment below the last key of a
mapping, with at least that key's indentation, belongs to that key. Comments on list items and inside `[ ]` and
`{ }` do not belong to a key.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, NamedTuple

from ccm_agent.model.errors import DocumentError, Place
from ccm_agent.model.formats.scalars import written_key

_COMMENT = re.compile(r"(?:^|(?<=[ \t]))#([^\n]*)", re.MULTILINE)


class KeyComment(NamedTuple):
    """
    One line of comment.

    Attributes:
        path: Keys from the document's root to the key of the comment.
        text: The text after the `#`, without surrounding white space.
        line: The line of the comment, from 1.
    """

    path: tuple[str, ...]
    text: str
    line: int


class _Comment(NamedTuple):
    at: int
    line: int
    column: int
    text: str


class _Entry(NamedTuple):
    key: str
    key_start: Any
    key_end: Any
    value: _Node


class _Node(NamedTuple):
    """
    A value. A block mapping has entries, and a block list has items. Any other value, including a flow
    collection, is a leaf.
    """

    start: Any
    end: Any
    is_block_text: bool = False
    entries: list[_Entry] | None = None
    items: list[_Node] | None = None


def key_comments(text: str, source: str) -> list[KeyComment]:
    """
    Return the comments of the first document that belong to keys, in written order.

    Raises:
        DocumentError: The text is not YAML, or is nested too deeply.
    """
    import yaml

    try:
        return _Reader(text).read()
    except yaml.YAMLError as err:
        from ccm_agent.model.formats.yaml_errors import syntax_error

        raise syntax_error(text, source, err) from err
    except RecursionError:
        raise DocumentError("nested too deeply to be read", place=Place(source)) from None


class _Reader:
    """Reads the structure of a text and the positions of its scalars."""

    def __init__(self, text: str) -> None:
        from yaml._yaml import CParser

        self.text = text
        self.next: Callable[[], Any] = CParser(text).get_event
        self.scalars: list[tuple[int, int]] = []

    def read(self) -> list[KeyComment]:
        self.next()
        if _kind(self.next()) != "DocumentStart":
            return []
        root = self.node(self.next())
        end = self.next().end_mark.index
        while self.next() is not None:
            pass
        walk = _Walk([one for one in _comments(self.text, self.scalars) if one.at < end])
        walk.node(root, (), len(self.text) + 1)
        return sorted(walk.found, key=lambda one: one.line)

    def node(self, event: Any) -> _Node:
        kind = _kind(event)
        if kind == "Scalar":
            return self.scalar(event)
        if kind == "MappingStart":
            return self.mapping(event)
        if kind == "SequenceStart":
            return self.sequence(event)
        return _Node(event.start_mark, event.end_mark)

    def scalar(self, event: Any) -> _Node:
        start, end, is_block_text = event.start_mark.index, event.end_mark.index, event.style in ("|", ">")
        if is_block_text:
            # the line of the `|` may contain a comment; the text below it does not
            start = max(start, self.text.find("\n", start, end))
        if end > start:
            self.scalars.append((start, end))
        return _Node(event.start_mark, event.end_mark, is_block_text)

    def mapping(self, event: Any) -> _Node:
        entries: list[_Entry] = []
        while _kind(key := self.next()) != "MappingEnd":
            place = self.node(key)
            name = written_key(key.value, key.implicit[0]) if _kind(key) == "Scalar" else ""
            entries.append(_Entry(name, place.start, place.end, self.node(self.next())))
        if event.flow_style or not entries:
            return _Node(event.start_mark, key.end_mark)
        return _Node(entries[0].key_start, entries[-1].value.end, entries=entries)

    def sequence(self, event: Any) -> _Node:
        items: list[_Node] = []
        while _kind(item := self.next()) != "SequenceEnd":
            items.append(self.node(item))
        if event.flow_style or not items:
            return _Node(event.start_mark, item.end_mark)
        return _Node(event.start_mark, items[-1].end, items=items)


def _kind(event: Any) -> str:
    return str(event.__class__.__name__).removesuffix("Event")


def _comments(text: str, scalars: list[tuple[int, int]]) -> list[_Comment]:
    """Return all comments of the text. Text in scalars is not searched."""
    starts = [start for start, _ in scalars]
    found: list[_Comment] = []
    at = line = line_start = 0
    while (match := _COMMENT.search(text, at)) is not None:
        near = bisect_right(starts, match.start()) - 1
        if near >= 0 and match.start() < scalars[near][1]:
            at = scalars[near][1]
            continue
        line += text.count("\n", line_start, match.start())
        line_start = text.rfind("\n", 0, match.start()) + 1
        found.append(_Comment(match.start(), line, match.start() - line_start, match[1].strip()))
        at = match.end()
    return found


class _Walk:
    """Assigns comments to keys in one pass. Both comments and keys are sorted by position."""

    def __init__(self, comments: list[_Comment]) -> None:
        self.comments = comments
        self.at = 0
        self.found: list[KeyComment] = []

    def take(self, before: int, path: tuple[str, ...] | None, column: int = 0) -> None:
        """Assign the comments before an index, and at or after `column`, to `path`; drop them if `path` is None or the root."""
        while self.at < len(self.comments):
            one = self.comments[self.at]
            if one.at >= before or one.column < column:
                return
            self.at += 1
            if path:
                self.found.append(KeyComment(path, one.text, one.line + 1))

    def take_line(self, line: int, path: tuple[str, ...] | None) -> None:
        while self.at < len(self.comments) and self.comments[self.at].line == line:
            self.take(self.comments[self.at].at + 1, path)

    def node(self, node: _Node, path: tuple[str, ...] | None, limit: int, column: int = -1) -> None:
        """Walk the value at `path`, below a key in `column`; the next node begins at `limit`."""
        if node.entries is not None:
            self.mapping(node.entries, path, limit)
        elif node.items is not None:
            self.sequence(node.items, max(node.start.column, column + 1), limit)
        else:
            self.take_line(node.start.line, path)
            self.take(node.end.index, None)
            if not node.is_block_text:
                self.take_line(node.end.line, path)

    def mapping(self, entries: list[_Entry], path: tuple[str, ...] | None, limit: int) -> None:
        for number, entry in enumerate(entries):
            inner = None if path is None else (*path, entry.key)
            after = entries[number + 1].key_start.index if number + 1 < len(entries) else limit
            self.take(entry.key_start.index, inner)
            self.take_line(entry.key_end.line, inner)
            self.node(entry.value, inner, after, entry.key_start.column)
        self.take(limit, inner, entries[0].key_start.column)

    def sequence(self, items: list[_Node], column: int, limit: int) -> None:
        for number, item in enumerate(items):
            after = items[number + 1].start.index if number + 1 < len(items) else limit
            self.take(item.start.index, None)
            self.node(item, None, after)
        self.take(limit, None, column)
