"""
Decode YAML from libyaml's events with this project's rules. Only this module imports `yaml`.

PyYAML's own loader reads YAML 1.1 (`no` is false, `1:30` is 90), and a later key silently replaces an equal
earlier key. This reader uses the parser's events and the rules of `scalars`. It must be fast: a manifest of
10,000 files has 200,000 events.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import Any, NoReturn

from ccm_agent.model import merge
from ccm_agent.model.errors import DocumentError, Place
from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.formats.scalars import CORE_TAG, SPECIAL_FIRST, key_text, plain_value, tagged_value

MAX_DEPTH = 100
"""Limit of nesting levels, because other code processes documents recursively."""

MAX_ALIASED = 1_000_000
"""
Limit of the values that aliases may add to a document. A few lines of nested aliases could otherwise expand
to billions.
"""

VALUE_CHARACTERS = 64
"""
This number of characters of an aliased text is treated as one value. The text is stored once, but written for
each alias.
"""

_CLOSE_PAIR = lazy_pattern(r"((?:[^:]|:/)+?):(?!/)(?:([\"'])([^\"'\\]+)\2|(.*))", re.DOTALL)

_LINE_BREAK = re.compile("[\x85\u2028\u2029]")
"""
Characters that are line breaks in YAML 1.1, and therefore in libyaml, but ordinary characters in YAML 1.2. A
text with them is ambiguous.
"""

_OPEN = object()  # the value of an anchor that is still being read


def read_yaml(text: str, source: str) -> object:
    """
    Return the first document of `text`; None if there is none.

    Later documents are ignored but must be valid, including their keys and aliases.

    Raises:
        DocumentError: The text is not YAML or violates the rules above; the error contains the place.
    """
    import yaml

    resting = gc.isenabled()
    gc.disable()  # garbage collection would repeatedly scan the growing heap without result
    try:
        if (found := _LINE_BREAK.search(text)) is not None:
            from ccm_agent.model.formats.yaml_errors import character_error

            raise character_error(text, source, found.start())
        return _Reader(text, source).read()
    except yaml.YAMLError as err:
        from ccm_agent.model.formats.yaml_errors import syntax_error

        raise syntax_error(text, source, err) from err
    finally:
        if resting:
            gc.enable()


class _Reader:
    """Reads one text. An instance cannot be reused."""

    def __init__(self, text: str, source: str) -> None:
        from yaml import events
        from yaml._yaml import CParser

        self.text = text
        self.source = source
        self.anchors: dict[str, object] = {}
        self.aliased = 0
        self.depth = 0
        self.next: Callable[[], Any] = CParser(text).get_event
        self.scalar = events.ScalarEvent
        self.alias = events.AliasEvent
        self.map_start = events.MappingStartEvent
        self.map_end = events.MappingEndEvent
        self.list_end = events.SequenceEndEvent
        self.document = events.DocumentStartEvent

    def read(self) -> object:
        documents: list[object] = []
        while (event := self.next()) is not None:
            if event.__class__ is self.document:
                documents.append(self._node(self.next()))
        return documents[0] if documents else None

    def _node(self, event: Any) -> object:
        kind = event.__class__
        if kind is self.scalar:
            return self._scalar(event)
        if kind is self.alias:
            return self._aliased_value(event)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self._fail(event, f"nested deeper than {MAX_DEPTH} levels; nothing reads such a document")
        is_mapping = kind is self.map_start
        if event.tag is not None and event.tag.startswith(CORE_TAG):
            self._check_tag(event, is_mapping)
        if event.anchor is not None:
            self.anchors[event.anchor] = _OPEN
        value = self._mapping(event) if is_mapping else self._sequence()
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        self.depth -= 1
        return value

    def _sequence(self) -> list[object]:
        items: list[object] = []
        following, list_end, node = self.next, self.list_end, self._node
        while (event := following()).__class__ is not list_end:
            items.append(node(event))
        return items

    def _mapping(self, start: Any) -> dict[str, object]:
        result: dict[str, object] = {}
        written: dict[str, Any] = {}  # the keys as written, with their events: `16` and `0x10` may both occur
        following, scalar, map_end = self.next, self.scalar, self.map_end
        while (event := following()).__class__ is not map_end:
            if event.__class__ is scalar and event.tag is None and event.anchor is None:
                raw = key = event.value
                if event.implicit[0] and (not raw or raw[0] in SPECIAL_FIRST):
                    key = key_text(plain_value(raw))
            else:
                raw = key = self._unusual_key(event)
            if raw in written:
                self._fail_duplicate(event, raw, written[raw])
            written[raw] = event
            value = following()
            if raw == "<<" and event.__class__ is scalar and event.implicit[0]:
                result.update(self._merged(value))
            elif value.__class__ is scalar and value.anchor is None and value.tag is None:
                text = value.value
                if not value.implicit[0]:
                    result[key] = _without_end(text, value.style) if text[-1:] == " " else text
                elif text and text[0] not in SPECIAL_FIRST:
                    result[key] = text
                elif not text and start.flow_style and (pair := self._close_pair(event, value)):
                    result[key_text(plain_value(pair[1].rstrip()))] = pair[3] or plain_value(pair[4])
                else:
                    result[key] = plain_value(text)
            else:
                result[key] = self._node(value)
        return result

    def _close_pair(self, key: Any, value: Any) -> re.Match[str] | None:
        """Split a plain key in `{ }` without a value: `{x:y}` means `{x: y}`. An address is not split."""
        if self.alias == key.__class__:
            return None
        if not key.implicit[0] or self.text[key.end_mark.index : value.start_mark.index].strip():
            return None
        return _CLOSE_PAIR.fullmatch(key.value)

    def _unusual_key(self, event: Any) -> str:
        if event.__class__ is self.scalar or event.__class__ is self.alias:
            value = self._node(event)
            if not isinstance(value, (dict, list)):
                return key_text(value)
        hint = "a key must be text"
        if event.__class__ is self.map_start and event.flow_style:
            hint += "; text that begins with `{{` or `{` needs quotes"
        return self._fail(event, hint)

    def _merged(self, event: Any) -> dict[str, object]:
        """Merge the value of `<<`. Keys that follow in the mapping replace merged keys, as in Choria CCM."""
        value = self._node(event)
        maps = value if isinstance(value, list) else [value]
        merged: dict[str, object] = {}
        for one in maps:
            if not isinstance(one, dict):
                self._fail(event, "`<<` requires a mapping, or a list of mappings")
            merged.update(one)
        return merged

    def _scalar(self, event: Any) -> object:
        text: str = event.value
        if event.tag is None and not event.implicit[0]:
            value: object = _without_end(text, event.style)
        elif event.tag is None:
            value = plain_value(text) if not text or text[0] in SPECIAL_FIRST else text
        else:
            try:
                value = tagged_value(event.tag, text, not event.style)
            except ValueError as err:
                self._fail(event, f"the tag does not fit: {err}")
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        return value

    def _aliased_value(self, event: Any) -> object:
        if event.anchor not in self.anchors:
            self._fail(event, f"there is no anchor `&{event.anchor}` before this alias")
        value = self.anchors[event.anchor]
        if value is _OPEN:
            return None
        size, levels = _measure(value)
        self.aliased += size
        if self.aliased > MAX_ALIASED:
            self._fail(event, f"aliases add more than {MAX_ALIASED:,} values to this document")
        if self.depth + levels > MAX_DEPTH:
            self._fail(
                event, f"nested deeper than {MAX_DEPTH} levels by aliases; nothing reads such a document"
            )
        if isinstance(value, (dict, list)):
            return merge.copy_value(value)  # copied, so a change to one does not change the other
        return value

    def _check_tag(self, event: Any, is_mapping: bool) -> None:
        name = event.tag.removeprefix(CORE_TAG)
        if name in ("map", "set") and not is_mapping:
            self._fail(event, f"the tag !!{name} needs a mapping")
        if name == "seq" and is_mapping:
            self._fail(event, "the tag !!seq needs a list")
        if name in ("str", "int", "float", "bool", "null", "timestamp", "binary"):
            self._fail(
                event, f"the tag !!{name} needs a single value, not a {'mapping' if is_mapping else 'list'}"
            )

    def _fail(self, event: Any, message: str) -> NoReturn:
        mark = event.start_mark
        raise DocumentError(message, place=Place(self.source, mark.line + 1, mark.column + 1))

    def _fail_duplicate(self, event: Any, key: str, first: Any) -> NoReturn:
        there = f"line {first.start_mark.line + 1}, column {first.start_mark.column + 1}"
        self._fail(event, f"the key `{key}` is a duplicate; it is first used at {there}")


def _without_end(text: str, style: str | None) -> str:
    """
    Remove the trailing spaces of a block text without a final newline, as in the reference. Other texts are
    unchanged.
    """
    return text.rstrip(" ") if style in ("|", ">") else text


def _measure(value: object) -> tuple[int, int]:
    """
    Return the number of values in a value, including itself, and the nesting of lists and mappings. A long
    text is treated as several values.
    """
    count, levels, waiting = 0, -1, [value]
    while waiting:
        below: list[object] = []
        count += len(waiting)
        for one in waiting:
            if isinstance(one, dict):
                below.extend(one.values() or (None,))
            elif isinstance(one, list):
                below.extend(one or (None,))
            elif isinstance(one, str):
                count += len(one) // VALUE_CHARACTERS
        waiting = below
        levels += 1
    return count, levels
