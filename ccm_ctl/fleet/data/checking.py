"""
Check whether Hiera data would break its own rules on any node, before it is stored.

A rule applies to the merged data of a node, which depend on its hierarchy, its facts, and the documents that are read together.
The check therefore runs for every node, with all documents of the assignments that read the checked document.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ccm_agent.bus.subjects import owner_of
from ccm_agent.hiera import resolve, rules
from ccm_agent.hiera.resolve import read_layers
from ccm_agent.hiera.rules import read_rules
from ccm_agent.model import merge
from ccm_agent.model.codec import decode_document
from ccm_agent.model.data import DataRule, Merge
from ccm_agent.model.errors import CcmError
from ccm_ctl.fleet.assignments.assignments import read_assignments
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.nodes.inventory import read_facts, read_inventory
from ccm_ctl.fleet.ports import Fleet

BUCKET = "CCM_DATA"
URL = f"kv://{BUCKET}/"


class Broken(Struct, frozen=True, kw_only=True):
    """
    A rule that a document would break.

    Attributes:
        sentence: The problem, with document and line but without values.
        nodes: The affected nodes, sorted.
        layers: The overrides that apply to the first of these nodes.
        assignment: The assignment that reads the document there. "": no assignment reads it, and it was checked separately.
    """

    sentence: str
    nodes: tuple[str, ...]
    layers: tuple[str, ...] = ()
    assignment: str = ""


class DataCheck(Struct, frozen=True, kw_only=True):
    """
    The result of a check.

    Attributes:
        broken: The broken rules.
        nodes: The number of checked nodes.
        skipped: Assignments that were not checked, because they read documents outside of the bucket.
    """

    broken: tuple[Broken, ...] = ()
    nodes: int = 0
    skipped: tuple[str, ...] = ()


class _Document:
    """A document, decoded once for all nodes."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.root = decode_document(text, name)
        self.rules, _ = read_rules(text, name)


class _Reading(Struct, frozen=True):
    """Documents that some nodes read together, in order, for an assignment ("" if there is no assignment)."""

    assignment: str
    documents: list[_Document]
    nodes: dict[str, dict[str, Any]]


async def check_data(fleet: Fleet, key: str, text: str, source: str) -> DataCheck:
    """
    Check a document on every node.

    Args:
        fleet: The bus.
        key: The key under which it will be stored.
        text: The document.
        source: Its name in messages, such as a file name.

    Raises:
        DocumentError: It does not parse.
    """
    new = _Document(source, text)
    inventory = await read_inventory(fleet)
    if "{" in text:  # without a brace there is no expression, and no facts are needed
        await read_facts(fleet, inventory, inventory.nodes)
    assignments = await read_assignments(fleet)
    await assignments.fill_in(fleet, inventory)
    readings: list[_Reading] = []
    skipped = []
    url = f"{URL}{key}"
    for standing in assignments.standing:
        if url not in standing.assignment.data:
            continue
        nodes = {
            node.name: node.facts
            for node in inventory.nodes.values()
            if (counts := assignments.of_node(node).get(standing.name)) and counts.key == standing.key
        }
        documents = await _read_together(fleet, standing.assignment.data, url, new)
        if documents is None:
            skipped.append(standing.name)
        else:
            readings.append(_Reading(standing.name, documents, nodes))
    if not readings and not skipped:
        readers = [node for node in inventory.nodes.values() if owner_of(key) in ("", node.name)]
        readings = [_Reading("", [new], {node.name: node.facts for node in readers})]
    broken = await asyncio.to_thread(_try_all, readings)
    tried = {name for reading in readings for name in reading.nodes}
    return DataCheck(broken=broken, nodes=len(tried), skipped=tuple(skipped))


async def _read_together(
    fleet: Fleet, urls: Sequence[str], url: str, new: _Document
) -> list[_Document] | None:
    """Return the documents of an assignment, including the new one, or None if one of them is outside of the bucket."""
    bucket = Documents(fleet, fleet.data, BUCKET)
    found = []
    for each in urls:
        if each == url:
            found.append(new)
            continue
        document = await bucket.read(each.removeprefix(URL)) if each.startswith(URL) else None
        if document is None or not isinstance(document.body, str):
            return None
        try:
            found.append(await asyncio.to_thread(_Document, each, document.body))
        except CcmError:
            return None
    return found


def _try_all(readings: Sequence[_Reading]) -> tuple[Broken, ...]:
    found: dict[tuple[str, str], Broken] = {}
    for reading in readings:
        demands = [rule for document in reading.documents for rule in document.rules]
        for node, facts in reading.nodes.items():
            for sentence in _try(reading.documents, demands, facts):
                known = found.get((reading.assignment, sentence))
                nodes = (*known.nodes, node) if known else (node,)
                layers = known.layers if known else tuple(_layers(reading.documents, facts))
                found[reading.assignment, sentence] = Broken(
                    sentence=sentence, nodes=nodes, layers=layers, assignment=reading.assignment
                )
    return tuple(found.values())


def _try(
    documents: Sequence[_Document], demands: Sequence[DataRule], facts: Mapping[str, Any]
) -> Iterator[str]:
    """Return the rules that the documents break on a node."""
    data: dict[str, Any] = {}
    for document in documents:
        try:
            own = resolve.resolve_values(document.root, facts, document.name)
        except CcmError:
            yield _with_line(document, facts)
            return
        data = merge.deep(data, own.data)
    for rule in demands:
        try:
            rules.check(data, [rule])
        except CcmError as err:
            yield str(err)


def _with_line(document: _Document, facts: Mapping[str, Any]) -> str:
    """
    Return the same error with its position. The position is computed only if there is an error, because this doubles the work.
    """
    try:
        resolve.resolve_values(document.root, facts, document.name, document.text)
    except CcmError as err:
        return str(err)
    return f"{document.name}: cannot be resolved"


def _layers(documents: Sequence[_Document], facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the known overrides that apply to a node."""
    for document in documents:
        try:
            hierarchy, layers = read_layers(document.root, facts, document.name)
            for layer in layers:
                if layer.data is None or not layer.name:
                    continue
                yield layer.name
                if hierarchy.merge == Merge.FIRST:
                    break
        except CcmError:
            return
