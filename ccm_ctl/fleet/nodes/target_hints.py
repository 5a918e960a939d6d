"""Explain why a target matches no node, and suggest similar values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.bus.subjects import fact_text
from ccm_agent.model.suggestions import nearest
from ccm_agent.templates.fact_texts import fact_at
from ccm_ctl.fleet.nodes.nodes import suggest_node

if TYPE_CHECKING:
    from ccm_agent.templates.selector import Selector
    from ccm_ctl.fleet.nodes.nodes import Inventory


def explain_no_match(text: str, selector: Selector, inventory: Inventory) -> str:
    """Return a text that names the term without a match, and similar values."""
    everybody = list(inventory.nodes.values())
    for term in selector.terms:
        if not any(term.matches(node.name, node.facts) for node in everybody):
            named = f"{text}: " if len(selector.terms) > 1 else ""
            return f"{named}no node matches {term}{_near_term(term, inventory)}"
    parts = []
    for term in selector.terms:
        count = sum(term.matches(node.name, node.facts) for node in everybody)
        parts.append(f"{term} matches {count}")
    return f"{text}: no node matches all terms ({', '.join(parts)})"


def _near_term(term: Any, inventory: Inventory) -> str:
    key, values = term.key, list(term.values)
    if key == "node":
        return suggest_node(values[0], inventory.nodes, "node=") if values else ""
    known = _known_keys(inventory)
    if key not in known:
        if key in inventory.nodes:
            return f"; there is a node with that name: node={key}"
        near = nearest(key, known)
        return f": no node has a fact {key}" + (f", did you mean {near}?" if near else "")
    found = {
        text for node in inventory.nodes.values() if (text := fact_text(fact_at(node.facts, key))) is not None
    }
    near = nearest(values[0], found) if values else None
    if near:
        return f", did you mean {key}={near}?"
    shown = sorted(found)[:8]
    return f"; {key} is {', '.join(shown)}{' …' if len(found) > len(shown) else ''}" if shown else ""


def _known_keys(inventory: Inventory) -> set[str]:
    """Return the paths of all facts on the first two levels."""
    keys: set[str] = set()
    for node in inventory.nodes.values():
        keys |= set(node.routed)
        for key, value in node.facts.items():
            keys.add(key)
            if isinstance(value, dict):
                keys |= {f"{key}.{inner}" for inner in value}
    return keys
