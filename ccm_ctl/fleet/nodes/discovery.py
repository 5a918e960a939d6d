"""Find the nodes that match selectors, and the scopes of a request that reaches them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.subjects import ALL, fact_scope, fact_text, node_scope
from ccm_agent.model.errors import NoTargetError, SelectorLimitError, UsageError
from ccm_agent.templates.fact_texts import fact_at
from ccm_ctl.fleet.nodes.inventory import read_facts, read_inventory, read_nodes
from ccm_ctl.fleet.nodes.nodes import ASSIGNED, TargetSet
from ccm_ctl.fleet.nodes.target_hints import explain_no_match
from ccm_ctl.fleet.scope_choice import fit_scopes
from ccm_ctl.fleet.trust.node_state import LeftOutReasons, judge_assigned, make_node_verifier, verify_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ccm_agent.bus.signatures.trust import Signer
    from ccm_agent.model.wire import Request
    from ccm_agent.templates.selector import Selector
    from ccm_ctl.fleet.nodes.nodes import Inventory, Node
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.trust.node_state import NodeVerifier


class TargetSpec(Struct, frozen=True, kw_only=True):
    """
    The target nodes, as the operator specified them.

    Attributes:
        targets: Selectors, of which at least one must match.
        where: An expression that must also be true.
        everybody: Whether all nodes were requested explicitly.
        limit: The maximum number of nodes. 0: no limit.
        node: Restricts the targets to this node. The request's scope still follows from the targets. "": no restriction.
    """

    targets: tuple[str, ...] = ()
    where: str = ""
    everybody: bool = False
    limit: int = 0
    node: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was specified."""
        return not (self.targets or self.where or self.everybody)


def requested_targets(request: Request) -> TargetSpec:
    """Return the target nodes of a stored request. Without selectors, these are all nodes."""
    everybody = not (request.targets or request.where)
    return TargetSpec(targets=tuple(request.targets), where=request.where, everybody=everybody)


async def resolve(
    fleet: Fleet, wish: TargetSpec, *, is_whole: bool = False, is_once: bool = False
) -> tuple[Inventory, TargetSet]:
    """
    Resolve the target nodes, and return them with their inventory.

    Args:
        fleet: The fleet.
        wish: The nodes that the operator selected.
        is_whole: Whether the inventory must contain all nodes. Otherwise, if the targets contain names of nodes, only these nodes
            are read.
        is_once: Whether this process does not verify the same nodes again.

    Raises:
        UsageError: Nothing was specified. All nodes must be requested explicitly.
        SelectorError: A selector does not parse.
        NoTargetError: A target matches no node. The error contains the term and similar values.
    """
    from ccm_agent.templates.selector import parse_targets
    from ccm_ctl.fleet.nodes.groups import expand_groups

    if wish.is_empty:
        raise UsageError("no nodes selected; use --targets role=web, --where or --all")
    wish = msgspec.structs.replace(wish, targets=await expand_groups(fleet, wish.targets))
    selectors = parse_targets(wish.targets)
    names = [] if is_whole else _find_named(selectors)
    verifier, left_out = await make_node_verifier(fleet, remembers=not is_once), LeftOutReasons()
    try:
        if names:
            inventory = await read_nodes(fleet, names)
            # the error message needs all nodes, for similar names and the number of matches
            with suppress(NoTargetError):
                return inventory, await _select(fleet, inventory, wish, selectors, verifier, left_out)
            left_out = LeftOutReasons()

        async def verify(part: Inventory) -> None:
            if verifier is not None:
                await _verify_part(part, wish, selectors, verifier, left_out)

        inventory = await read_inventory(fleet, keeps_entries=verifier is not None, on_part=verify)
        if not inventory.nodes:
            raise NoTargetError(
                "no node has ever connected to this broker; check that an agent is running and that it uses this broker"
            )
        return inventory, await _select(fleet, inventory, wish, selectors, verifier, left_out)
    finally:
        left_out.warn(fleet)


def _find_named(selectors: Sequence[Selector]) -> list[str]:
    """
    Return the nodes whose names are in the selectors. Empty if other nodes may match, or may receive the request.

    Selectors with patterns require the records of all agents, because older agents interpret patterns differently.
    """
    if not all(selector.nodes and not selector.patterns for selector in selectors):
        return []
    return [name for selector in selectors for name in selector.nodes]


