"""
Factor what several nodes have into layers: common, one fact, one node. Pure.

A resource that all nodes have with the same properties and contents is common. Otherwise one fact may explain it: all nodes with
the same value of the fact have it with the same properties, or do not have it. It is then in the layers of that fact's values, if
they are fewer than the nodes that have it. Everything else is in the layers of its nodes.

A value that a node claims, instead of an operator, names a layer only if two nodes or more report it: a single node could claim
the value of others, which would then get what it has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct

from ccm_agent.model.records.host_import import FoundResource

Resource = tuple[str, str]
"""Type and name."""


class FactLayer(Struct, frozen=True, order=True):
    """The layer of the nodes whose fact has a value."""

    fact: str
    value: str


class FactoredImport(Struct, frozen=True, kw_only=True):
    """
    The resources of several nodes, each in one of the layers of its nodes.

    Attributes:
        common: What all nodes have.
        by_fact: What a fact explains, by layer, sorted.
        by_node: The rest, by node, sorted.
    """

    common: list[FoundResource]
    by_fact: dict[FactLayer, list[FoundResource]]
    by_node: dict[str, list[FoundResource]]

    def of(self, node: str, facts: Mapping[str, str]) -> list[FoundResource]:
        """Return what the layers of a node give it."""
        found = list(self.common)
        for layer, resources in self.by_fact.items():
            if facts.get(layer.fact) == layer.value:
                found += resources
        return found + self.by_node.get(node, [])


def factor(
    hosts: Mapping[str, Sequence[FoundResource]],
    facts: Mapping[str, Mapping[str, str]],
    order: Sequence[str],
    claimed: Collection[str] = (),
) -> FactoredImport:
    """
    Factor the resources of nodes.

    Args:
        hosts: The resources by node, each name of a type once.
        facts: The facts by node, as text. A node without a fact is in none of its layers.
        order: Names of facts. Of those that explain a resource in equally few layers, the first one is chosen.
        claimed: Names of facts whose values nodes claim.
    """
    nodes = sorted(hosts)
    variants: dict[Resource, dict[str, bytes]] = defaultdict(dict)
    places: dict[Resource, tuple[int, int]] = {}
    samples: dict[tuple[Resource, bytes], FoundResource] = {}
    for number, node in enumerate(nodes):
        for place, one in enumerate(hosts[node]):
            key = one.type, one.name
            variant = msgspec.json.encode([one.properties, one.contents], order="sorted")
            variants[key][node] = variant
            samples.setdefault((key, variant), one)
            places.setdefault(key, (place, number))
    groups = {fact: _groups(nodes, facts, fact) for fact in order}
    site = FactoredImport(common=[], by_fact=defaultdict(list), by_node=defaultdict(list))
    for key in sorted(places, key=lambda one: (places[one], one)):
        having = variants[key]
        if len(having) == len(nodes) and len(set(having.values())) == 1:
            site.common.append(samples[key, having[nodes[0]]])
            continue
        values = _explained(having, groups, claimed)
        for layer, variant in values.items():
            site.by_fact[layer].append(samples[key, variant])
        if not values:
            for node, variant in having.items():
                site.by_node[node].append(samples[key, variant])
    return FactoredImport(
        common=site.common,
        by_fact={layer: site.by_fact[layer] for layer in sorted(site.by_fact)},
        by_node={node: site.by_node[node] for node in sorted(site.by_node)},
    )


def _groups(
    nodes: Sequence[str], facts: Mapping[str, Mapping[str, str]], fact: str
) -> dict[FactLayer, list[str]]:
    """The nodes by the value of a fact."""
    found: dict[FactLayer, list[str]] = defaultdict(list)
    for node in nodes:
        value = facts.get(node, {}).get(fact, "")
        if value:
            found[FactLayer(fact, value)].append(node)
    return found


def _explained(
    having: Mapping[str, bytes],
    groups: Mapping[str, Mapping[FactLayer, Sequence[str]]],
    claimed: Collection[str],
) -> dict[FactLayer, bytes]:
    """The layers of the fact that explains a resource in the fewest layers; none if no fact does."""
    best: dict[FactLayer, bytes] = {}
    for fact, layers in groups.items():
        values = dict(_values(having, layers))
        if fact in claimed and any(len(layers[layer]) == 1 for layer in values):
            continue
        is_whole = sum(len(layers[layer]) for layer in values) == len(having)
        if is_whole and len(values) < (len(best) or len(having)):
            best = values
    return best


def _values(
    having: Mapping[str, bytes], layers: Mapping[FactLayer, Sequence[str]]
) -> Iterator[tuple[FactLayer, bytes]]:
    """The layers in which all nodes have the same."""
    for layer, nodes in layers.items():
        found = {having.get(node) for node in nodes}
        [variant, *others] = found
        if not others and variant is not None:
            yield layer, variant
