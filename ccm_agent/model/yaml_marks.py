"""Where things stand in a document. Slower than reading it, so only an error asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ccm_agent.model.scalars import written_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Inside = dict[str, Any] | list[Any] | None
"""What a mapping or a list holds, as entries; a scalar holds nothing."""


class MarkedEntry(NamedTuple):
    """Where a key or an item begins, and what stands there."""

    mark: Any
    inside: Inside


def find(text: str, path: Sequence[str | int]) -> tuple[int, int]:
    """
    Line and column, from 1, of the deepest part of `path` that is there; (0, 0) when the text cannot be read.

    JSON is found as well: but for a few escapes it is YAML.
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
        mark, node = entry
    return mark.line + 1, mark.column + 1


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
            # the first of two duplicates: the other one is what a reader complains about
            entry = MarkedEntry(key.start_mark, _read(following(), following, anchors))
            node.setdefault(_name(key), entry)
    elif kind is events.SequenceStartEvent:
        node = []
        while (item := following()).__class__ is not events.SequenceEndEvent:
            node.append(MarkedEntry(item.start_mark, _read(item, following, anchors)))
    if event.anchor is not None:
        anchors[event.anchor] = node
    return node


def _name(key: Any) -> str:
    return written_key(key.value, key.implicit[0]) if hasattr(key, "value") else ""


def _step(node: Inside, part: str | int) -> MarkedEntry | None:
    entry: MarkedEntry | None = None
    if isinstance(node, dict):
        entry = node.get(str(part))
    elif isinstance(node, list) and isinstance(part, int) and 0 <= part < len(node):
        entry = node[part]
    return entry