async def _select(
    fleet: Fleet,
    inventory: Inventory,
    wish: TargetSpec,
    selectors: Sequence[Selector],
    verifier: NodeVerifier | None,
    left_out: LeftOutReasons,
) -> TargetSet:
    """Resolve the targets among the nodes of an inventory. See `resolve`."""
    await read_facts(fleet, inventory, lacking_facts(inventory, selectors, wish.where))
    if verifier is None:
        return select(inventory, wish, selectors)
    return await _select_verified(fleet, inventory, wish, selectors, verifier, left_out)


async def _select_verified(
    fleet: Fleet,
    inventory: Inventory,
    wish: TargetSpec,
    selectors: Sequence[Selector],
    verifier: NodeVerifier,
    left_out: LeftOutReasons,
) -> TargetSet:
    """
    Resolve the targets using only entries that nodes and operators signed. See `resolve`.

    If assigned facts decide whether a node is selected, they are verified first. Otherwise, forged facts could exclude a node.
    Then the selected nodes are verified. If this drops unverified entries, other nodes may be selected, which are then verified
    as well.
    """
    changed = []
    for node in _find_decided(inventory, wish, selectors):
        judge_assigned(verifier, node)
        if left_out.take(node):
            changed.append(node.name)
    if changed:
        await read_facts(fleet, inventory, changed)
    verified: set[str] = set()
    while True:
        found = select(inventory, wish, selectors, verifier.own_signer)
        rest = [name for name in found.nodes if name not in verified]
        verified.update(rest)
        if not await verify_nodes(verifier, inventory, rest, left_out):
            keys = {name: key for name in found.nodes if (key := inventory.nodes[name].certified)}
            return msgspec.structs.replace(found, certified=keys, revoked=verifier.state.revoked)


def _is_selected(node: Node, selectors: Sequence[Selector]) -> bool:
    facts = node.facts
    return not selectors or any(selector.matches(node.name, facts) for selector in selectors)


async def _verify_part(
    part: Inventory,
    wish: TargetSpec,
    selectors: Sequence[Selector],
    verifier: NodeVerifier,
    left_out: LeftOutReasons,
) -> None:
    """
    Verify the nodes that are selected unless some of their data turn out to be unverified, so that their entries need no memory.

    This decides nothing: `_select_verified` selects and verifies the nodes, but verified entries are not verified again.
    """
    if wish.where or wish.limit or wish.node or lacking_facts(part, selectors, ""):
        return
    with suppress(SelectorLimitError):
        names = [name for name, node in part.nodes.items() if _is_selected(node, selectors)]
        await verify_nodes(verifier, part, names, left_out)


def _find_decided(inventory: Inventory, wish: TargetSpec, selectors: Sequence[Selector]) -> Iterator[Node]:
    """Yield the nodes for which assigned facts decide whether they are selected."""
    from ccm_agent.templates.selector import parse_where

    where = parse_where(wish.where) if wish.where else None

    def is_meant(node: Node) -> bool:
        return _is_selected(node, selectors) and (where is None or where.matches(node.name, node.facts))

    for node in inventory.nodes.values():
        if ASSIGNED not in node.entries:
            continue
        try:
            if is_meant(node) == is_meant(msgspec.structs.replace(node, assigned={})):
                continue
        except SelectorLimitError:
            pass
        yield node


