"""
TinyCM's definitions: their keys, the merge of duplicate definitions, and their order.

The id of a definition consists of its type and name: `file::/etc/motd`. Definitions with the same id must not
contradict each other.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.manifest.tinycm.manifest import KEYS, ManifestPart, collect_constants, read_parts
from ccm_agent.model.errors import ManifestError, Place
from ccm_agent.model.suggestions import did_you_mean

if TYPE_CHECKING:
    from ccm_agent.manifest.document import ManifestDocument

NOT_HERE = {
    "user": "create users with an `exec` in a CCM manifest",
    "git": "fetch with an `archive` in a CCM manifest",
    "link": "create links with an `exec` in a CCM manifest",
    "import": "copy the module's definitions here",
}
"""TinyCM's types that are not supported, with the alternative for each."""

WORDS = {
    ("file", "ensure"): ("contents", "exists", "removed", "deleted"),
    ("file", "type"): ("constant", "http", "template"),
    ("package", "ensure"): ("installed", "removed"),
    ("package", "packagemanager"): ("autodetect", "apt"),
}

MASK = "permission-mask"
_MASK = re.compile(r"0?([0-7xX]{3})")
_LEADING_ZERO = re.compile(r"permission[-_]mask['\"]?\s*:\s*0[0-7]")


class ResourceDefinition(Struct, kw_only=True):
    """
    One managed object.

    Attributes:
        type, name: Type and name of the object.
        said: The properties as written.
        after: Ids of the definitions that must come before it.
        parts: The documents that define it.
    """

    type: str
    name: str
    said: dict[str, Any]
    after: list[str]
    parts: list[ManifestPart]

    @property
    def id(self) -> str:
        """Return the id, `type::name`."""
        return f"{self.type}::{self.name}"


def read_definitions(
    document: ManifestDocument, hostname: Callable[[], str]
) -> tuple[dict[str, Any], list[ResourceDefinition]]:
    """
    Return the constants that apply on a host, and the definitions in the order in which they are applied. Blocking.

    Args:
        document: The manifest.
        hostname: Returns the host's name; called only if there are filters.

    Raises:
        InputError: The manifest is invalid or not supported.
    """
    header, parts = read_parts(document)
    if not parts:
        raise ManifestError(
            "the manifest has no definitions: add a document after the header", place=Place(document.name)
        )
    return collect_constants(header, hostname), merge_definitions(parts)


def merge_definitions(parts: Sequence[ManifestPart]) -> list[ResourceDefinition]:
    """
    Return the merged definitions, in the order in which they are applied.

    Raises:
        InputError: A definition is invalid, definitions contradict each other, or their order is circular.
    """
    found: dict[str, ResourceDefinition] = {}
    for part in parts:
        for one in _definitions_in(part):
            if one.id in found:
                _merge(found[one.id], one)
            else:
                found[one.id] = one
    return _ordered(found)


def _definitions_in(part: ManifestPart) -> Iterator[ResourceDefinition]:
    """Yield the definitions of one document. There are several if `name` is a list."""
    if len(part.value) != 1:
        kind = part.value.get("type") if "name" in part.value else None
        written = f"`{kind}: {{name: …}}`" if kind in KEYS else "`file: {name: …}`"
        part.fail(f"a definition must be one type with its properties: write {written}")
    kind, body = next(iter(part.value.items()))
    if kind not in KEYS:
        if kind in NOT_HERE:
            part.fail(
                f"TinyCM's `{kind}` definitions are not supported: {NOT_HERE[kind]}", kind, kind=ManifestError
            )
        part.fail(f"there is no definition `{kind}`{did_you_mean(kind, KEYS)}", kind, kind=ManifestError)
    if not isinstance(body, dict):
        part.fail(f"`{kind}` needs a mapping of properties", kind)
    said = {key.replace("_", "-"): value for key, value in body.items() if value is not None}
    _check(part, kind, said)
    after = said.pop("after", [])
    names = said.pop("name")
    for name in names if isinstance(names, list) else [names]:
        yield ResourceDefinition(
            type=kind,
            name=name,
            said=dict(said),
            after=[after] if isinstance(after, str) else list(after),
            parts=[part],
        )


