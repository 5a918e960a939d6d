"""Find positions in a document. This is slower than decoding, so use it only for errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ccm_agent.model.formats.scalars import written_key

Inside = dict[str, Any] | list[Any] | None
"""The entries of a mapping or list; None for a scalar."""


class MarkedEntry(NamedTuple):
    """
    The position of a key or an item, its content, and the span of the value in characters if it is a single
    scalar.
    """

    mark: Any
    inside: Inside
    span: tuple[int, int] | None = None


def find(text: str, path: Sequence[str | int]) -> tuple[int, int]:
    """
    Return line and column, from 1, of the deepest existing part of `path`; (0, 0) if the text cannot be parsed.

    JSON is also supported, because it is YAML except for a few escapes.
    """
    import yaml

    try:
        first, node = _first_node(text)
    except (yaml.YAMLError, RecursionError, ValueError, AttributeError):
        return 0, 0
    mark = first.start_mark
    for part in path:
        entry = _step(node, part)
        if entry is None:
            break
        mark, node = entry.mark, entry.inside
    return mark.line + 1, mark.column + 1


def scalar_span(text: str, path: Sequence[str | int]) -> tuple[int, int] | None:
    """
    Return the start and end of an entry's plain or quoted scalar, in characters; None if there is none at `path`.

    Raises:
        yaml.YAMLError: The text is not YAML.
    """
    _, node = _first_node(text)
    entry: MarkedEntry | None = None
    for part in path:
        entry = _step(node, part)
        if entry is None:
            return None
        node = entry.inside
    return entry.span if entry is not None else None


def _first_node(text: str) -> tuple[Any, Inside]:
    from yaml._yaml import CParser

    following: Callable[[], Any] = CParser(text).get_event
    following()
    following()
    first = following()
    return first, _read(first, following, {})


def _read(event: Any, following: Callable[[], Any], anchors: dict[str, Inside]) -> Inside:
    from yaml import events

    kind = event.__class__
    if kind is events.AliasEvent:
        return anchors.get(event.anchor)
    node: Inside = None
    if kind is events.MappingStartEvent:
        node = {}
        while (key := following()).__class__ is not events.MappingEndEvent:
            _read(key, following, anchors)
            # the first of two duplicates is used; readers report the second one
            value = following()
            entry = MarkedEntry(key.start_mark, _read(value, following, anchors), _span(value))
            node.setdefault(_name(key), entry)
    elif kind is events.SequenceStartEvent:
        node = []
        while (item := following()).__class__ is not events.SequenceEndEvent:
            node.append(MarkedEntry(item.start_mark, _read(item, following, anchors), _span(item)))
    if event.anchor is not None:
        anchors[event.anchor] = node
    return node


def _span(event: Any) -> tuple[int, int] | None:
    """Return the span of a scalar on one line that has no anchor or tag."""
    if getattr(event, "style", "|") in ("|", ">") or event.anchor is not None or event.tag is not None:
        return None
    return event.start_mark.index, event.end_mark.index


def _name(key: Any) -> str:
    return written_key(key.value, key.implicit[0]) if hasattr(key, "value") else ""


def _step(node: Inside, part: str | int) -> MarkedEntry | None:
    entry: MarkedEntry | None = None
    if isinstance(node, dict):
        entry = node.get(str(part))
    elif isinstance(node, list) and isinstance(part, int) and 0 <= part < len(node):
        entry = node[part]
    return entry
