"""
YAML text to values, through libyaml's events and rules of ours; the only importer of `yaml`.

PyYAML's own loader reads YAML 1.1 (`no` is false, `1:30` is 90) and lets a later key silently replace an earlier one. This one
takes the parser's events and gives what `scalars` says. It aims at speed: a manifest of 10,000 files is 200,000 events.
"""

from __future__ import annotations

import copy
import gc
import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ccm_agent.model.errors import DocumentError, Place
from ccm_agent.model.scalars import CORE_TAG, SPECIAL_FIRST, key_text, plain_value, tagged_value

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

MAX_DEPTH = 100
"""Levels of nesting; what walks a document later does so by recursion."""

MAX_ALIASED = 1_000_000
"""Values that aliases may add to a document in all: a few lines of nested aliases can otherwise stand for billions."""

MAX_MENDS = 1_000
"""Places where libyaml stumbles over what is right; each costs another pass, so there is an end to it."""

_OPEN = object()  # the value of an anchor whose own text is not over yet
_BARE_DOCUMENT = re.compile(r"^\.\.\.[ \t]*(?:#[^\n]*)?\r?\n(?:[ \t]*(?:#[^\n]*)?\r?\n)*\Z", re.MULTILINE)
_SURROGATES = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def read_yaml(text: str, source: str) -> object:
    """
    The first document of `text`; None when there is none.

    Later documents are not used but must parse.

    Raises:
        DocumentError: With its place, when the text is not YAML or breaks the rules above.
    """
    resting = gc.isenabled()
    gc.disable()  # it would walk a growing heap of values again and again, and find nothing
    try:
        mender = Mender(text, source)
        return mender.restore(mender.read(lambda mended: _Reader(mended, source).read()))
    finally:
        if resting:
            gc.enable()


class _Reader:
    """One pass over one text; not to be used again."""

    def __init__(self, text: str, source: str) -> None:
        from yaml import events
        from yaml._yaml import CParser

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
        self.next()  # the start of the stream
        value: object = None
        if self.next().__class__ is self.document:
            value = self._node(self.next())
            while self.next() is not None:
                pass
        return value

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
        written: dict[
            str, Any
        ] = {}  # as the keys stand in the text, with their events: `16` and `0x10` may both stand there
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
                if not value.implicit[0] or (text and text[0] not in SPECIAL_FIRST):
                    result[key] = text
                elif not text and start.flow_style and ":" in raw and _touch(event, value):
                    key, _, text = raw.partition(":")  # {x:y} means what {x: y} means
                    result[key] = plain_value(text)
                else:
                    result[key] = plain_value(text)
            else:
                result[key] = self._node(value)
        return result

    def _unusual_key(self, event: Any) -> str:
        if event.__class__ is self.scalar or event.__class__ is self.alias:
            value = self._node(event)
            if not isinstance(value, (dict, list)):
                return key_text(value)
        hint = "a key must be a single text"
        if event.__class__ is self.map_start and event.flow_style:
            hint += "; text that begins with `{{` or `{` needs quotes"
        return self._fail(event, hint)

    def _merged(self, event: Any) -> dict[str, object]:
        """What `<<` brings; what stands later in the mapping replaces it, as the reference has it."""
        value = self._node(event)
        maps = value if isinstance(value, list) else [value]
        merged: dict[str, object] = {}
        for one in maps:
            if not isinstance(one, dict):
                self._fail(event, "`<<` takes a mapping, or a list of mappings")
            merged.update(one)
        return merged

    def _scalar(self, event: Any) -> object:
        text: str = event.value
        if event.tag is None:
            value = (
                plain_value(text) if event.implicit[0] and (not text or text[0] in SPECIAL_FIRST) else text
            )
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
            self._fail(event, f"no anchor `&{event.anchor}` stands before this alias")
        value = self.anchors[event.anchor]
        if value is _OPEN:
            return None
        if isinstance(value, (dict, list)):
            self.aliased += _size(value)
            if self.aliased > MAX_ALIASED:
                self._fail(event, f"aliases add more than {MAX_ALIASED:,} values to this document")
            return copy.deepcopy(value)  # who changes one must not change the other
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
        self._fail(
            event, f"the key `{key}` stands here a second time: it is already at {there}; remove one of them"
        )


def _touch(key: Any, value: Any) -> bool:
    return bool(value.start_mark.index == key.end_mark.index)