def _check(part: ManifestPart, kind: str, said: dict[str, Any]) -> None:
    for key, value in said.items():
        if key == "if":
            part.fail("`if` is not supported: use `control` in a CCM manifest", kind, key, kind=ManifestError)
        if key not in KEYS[kind]:
            part.fail(f"unknown key `{key}`{did_you_mean(key, KEYS[kind])}", kind, key)
        words = WORDS.get((kind, key))
        if words is not None and value not in words:
            either = ", ".join(words)
            part.fail(f"`{key}` is `{value}`, but must be one of {either}", kind, key)
    names = said.get("name")
    if not names or not (isinstance(names, str) or _are_texts(names)):
        part.fail("`name` is missing: it must be a string or a list of strings", kind)
    if not isinstance(said.get("after", ""), str) and not _are_texts(said["after"]):
        part.fail("`after` must be a string such as file::/etc/motd, or a list of strings", kind, "after")
    if not isinstance(said.get("interpolate", False), bool):
        part.fail("`interpolate` must be true or false", kind, "interpolate")
    for key in ("owner", "group"):
        if isinstance(said.get(key, ""), (bool, float, list, dict)):
            part.fail(f"`{key}` must be a name or a number", kind, key)
        if key in said:
            said[key] = str(said[key])
    if isinstance(said.get("contents", ""), (list, dict)):
        part.fail("`contents` must be text", kind, "contents")
    if MASK in said:
        said[MASK] = _mask(part, kind, said[MASK])


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one for one in value)


def _mask(part: ManifestPart, kind: str, value: Any) -> str:
    """Return a mode as three digits or `x`. YAML reads unquoted digits as a number."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:03o}" if _LEADING_ZERO.search(part.text) else str(value)
    found = _MASK.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        part.fail(
            f"`{MASK}` is `{value}`, but must be three digits from 0 to 7, with x for any digit, such as 7xx",
            kind,
            MASK,
        )
    return found[1].lower()


# ---- duplicate definitions ----


def _merge(one: ResourceDefinition, other: ResourceDefinition) -> None:
    """Merge two definitions into one, or raise an error if they contradict each other."""
    for key, value in other.said.items():
        if key == MASK and key in one.said:
            one.said[key] = _merge_masks(one, other)
        elif one.said.setdefault(key, value) != value:
            _conflict(one, other, f"`{key}`")
    one.after += [identifier for identifier in other.after if identifier not in one.after]
    one.parts += other.parts


def _merge_masks(one: ResourceDefinition, other: ResourceDefinition) -> str:
    digits = []
    for whose, mine, theirs in zip(
        ("user", "group", "others"), one.said[MASK], other.said[MASK], strict=True
    ):
        if "x" not in (mine, theirs) and mine != theirs:
            _conflict(one, other, f"`{MASK}` for {whose}")
        digits.append(theirs if mine == "x" else mine)
    return "".join(digits)


def _conflict(one: ResourceDefinition, other: ResourceDefinition, what: str) -> None:
    lines = ", ".join(str(part.line) for part in one.parts)
    other.parts[0].fail(
        f"{one.id} is defined twice with different {what}: here and on line {lines}; make them equal",
        kind=ManifestError,
    )


# ---- order ----


def _ordered(found: dict[str, ResourceDefinition]) -> list[ResourceDefinition]:
    """Return the definitions in the order of declaration, each after the definitions that it depends on."""
    numbers = {identifier: number for number, identifier in enumerate(found)}
    waits = {identifier: set(one.after) for identifier, one in found.items()}
    behind: dict[str, list[str]] = {}
    for identifier, one in found.items():
        for earlier in waits[identifier]:
            if earlier not in found:
                hint = did_you_mean(earlier, found)
                one.parts[0].fail(
                    f"{identifier} comes after `{earlier}`, which is not defined{hint}", kind=ManifestError
                )
            behind.setdefault(earlier, []).append(identifier)
    ready = [numbers[identifier] for identifier, needs in waits.items() if not needs]
    heapq.heapify(ready)
    names, order = list(found), []
    while ready:
        identifier = names[heapq.heappop(ready)]
        order.append(found[identifier])
        for later in behind.get(identifier, ()):
            waits[later].discard(identifier)
            if not waits[later]:
                heapq.heappush(ready, numbers[later])
    if len(order) < len(found):
        stuck = [identifier for identifier, needs in waits.items() if needs]
        found[stuck[0]].parts[0].fail(f"dependency cycle: {', '.join(stuck)}", kind=ManifestError)
    return order