def select(
    inventory: Inventory, wish: TargetSpec, selectors: Sequence[Selector], signer: Signer | None = None
) -> TargetSet:
    """Resolve the targets without I/O. See `resolve`. `signer`: the requesting operator. None: the rights are unknown."""
    from ccm_ctl.fleet.runs.older_selectors import write_targets

    meant: dict[str, Node] = {} if selectors else dict(inventory.nodes)
    for text, selector in zip(wish.targets, selectors, strict=True):
        found = [node for node in inventory.nodes.values() if selector.matches(node.name, node.facts)]
        if not found:
            raise NoTargetError(explain_no_match(text, selector, inventory))
        meant |= {node.name: node for node in found}
    if wish.where:
        meant = _where(wish.where, meant)
    nodes = sorted(meant.values(), key=lambda node: node.name)
    targets, older = write_targets(wish.targets, selectors, inventory, nodes)
    scopes = fit_scopes(_scopes(selectors, nodes) if selectors else [ALL], nodes, signer)
    if wish.limit and len(nodes) > wish.limit:
        # present nodes come first, so that --limit 3 runs on three nodes
        nodes = sorted(nodes, key=lambda node: (not node.is_asked, node.name))[: wish.limit]
        nodes.sort(key=lambda node: node.name)
        targets = narrowed(targets, [node.name for node in nodes])
    if wish.node:
        nodes = [node for node in nodes if node.name == wish.node]
        if not nodes:
            raise NoTargetError(f"{wish.node}: is not among the nodes that {' or '.join(targets)} selects")
        targets = narrowed(targets, [node.name for node in nodes])
    return TargetSet(
        nodes=[node.name for node in nodes],
        offline=[node.name for node in nodes if not node.is_asked],
        scopes=scopes,
        targets=targets,
        where=wish.where,
        older=older,
    )


def narrowed(targets: Sequence[str], nodes: Sequence[str]) -> list[str]:
    """Return the selectors, restricted to some of their nodes."""
    names = f"node in ({','.join(nodes)})"
    return [f"{text},{names}" for text in targets] or [names]


def _scopes(selectors: Sequence[Selector], nodes: Sequence[Node]) -> list[str]:
    """
    Return the scopes of a request. Each selector results in the nodes that it names, in its first equality on a routed fact, or
    in all nodes.

    A fact is used only if every matching node routes it, because a node with an unrouted fact does not subscribe to that scope.
    """
    scopes: dict[str, None] = {}
    for selector in selectors:
        mine = [node for node in nodes if selector.matches(node.name, node.facts)]
        for scope in _choose_scopes(selector, mine):
            scopes[scope] = None
    return [ALL] if ALL in scopes else list(scopes)


def _choose_scopes(selector: Selector, nodes: Sequence[Node]) -> list[str]:
    if selector.nodes:
        return [node_scope(name) for name in selector.nodes]
    return [_find_fact_scope(selector, nodes) or ALL]


def _find_fact_scope(selector: Selector, nodes: Sequence[Node]) -> str:
    """Return the scope of the first equality on a fact that all these nodes route, or ""."""
    for key, value in selector.equalities:
        if all(fact_text(_assigned_or_routed(node, key)) == value for node in nodes):
            return fact_scope(key, value)
    return ""


def lasting_scope(inventory: Inventory, resolved: TargetSet) -> str:
    """
    Return the scope for an assignment or schedule, which also applies to nodes that match later.

    If the targets name a node, this is the scope of the node. Otherwise, it is the scope of the first equality on a fact that all
    matching nodes route, or `all`.
    """
    from ccm_agent.templates.selector import parse_selector

    selectors = [parse_selector(text) for text in resolved.targets]
    if len(selectors) != 1:
        return ALL
    [selector] = selectors
    if len(selector.nodes) == 1:
        return node_scope(selector.nodes[0])
    return _find_fact_scope(selector, [inventory.nodes[name] for name in resolved.nodes]) or ALL


def _assigned_or_routed(node: Node, key: str) -> object:
    """Return a fact if it is assigned or routed. An online node routes an assigned fact immediately."""
    found = fact_at(node.assigned, key)
    return node.routed.get(key) if found is None else found


def _where(text: str, nodes: Mapping[str, Node]) -> dict[str, Node]:
    from ccm_agent.templates.selector import parse_where

    where = parse_where(text)
    found: dict[str, Node] = {}
    too_costly: SelectorLimitError | None = None
    for name, node in nodes.items():
        try:
            if where.matches(node.name, node.facts):
                found[name] = node
        # the facts of one node must not prevent the selection of the other nodes
        except SelectorLimitError as err:
            too_costly = err
    if not found and too_costly is not None:
        raise too_costly
    if not found:
        raise NoTargetError(f"--where {text}: not true for any of the {len(nodes)} nodes that were checked")
    return found


def lacking_facts(inventory: Inventory, selectors: Sequence[Selector], where: str) -> list[str]:
    """Return the nodes whose short record lacks a required fact."""
    keys = {key for selector in selectors for key in selector.keys}
    return [
        node.name
        for node in inventory.nodes.values()
        if where or any(_assigned_or_routed(node, key) is None for key in keys)
    ]
