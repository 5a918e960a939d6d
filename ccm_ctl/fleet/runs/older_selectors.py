"""
Selectors that older agents interpret differently.

An older agent treats `*` and `?` in a fact's value as plain characters, and a list as unequal to everything. A negated term would
then select too many nodes. If such an agent is in the fleet, the request lists its target nodes by name. An assignment or a
schedule with such a selector is refused, because it also applies to nodes that match later. If no such agent is known, patterns
are written in a form that an older agent cannot parse, so it would refuse the request (ADR 46).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ccm_agent.model.errors import UsageError
from ccm_agent.templates.fact_texts import fact_at
from ccm_agent.templates.selector import LENGTH_LIMIT, TARGETS_LIMIT, Selector
from ccm_ctl.fleet.nodes.nodes import Inventory, Node, TargetSet

_NAMES_LENGTH = LENGTH_LIMIT // 2
"""The maximum length of the names in one selector. The other terms and `--limit` increase the length of the selector."""


def write_targets(
    texts: Sequence[str], selectors: Sequence[Selector], inventory: Inventory, nodes: Sequence[Node]
) -> tuple[list[str], list[str]]:
    """
    Return the selectors in the form in which they are sent, and the nodes whose agents interpret them differently.

    Args:
        texts, selectors: The selectors as written, and parsed.
        inventory: All nodes, because an older agent may incorrectly treat its node as a target.
        nodes: The target nodes.
    """
    agents = [node for node in inventory.nodes.values() if node.record and not node.record.selector_patterns]
    older: dict[str, None] = {}
    targets: list[str] = []
    for text, selector in zip(texts, selectors, strict=True):
        lists = _lists(selector, agents)
        differing = (
            [node.name for node in agents] if selector.patterns else sorted(set().union(*lists.values()))
        )
        older.update(dict.fromkeys(differing))
        if differing:
            targets += _by_name(selector, set(lists), nodes)
        else:
            targets.append(selector.explicit() if selector.patterns else text)
    return targets, list(older)


def refuse_too_many(resolved: TargetSet) -> None:
    """
    Refuse a request with too many nodes to name one by one. Commands that only read the inventory do not need the names.

    Raises:
        UsageError: There are too many nodes. The message names the first older agent.
    """
    if resolved.older and sum(map(len, resolved.targets)) > TARGETS_LIMIT // 2:
        raise UsageError(
            f"{len(resolved.nodes)} nodes are too many to list by name, as {resolved.older[0]} and other older agents "
            "require; upgrade them, or select without `*`, `?` and values of lists"
        )


def _lists(selector: Selector, agents: Sequence[Node]) -> dict[str, set[str]]:
    """Return the compared facts that are a list on some of these nodes, with these nodes."""
    keys = {term.key for term in selector.terms if term.compares}
    found: dict[str, set[str]] = {}
    for node in agents if keys else ():
        facts = node.facts
        for key in keys:
            if isinstance(fact_at(facts, key), list):
                found.setdefault(key, set()).add(node.name)
    return found


def _by_name(selector: Selector, lists: set[str], nodes: Sequence[Node]) -> Iterator[str]:
    """Yield selectors of limited length, each with the terms that all agents interpret alike and some of the nodes' names."""
    kept = [str(term) for term in selector.terms if not term.patterns and term.key not in lists]
    names: list[str] = []
    for node in nodes:
        if not selector.matches(node.name, node.facts):
            continue
        if sum(map(len, names)) + len(names) + len(node.name) > _NAMES_LENGTH:
            yield ",".join([*kept, f"node in ({','.join(names)})"])
            names = []
        names.append(node.name)
    if names:
        yield ",".join([*kept, f"node in ({','.join(names)})"])
