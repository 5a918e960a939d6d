"""
The site of an import: a manifest with Hiera data that list the layers of a node, and a manifest for each type in each layer.

Types are applied in the order of SITE_ORDER, and all layers of one type before the next type. For example, a group that exists on
one node only is created before a user of all nodes who is a member of the group.

In the hierarchy, the name of a fact's layer consists of the fact and its value, as in `role:web`. The name of a node's layer uses
a fact that distinguishes the nodes: one that an operator assigned, or one in which each node reports its own name, such as the
host name. With other facts, a node could report the value of another node, which would then get its resources.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ccm_agent.bus.subjects import fact_text
from ccm_agent.model.errors import InputError
from ccm_agent.model.records.host_import import SITE_ORDER, FoundResource, holds_template
from ccm_agent.templates.fact_texts import fact_at
from ccm_ctl.fleet.imports.factoring import FactLayer, FactoredImport
from ccm_ctl.fleet.nodes.nodes import Node

HOSTNAME = "host.info.hostname"
GATHERED = (
    "host.info.os",
    "host.info.platformFamily",
    "host.info.platform",
    "host.info.platformVersion",
    "host.info.kernelArch",
)
"""Gathered facts that may explain a resource."""

VALUE_LIMIT = 100
"""The maximum length of a fact's value in the name of a layer, in characters."""

NAMED = 5
"""The number of nodes that an error names."""

FOLDER = "layers"
COMMON = "common"

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_UNSAFE = re.compile(r"[^a-z0-9]+")


class NodeFacts(Struct, frozen=True, kw_only=True):
    """
    The facts of nodes that may name layers.

    Attributes:
        texts: The values as text, by node and path.
        order: The paths: assigned facts, then facts from the configurations of nodes, then GATHERED.
        claimed: The paths for which some node reports a value that no operator assigned.
        identity: The path of the fact in the names of the nodes' layers.
        nameless: The nodes that this fact does not distinguish, so they cannot have a layer.
    """

    texts: dict[str, dict[str, str]]
    order: list[str]
    claimed: frozenset[str]
    identity: str
    nameless: list[str]


class SiteLayer(Struct, frozen=True, kw_only=True):
    """
    One layer of the site.

    Attributes:
        title: `common`, `role=web`, or the name of the node.
        path: The folder of its manifests within the site.
        resources: Its resources, in the order of SITE_ORDER.
    """

    title: str
    path: str
    resources: list[FoundResource]


def read_layer_facts(nodes: Sequence[Node], known: Collection[str] = ()) -> NodeFacts:
    """
    Return the facts of nodes that may name layers. The gathered facts of the nodes have been read.

    Args:
        nodes: The nodes.
        known: The names of all nodes that are known.
    """
    assigned_to = {node.name: set(_paths(node.assigned)) for node in nodes}
    assigned = set().union(*assigned_to.values())
    routed = {path for node in nodes for path in node.routed}
    # at the top level, values other than mappings are from the configuration of the node
    own = {path for node in nodes for path, value in node.facts.items() if not isinstance(value, dict)}
    order = [
        path
        for path in (
            *sorted(assigned),
            *sorted(routed - assigned),
            *sorted(own - assigned - routed),
            *GATHERED,
        )
        if _PATH.fullmatch(path)
    ]
    order = list(dict.fromkeys(order))
    texts = {
        node.name: {
            path: text for path in (*order, HOSTNAME) if (text := _layer_text(fact_at(node.facts, path)))
        }
        for node in nodes
    }
    claimed = frozenset(
        path
        for path in (HOSTNAME, *order)
        if any(path in found and path not in assigned_to[name] for name, found in texts.items())
    )
    names = _Names({*texts, *known})
    nameless = {path: _nameless(texts, path, path in claimed, names) for path in (HOSTNAME, *order)}
    # prefer a fact that contains the names of the nodes, because it is the easiest to read
    identity = min(nameless, key=lambda path: (len(nameless[path]), not _are_names(texts, path, names)))
    return NodeFacts(
        texts=texts, order=order, claimed=claimed, identity=identity, nameless=nameless[identity]
    )