def _size(value: object) -> int:
    """How many values are in it, itself included."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        count += 1
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
    return count


class Mender:
    """
    Rewrites what libyaml refuses although it is right, in the one place where it did.

    A pair of `\\u` escapes for one character becomes one escape. A tab at the head of a block scalar's first line, after its
    indentation, is content; a private character stands in for it until the values are there. A document may follow the end of
    another without a mark of its own. Lines stay where they are.
    """

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.tab = ""
        self.complaint: DocumentError | None = None

    def read(self, reader: Callable[[str], T]) -> T:
        """
        What `reader` makes of the text, mended as often as it takes.

        Raises:
            DocumentError: The text is wrong indeed.
        """
        import yaml

        for _ in range(MAX_MENDS):
            try:
                return reader(self.text)
            except yaml.YAMLError as err:
                self._mend(err)
        message = f"more than {MAX_MENDS:,} escaped surrogate pairs: write the characters themselves"
        raise DocumentError(message, place=Place(self.source))

    def _mend(self, err: Any) -> None:
        mark = getattr(err, "problem_mark", None)
        problem = str(getattr(err, "problem", ""))
        if mark is not None and "Unicode character escape" in problem:
            if found := _SURROGATES.search(self.text, max(0, mark.index - 2), mark.index + 12):
                char = 0x10000 + ((int(found[1], 16) - 0xD800) << 10) + (int(found[2], 16) - 0xDC00)
                self.text = f"{self.text[: found.start()]}\\U{char:08x}{self.text[found.end() :]}"
                return
        elif mark is not None and mark.column > 0 and "tab character where an indentation" in problem:
            self.tab = self.tab or next(
                char for char in map(chr, range(0xE000, 0xF8FF)) if char not in self.text
            )
            self.complaint = _syntax_error(self.text, self.source, err)
            self.text = self.text[: mark.index] + self.tab + self.text[mark.index + 1 :]
            return
        elif mark is not None and "<document start>" in problem and (end := self._end_before(mark)) >= 0:
            self.text = f"{self.text[:end]}---{self.text[end + 3 :]}"
            return
        raise self.complaint or _syntax_error(self.text, self.source, err) from err

    def _end_before(self, mark: Any) -> int:
        """Where the `...` stands that ended a document just before a mark; -1 when none did."""
        found = _BARE_DOCUMENT.search(self.text[: mark.index])
        return found.start() if found else -1

    def restore(self, value: object) -> object:
        """The values with every tab back in its place."""
        return _replace(value, self.tab, "\t") if self.tab else value


def _replace(value: object, old: str, new: str) -> object:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, list):
        return [_replace(one, old, new) for one in value]
    if isinstance(value, dict):
        return {key: _replace(one, old, new) for key, one in value.items()}
    return value


_SENTENCES = (
    ("unexpected end of stream", "the quotes that open here are not closed"),
    (
        "mapping values are not allowed",
        "`: ` cannot stand here: put the value in quotes, or mend the indentation",
    ),
    ("expected ',' or ']'", "the list that opens with `[` is not closed, or a comma is missing"),
    ("expected ',' or '}'", "the mapping that opens with `{` is not closed, or a comma is missing"),
    (
        "did not find expected '-' indicator",
        "this does not belong to the list around it: mend the indentation or add `- `",
    ),
    (
        "did not find expected key",
        "a key was expected here: mend the indentation, or put the value before it in quotes",
    ),
    (
        "could not find expected ':'",
        "this line is no `key: value`: mend the indentation, or put the text in quotes",
    ),
    (
        "did not find expected <document start>",
        "the document has ended here, and this does not belong to it: mend the indentation",
    ),
    (
        "block sequence entries are not allowed",
        "a list item cannot stand here: put it on a line of its own, with the right indentation",
    ),
    (
        "unknown escape character",
        "no such escape in double quotes; write \\\\ for a backslash, or use single quotes",
    ),
    (
        "did not find expected hexdecimal number",
        "an escape with \\x, \\u or \\U needs 2, 4 or 8 hexadecimal digits",
    ),
    ("invalid Unicode character escape", "this escape is no character"),
    ("indentation indicator equal to 0", "the digit after `|` or `>` is the indentation, from 1 to 9"),
    ("expected node content", "a value was expected here"),
    (
        "control characters are not allowed",
        "a control character stands in the text; write it as an escape in double quotes",
    ),
)


def _syntax_error(text: str, source: str, err: Any) -> DocumentError:
    problem = str(getattr(err, "problem", None) or getattr(err, "reason", None) or err)
    mark = getattr(err, "problem_mark", None)
    opened = getattr(err, "context_mark", None)
    if opened is not None and ("unexpected end of stream" in problem or "expected ','" in problem):
        mark = opened  # what was never closed is mended where it opens
    if mark is None:
        return DocumentError(_sentence(problem, "", ""), place=_reader_place(text, source, err))
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    message = _sentence(problem, line, line[mark.column : mark.column + 1])
    return DocumentError(message, place=Place(source, mark.line + 1, mark.column + 1))


def _sentence(problem: str, line: str, char: str) -> str:
    indentation = line[: len(line) - len(line.lstrip())]
    if "\t" in indentation:
        return "a tab cannot be used for indentation: use spaces"
    if "cannot start any token" in problem:
        what = "a tab" if char == "\t" else "a backtick" if char == "`" else f"`{char}`"
        return f"{what} cannot begin plain text: put the value in quotes"
    message = next((sentence for words, sentence in _SENTENCES if words in problem), problem)
    if "{{" in line or "${" in line:
        message += "; a value with an expression in it is safest in quotes"
    return message


def _reader_place(text: str, source: str, err: Any) -> Place:
    # libyaml's reader counts bytes
    before = text.encode()[: max(0, getattr(err, "position", 0) or 0)].decode(errors="ignore")
    return Place(source, before.count("\n") + 1, len(before) - before.rfind("\n"))
