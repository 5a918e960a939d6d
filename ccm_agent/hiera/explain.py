"""
Explain the origin of a value in a node's data: every layer of every document that could set it, in merge order.

It reads and merges the same layers as `resolve.py`, so the final value is the value on the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.hiera import rules
from ccm_agent.hiera.precedence import reversals
from ccm_agent.hiera.resolve import DATA_KEY, Layer, read_layers
from ccm_agent.model import codec, merge
from ccm_agent.model.data import DataRule, Hierarchy, Merge, Resolved
from ccm_agent.model.errors import DataError, Place

_MISSING = object()

REVERSALS_TOLD = 3
"""The maximum number of warnings about one document. A wrong order usually affects many keys."""


class LayerEffect(StrEnum):
    """The effect of a layer on one key."""

    WINS = "wins"
    """The layer sets the value."""
    MERGED = "merged"
    """The layer's mapping or list is part of the value."""
    OVERRIDDEN = "overridden"
    """The layer has the key, but a later layer replaced its value."""
    REMOVES = "removes"
    """The layer replaces the mapping that contained the key, without the key."""
    NO_KEY = "has no such key"
    ABSENT = "no such override"
    UNNAMED = "names no override"
    """Every expression in the entry renders to "", because the node does not have the facts."""
    NOT_REACHED = "not reached"
    """With `merge: first`, an earlier override was used."""


_NOT_THERE = frozenset((LayerEffect.ABSENT, LayerEffect.UNNAMED, LayerEffect.NOT_REACHED))


class SourceDocument(Struct, frozen=True, kw_only=True):
    """A document: its name in errors, its text, and its revision in a bucket (0 if it is not from a bucket)."""

    name: str
    text: str
    revision: int = 0


class Candidate(Struct, frozen=True, kw_only=True):
    """
    One layer that could set the value.

    Attributes:
        document: Name of the document.
        revision: Its revision.
        merge: How the document merges its overrides: "first" or "deep"; "" when it has no hierarchy.
        entry: The entry of the order as written; "" for the base data.
        layer: "data", or the override's name.
        line: The line of the key in the document, or else of the layer; 0 if the document contains neither.
        effect: The effect of the layer on the value.
        value: The value in the layer; None if the layer does not set it.
    """

    document: str
    revision: int = 0
    merge: str = ""
    entry: str = ""
    layer: str = ""
    line: int = 0
    effect: LayerEffect = LayerEffect.NO_KEY
    value: Any = None


class Explained(Struct, frozen=True, kw_only=True):
    """
    The origin of a value.

    Attributes:
        key: The requested key, as a dotted path.
        is_found: Whether the node has the key.
        value: Its value; None if the node does not have the key.
        candidates: Every layer, in merge order; later layers take precedence.
        rules: The validation rules for the key, from comments.
        broken: The violated rules, as sentences that do not contain the value.
        warnings: Probable mistakes in the documents.
        secret: Keys that the documents declare secret.
    """

    key: tuple[str, ...]
    is_found: bool
    value: Any = None
    candidates: tuple[Candidate, ...] = ()
    rules: tuple[DataRule, ...] = ()
    broken: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()


def explain(key: str, sources: Sequence[SourceDocument], facts: Mapping[str, Any]) -> Explained:
    """
    Explain the origin of a key's value.

    Args:
        key: The path of the key, joined by dots. Keys that contain dots are supported.
        sources: The documents. Each is deep-merged over the documents before it, as in a run.
        facts: The node's facts.

    Raises:
        CcmError: A document cannot be read or resolved with these facts.
    """
    tale = _Tale(key)
    demands: list[DataRule] = []
    warnings: list[str] = []
    for source in sources:
        before = len(tale.candidates)
        tale.add(source, facts)
        if len(tale.candidates) == before:
            warnings.append(f"{source.name}: has neither `data` nor `overrides`, so it provides no data")
        found, doubtful = rules.read_rules(source.text, source.name)
        demands += found
        warnings += doubtful
        warnings += _reversed(source, tale.root, tale.candidates[before:], tale.path)
    path = tale.path
    mine = tuple(rule for rule in demands if rule.path == path)
    return Explained(
        key=path,
        is_found=tale.value is not _MISSING,
        value=None if tale.value is _MISSING else tale.value,
        candidates=tuple(tale.candidates),
        rules=mine,
        broken=tuple(_broken(tale.data, mine)),
        warnings=tuple(warnings),
        secret=tuple(tale.secret),
    )


def merged_data(sources: Sequence[SourceDocument], facts: Mapping[str, Any]) -> Resolved:
    """
    Return the data of a node from these documents, each deep-merged over the documents before it, with all keys
    that a document declares secret.

    Raises:
        CcmError: A document cannot be read or resolved with these facts.
    """
    tale = _Tale("")
    for source in sources:
        tale.add(source, facts)
    return Resolved(data=tale.data, secret=tuple(tale.secret))


def _reversed(
    source: SourceDocument, root: object, candidates: Sequence[Candidate], path: tuple[str, ...]
) -> list[str]:
    """Return warnings about the order of a document, if it affected the value of this key on this node."""
    there = {candidate.layer for candidate in candidates if candidate.effect not in _NOT_THERE}
    sentences = (
        f"{source.name}: {reversal}"
        for reversal in reversals(root)
        if {reversal.general, reversal.specific} <= there
        and reversal.path[: len(path)] == path[: len(reversal.path)]
    )
    return list(islice(sentences, REVERSALS_TOLD))


def _broken(data: Mapping[str, Any], demands: Sequence[DataRule]) -> list[str]:
    sentences = []
    for rule in demands:
        try:
            rules.check(data, [rule])
        except DataError as err:
            sentences.append(str(err))
    return sentences


