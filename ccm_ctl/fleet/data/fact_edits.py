"""Change assigned facts by path, and wait until online nodes have received them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from ccm_agent.bus.subjects import fact_text
from ccm_agent.model.errors import InputError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.model.wire import NodeRecord
from ccm_agent.templates.fact_texts import fact_paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ccm_ctl.fleet.ports import Fleet

LISTING = "ccmctl facts show NODE --assigned"

TAKEN_WITHIN_S = 5.0
"""Seconds to wait for online nodes. A busy or distant node may receive its facts later."""

LOOK_AGAIN_S = 0.25
"""Seconds between two reads of nodes' records. They are polled because the broker sends no notification of changes."""

AT_ONCE = 500
"""The maximum number of records read per request."""


def with_facts(facts: Mapping[str, Any] | None, changes: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the facts with changed values, each by its dotted path.

    Raises:
        InputError: A path is not valid, or leads through a fact that is not a mapping.
    """
    changed = _copied(facts or {})
    for path, value in changes.items():
        here = changed
        *outer, last = _parts(path)
        for part in outer:
            inner = here.setdefault(part, {})
            if not isinstance(inner, dict):
                raise InputError(f"{path}: the fact {part} is {inner!r}, not a mapping; unset it first")
            here = inner
        here[last] = value
    return changed


def without_facts(facts: Mapping[str, Any] | None, paths: Iterable[str]) -> dict[str, Any]:
    """
    Return the facts without those at the given dotted paths. Mappings that become empty are also removed.

    Raises:
        InputError: A path is not assigned.
    """
    changed = _copied(facts or {})
    for path in paths:
        if not _remove(changed, _parts(path)):
            hint = did_you_mean(path, fact_paths(changed)) or f"; see `{LISTING}`"
            raise InputError(f"{path}: not assigned{hint}")
    return changed


async def wait_taken(fleet: Fleet, wanted: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """
    Wait until nodes route their assigned facts. Returns the nodes that did not do so in time.

    Args:
        fleet: The bus.
        wanted: All assigned facts of each node.
    """
    open_nodes = {node: dict(flat_facts(facts)) for node, facts in wanted.items()}
    try:
        async with asyncio.timeout(TAKEN_WITHIN_S):
            while True:
                for node in await _taken(fleet, open_nodes):
                    del open_nodes[node]
                if not open_nodes:
                    return []
                await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError:
        return sorted(open_nodes)


async def _taken(fleet: Fleet, wanted: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the nodes that route their assigned facts."""
    names, found = list(wanted), []
    for first in range(0, len(names), AT_ONCE):
        keys = [f"node.{name}" for name in names[first : first + AT_ONCE]]
        for entry in await fleet.nodes.matching(keys):
            node = entry.key.removeprefix("node.")
            try:
                has = decode_foreign(entry.value, NodeRecord).facts
            except msgspec.MsgspecError:
                continue
            if all(has.get(path) == value for path, value in wanted[node].items()):
                found.append(node)
    return found


def flat_facts(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return the routed values of assigned facts, by path: text, integers and booleans."""
    found: list[tuple[str, Any]] = []
    for key, value in facts.items():
        if isinstance(value, dict):
            found += flat_facts(value, f"{prefix}{key}.")
        elif fact_text(value) is not None:
            found.append((f"{prefix}{key}", value))
    return found


def _parts(path: str) -> list[str]:
    parts = path.split(".")
    if not all(parts):
        raise InputError(f"{path!r}: not the name of a fact; write it like role or site.rack")
    return parts


def _copied(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copied(value) if isinstance(value, dict) else value for key, value in facts.items()}


def _remove(facts: dict[str, Any], parts: list[str]) -> bool:
    first, *rest = parts
    if first not in facts:
        return False
    if not rest:
        del facts[first]
        return True
    inner = facts[first]
    if not isinstance(inner, dict) or not _remove(inner, rest):
        return False
    if not inner:
        del facts[first]
    return True