def lay_out(site: FactoredImport, facts: NodeFacts) -> tuple[list[SiteLayer], dict[str, Any]]:
    """
    Return the layers of a site that have resources, and its manifest.

    Raises:
        InputError: A node needs a layer, and no fact distinguishes it from the others.
    """
    if nameless := [name for name in facts.nameless if name in site.by_node]:
        more = f" and {len(nameless) - NAMED} more" if len(nameless) > NAMED else ""
        raise InputError(
            f"no fact distinguishes these nodes, so they have no layers: {', '.join(nameless[:NAMED])}{more}; leave them out, "
            f"or assign a fact to each node of the import, as in `ccmctl facts set {nameless[0]} name={nameless[0]}`"
        )
    names: dict[str, str] = {}
    layers = []
    data: dict[str, list[str]] = {}
    overrides: dict[str, dict[str, list[str]]] = {}
    rank = {kind: number for number, kind in enumerate(SITE_ORDER)}
    for title, key, resources in _entries(site, facts):
        name, ordered = _file_name(title, names), sorted(resources, key=lambda one: rank[one.section])
        layers.append(SiteLayer(title=title, path=f"{FOLDER}/{name}", resources=ordered))
        own = {one.section: [name] for one in ordered}
        if key:
            overrides[key] = own
            own = {kind: [] for kind in own}
        data = own | data
    used = dict.fromkeys(layer.fact for layer in site.by_fact)
    if site.by_node:
        used[facts.identity] = None
    manifest: dict[str, Any] = {}
    if used:
        order = [f"{path}:${{ lookup('facts.{path}') }}" for path in used]
        manifest["hierarchy"] = {"order": order, "merge": "deep"}
    manifest["data"] = data
    if overrides:
        manifest["overrides"] = overrides
    applied = [
        {f"{FOLDER}/{{{{ item }}}}/{kind}.yaml": {"for_each": f"{{{{ lookup('data.{kind}') }}}}"}}
        for kind in sorted(data, key=rank.__getitem__)
    ]
    manifest["ccm"] = {"resources": [{"apply": applied}]}
    return layers, manifest


def _entries(site: FactoredImport, facts: NodeFacts) -> list[tuple[str, str, list[FoundResource]]]:
    """Return the title, the name in the hierarchy, and the resources of each layer."""
    found = [(COMMON, "", site.common)] if site.common else []
    found += [
        (f"{layer.fact}={layer.value}", _override(layer), resources)
        for layer, resources in site.by_fact.items()
    ]
    for node, resources in site.by_node.items():
        found.append(
            (node, _override(FactLayer(facts.identity, facts.texts[node][facts.identity])), resources)
        )
    return found


def _override(layer: FactLayer) -> str:
    """Return the name of a layer in the hierarchy."""
    return f"{layer.fact}:{layer.value}"


def _file_name(title: str, taken: dict[str, str]) -> str:
    base = _UNSAFE.sub("-", title.lower()).strip("-")[:80] or "layer"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    taken[name] = title
    return name


def _layer_text(value: object) -> str:
    """Return the text of a fact's value, or "" if it cannot name a layer."""
    text = fact_text(value) or ""
    is_name = text.isprintable() and len(text) <= VALUE_LIMIT and text == text.strip()
    return text if is_name and not holds_template(text) else ""


class _Names:
    """The names of nodes, and their first labels, which are host names."""

    def __init__(self, nodes: Collection[str]) -> None:
        self._labels = Counter(node.partition(".")[0] for node in nodes)

    def is_of(self, text: str, node: str) -> bool:
        """Whether the text is the name of this node only."""
        return text == node or (text == node.partition(".")[0] and self._labels[text] == 1)


def _nameless(
    texts: Mapping[str, Mapping[str, str]], path: str, is_claimed: bool, names: _Names
) -> list[str]:
    """
    Return the nodes that a fact does not distinguish: nodes without a value, with the same value as another node, or with a
    reported value that is not their own name.
    """
    counts = Counter(facts.get(path, "") for facts in texts.values())
    return [
        node
        for node, facts in texts.items()
        if not (text := facts.get(path, ""))
        or (not names.is_of(text, node) and (is_claimed or counts[text] > 1))
    ]


def _are_names(texts: Mapping[str, Mapping[str, str]], path: str, names: _Names) -> bool:
    return all(names.is_of(facts.get(path, ""), node) for node, facts in texts.items())


def _paths(facts: Mapping[str, Any], prefix: str = "") -> list[str]:
    found = []
    for key, value in facts.items():
        found += _paths(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"{prefix}{key}"]
    return found
