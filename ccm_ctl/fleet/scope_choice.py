"""Choose scopes that reach the target nodes and that the operator may use."""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.bus.signatures.trust import EVERYWHERE, Signer
from ccm_agent.bus.subjects import ALL, scopes_of
from ccm_agent.templates.fact_texts import fact_at
from ccm_ctl.fleet.nodes.nodes import Node


def fit_scopes(scopes: list[str], nodes: Sequence[Node], signer: Signer | None) -> list[str]:
    """
    Return the scopes of a request that reaches these nodes, within the rights of an operator.

    An operator with `--apply role=web` may not send to `node.web1`, but may send to the scope of the role with the selector
    `node=web1`. Agents that do not match the selector ignore the request.

    Args:
        scopes: The scopes that follow from the selectors.
        nodes: The target nodes.
        signer: The operator's entry in the signers list. None: the rights are unknown.

    Returns:
        `scopes` if the operator may use them all, or if the operator's scopes do not reach every node. In the second case, the
        broker refuses the request.
    """
    if signer is None:
        return scopes
    rights = [right for right in (signer.apply, signer.exec, signer.plan, signer.maintain) if right]
    own = dict.fromkeys(scope for right in rights for scope in right if scope != ALL)
    if EVERYWHERE in own or all(set(scopes) <= set(right) for right in rights):
        return scopes
    left, chosen = {node.name: set(scopes_of(node.name, _route(node))) for node in nodes}, list[str]()
    for scope in own:
        reached = [name for name, found in left.items() if scope in found]
        if reached:
            chosen.append(scope)
            left = {name: found for name, found in left.items() if scope not in found}
    return scopes if left else chosen


def _route(node: Node) -> dict[str, object]:
    """Return the routed facts of a node that has received its assigned facts."""
    assigned = {key: fact_at(node.assigned, key) for key in node.routed}
    return {key: value if assigned[key] is None else assigned[key] for key, value in node.routed.items()}
