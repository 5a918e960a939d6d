"""
Divide the resources of several nodes into layers: common, per value of a fact, and per node. This module does no I/O.

A resource that all nodes have with the same properties and contents is common. Otherwise one fact may explain it: among the nodes
with the same value of the fact, either all have the resource with the same properties, or none has it. The resource is then in
the layers of these values, if there are fewer such layers than nodes with the resource. All other resources are in the layers of
their nodes.

A value that nodes report, and no operator assigned, names a layer only if at least two nodes report it. Otherwise, a single node
could claim the value of other nodes, which would then get its resources.
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
    """The layer of the nodes on which a fact has a certain value."""

    fact: str
    value: str


class FactoredImport(Struct, frozen=True, kw_only=True):
    """
    The resources of several nodes, divided into layers.

    Attributes:
        common: The resources that all nodes have.
        by_fact: The resources that a fact explains, by layer, sorted.
        by_node: The other resources, by node, sorted.
    """

    common: list[FoundResource]
    by_fact: dict[FactLayer, list[FoundResource]]
    by_node: dict[str, list[FoundResource]]

    def of(self, node: str, facts: Mapping[str, str]) -> list[FoundResource]:
        """Return the resources from all layers of a node."""
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
    Divide the resources of nodes into layers.

    Args:
        hosts: The resources by node. Each type and name occurs once per node.
        facts: The facts by node, as text. A node without a value of a fact is in none of that fact's layers.
        order: Names of facts. If several facts explain a resource with the same number of layers, the first of them is used.
        claimed: Names of facts whose values are only claims of nodes.
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
    """Return the nodes by the value of a fact."""
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
    """Return the layers of the fact that explains a resource with the fewest layers. Empty if no fact explains it."""
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
    """Yield the layers in which all nodes have the same variant of the resource."""
    for layer, nodes in layers.items():
        found = {having.get(node) for node in nodes}
        [variant, *others] = found
        if not others and variant is not None:
            yield layer, variant