class _Tale:
    """The merged data so far, and the effect of each layer on one key. `root` is the last added document."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.root: object = None
        self.data: dict[str, Any] = {}
        self.candidates: list[Candidate] = []
        self.secret: dict[str, None] = {}
        self._givers: list[int] = []
        self._has_order = False

    @property
    def path(self) -> tuple[str, ...]:
        return find_path(self.data, self.key) or tuple(self.key.split("."))

    @property
    def value(self) -> Any:
        return _at(self.data, self.key)

    def add(self, source: SourceDocument, facts: Mapping[str, Any]) -> None:
        """Merge a document over the data so far."""
        self.root = root = codec.decode_document(source.text, source.name)
        hierarchy, layers = read_layers(root, facts, source.name, source.text)
        self._has_order = isinstance(root, Mapping) and "hierarchy" in root
        self.secret |= dict.fromkeys(hierarchy.secret)
        own: dict[str, Any] = {}
        outer, self._givers = self._givers, []
        begin, seen = len(self.candidates), 0
        for layer in layers:
            seen += bool(layer.entry)
            if layer.data is None:
                if self._has_order:
                    effect = LayerEffect.UNNAMED if layer.name is None else LayerEffect.ABSENT
                    self._note(source, hierarchy, layer, effect)
                continue
            is_first = hierarchy.merge == Merge.FIRST and layer.name is not None
            old, own = own, (merge.shallow if is_first else merge.deep)(own, layer.data)
            self._judge(source, hierarchy, layer, old, own)
            if is_first:
                break
        for entry in hierarchy.order[seen:] if self._has_order else ():
            self._note(
                source, hierarchy, Layer(entry=entry, path=("hierarchy", "order")), LayerEffect.NOT_REACHED
            )
        self._go_over(outer, own, begin)

    def _judge(
        self,
        source: SourceDocument,
        hierarchy: Hierarchy,
        layer: Layer,
        old: Mapping[str, Any],
        own: Mapping[str, Any],
    ) -> None:
        """Return the effect of a layer on the document's own value."""
        assert layer.data is not None
        was, mine = _at(old, self.key), _at(layer.data, self.key)
        if mine is _MISSING:
            is_gone = was is not _MISSING and _at(own, self.key) is _MISSING
            if is_gone:
                self._replaced()
            self._note(source, hierarchy, layer, LayerEffect.REMOVES if is_gone else LayerEffect.NO_KEY)
            return
        if hierarchy.merge == Merge.FIRST or not _join(was, mine):
            self._replaced()
        self._givers.append(len(self.candidates))
        self._note(source, hierarchy, layer, LayerEffect.WINS, mine)
        if len(self._givers) > 1:
            self._settle(LayerEffect.MERGED)

    def _go_over(self, outer: list[int], own: Mapping[str, Any], begin: int) -> None:
        """Merge the document's own data over the data of the documents before it."""
        was, mine = self.value, _at(own, self.key)
        self.data = merge.deep(self.data, own)
        givers = self._givers
        if mine is _MISSING:
            self._givers = outer
            if was is not _MISSING and self.value is _MISSING:
                self._replaced()
                for place in range(begin, len(self.candidates)):
                    if self.candidates[place].effect == LayerEffect.NO_KEY:
                        self.candidates[place] = replace(self.candidates[place], effect=LayerEffect.REMOVES)
            return
        if _join(was, mine):
            self._givers = outer + givers
            self._settle(LayerEffect.MERGED)
            return
        self._givers = outer
        self._replaced()
        self._givers = givers

    def _replaced(self) -> None:
        self._settle(LayerEffect.OVERRIDDEN)
        self._givers = []

    def _settle(self, effect: LayerEffect) -> None:
        for place in self._givers:
            self.candidates[place] = replace(self.candidates[place], effect=effect)

    def _note(
        self,
        source: SourceDocument,
        hierarchy: Hierarchy,
        layer: Layer,
        effect: LayerEffect,
        value: object = _MISSING,
    ) -> None:
        self.candidates.append(
            Candidate(
                document=source.name,
                revision=source.revision,
                merge=hierarchy.merge if self._has_order else "",
                entry=layer.entry,
                layer=DATA_KEY if not layer.entry else layer.name or "",
                line=_place(source, layer, self.key, has_key=value is not _MISSING).line,
                effect=effect,
                value=None if value is _MISSING else value,
            )
        )


def _place(source: SourceDocument, layer: Layer, key: str, *, has_key: bool) -> Place:
    if layer.data is None:
        return Place()
    inner = find_path(layer.data, key) if has_key else ()
    return codec.locate(source.text, (*layer.path, *(inner or ())), source.name)


def _join(old: object, new: object) -> bool:
    """Whether a deep merge combines both values instead of replacing one."""
    return (isinstance(old, dict) and isinstance(new, dict)) or (
        isinstance(old, list) and isinstance(new, list)
    )


def find_path(data: object, key: str) -> tuple[str, ...] | None:
    """Split a dotted path into keys that exist in the data. Keys that contain dots take precedence."""
    if not isinstance(data, Mapping):
        return None
    if key in data:
        return (key,)
    for place, char in enumerate(key):
        if char == "." and key[:place] in data:
            rest = find_path(data[key[:place]], key[place + 1 :])
            if rest is not None:
                return (key[:place], *rest)
    return None


def _at(data: Any, key: str) -> Any:
    path = find_path(data, key)
    if path is None:
        return _MISSING
    for part in path:
        data = data[part]
    return data
