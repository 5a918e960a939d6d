"""
Find nodes, and those that a selector matches.

Nodes write their own records to CCM_NODES. A node whose presence key has expired is offline, and stays expected until it is
removed. Assigned facts count at once, even if the node has not received them yet.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.bus.subjects import ALL, event_subject, fact_scope, fact_text, is_node, node_scope
from ccm_agent.model.errors import NoTargetError, SelectorLimitError, UsageError
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.untrusted_json import decode_foreign
from ccm_agent.model.wire import AGENT_DUPLICATE, AgentEvent, FactsRecord, NodeRecord, Presence
from ccm_agent.templates.fact_texts import fact_at
from ccm_ctl.fleet.documents import decode_document
from ccm_ctl.fleet.node_clock import clock_off_s, find_wrong_clock
from ccm_ctl.fleet.node_state import (
    ASSIGNED,
    LeftOutReasons,
    judge_assigned,
    make_node_verifier,
    verify_nodes,
)
from ccm_ctl.fleet.scope_choice import fit_scopes
from ccm_ctl.fleet.target_hints import explain_no_match, suggest_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ccm_agent.bus.trust import Signer
    from ccm_agent.model.wire import Request
    from ccm_agent.templates.selector import Selector
    from ccm_ctl.fleet.node_state import NodeVerifier
    from ccm_ctl.fleet.ports import Fleet


FACTS_AT_ONCE = 200
"""Keys per request, because replies are large."""

_KIND_NAMES = {"node": "record", ASSIGNED: "assigned facts"}


class Node(Struct, kw_only=True, gc=False):
    """
    A node as the fleet knows it.

    Attributes:
        name: Its identity.
        record: Its own record; None when it never connected.
        presence: Its presence key; None when it is offline.
        assigned: Facts that an operator assigned.
        gathered: All its facts, if they were read.
        written: When it last wrote its record, at least once an hour; None when it never did.
        clock_off_s: By how much its clock was ahead of the broker's at its last sign of life; None when it is offline.
        entries: What was read of it, by kind: `node`, `presence`, `facts` or `assigned`, until it is verified.
        unverified: The kinds of entries whose signature is not valid, with the reason of each; see `node_state.judge_node`.
        is_mistimed: The node signed its presence, but for another time than now.
    """

    name: str
    record: NodeRecord | None = None
    presence: Presence | None = None
    assigned: dict[str, Any] = {}
    gathered: dict[str, Any] = {}
    written: datetime | None = None
    clock_off_s: float | None = None
    entries: dict[str, KeyValueEntry] = {}
    unverified: dict[str, str] = {}
    is_mistimed: bool = False

    @property
    def is_asked(self) -> bool:
        """Whether requests are sent to it; a node whose clock is wrong refuses them with that reason."""
        return self.is_present or self.is_mistimed

    @property
    def wrong_clock(self) -> str:
        """Why its clock is wrong; "" if nothing shows that."""
        return find_wrong_clock(self.record, self.clock_off_s or 0.0, is_mistimed=self.is_mistimed)

    @property
    def is_present(self) -> bool:
        """Whether its presence key exists."""
        return self.presence is not None

    @property
    def unverified_note(self) -> str:
        """Which of its entries are not verified, with the reason of each; "" for none."""
        kinds = sorted(self.unverified.items())
        return "; ".join(f"{_KIND_NAMES.get(kind, kind)}: {reason}" for kind, reason in kinds)

    @property
    def state(self) -> str:
        """`present`, `offline`, or `expected` for a node that has assigned facts and never connected."""
        if self.is_present:
            return "present"
        return "offline" if self.record else "expected"

    @property
    def routed(self) -> dict[str, Any]:
        """Facts that a request can be addressed to, by dotted path, as the node itself routes them now."""
        return dict(self.record.facts) if self.record else {}

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that a selector sees: all known ones, with assigned facts merged over them."""
        return _over(_over(self.gathered, _nested(self.routed)), self.assigned)

    def fact(self, path: str) -> Any:
        """A fact by its dotted path, as a selector sees it; None when it is not there."""
        return fact_at(self.facts, path)


class DuplicateIdentity(Struct, frozen=True, kw_only=True):
    """One of two agents with the same identity, and how it differs from the other."""

    machine: str
    started: str


class Inventory(Struct, frozen=True):
    """The nodes by name, sorted."""

    nodes: dict[str, Node]

    def need(self, name: str) -> Node:
        """
        Return the node of a name.

        Raises:
            NoTargetError: There is none; the error names the nearest.
        """
        node = self.nodes.get(name)
        if node is None:
            raise NoTargetError(f"{name}: there is no such node{suggest_node(name, self.nodes)}")
        return node


class TargetSpec(Struct, frozen=True, kw_only=True):
    """
    The target nodes, as written by the operator.

    Attributes:
        targets: Selectors, any of which is enough.
        where: An expression that must be true as well.
        everybody: All nodes, requested explicitly.
        limit: The most nodes; 0: no limit.
        node: Only this one of the target nodes; the request's scope still follows from the targets. "" for all of them.
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
    """The target nodes of a stored request; without selectors it is for all nodes."""
    everybody = not (request.targets or request.where)
    return TargetSpec(targets=tuple(request.targets), where=request.where, everybody=everybody)


class TargetSet(Struct, frozen=True, kw_only=True):
    """
    The target nodes, fixed, and the scopes that reach them.

    Attributes:
        nodes: All of them, sorted.
        offline: Those that are not present.
        scopes: The scopes to send the request to, as text.
        targets, where: The selectors in the request, which agents check with their own facts.
        older: Nodes whose agents would read the selectors differently; `targets` therefore names the target nodes.
    """

    nodes: list[str]
    offline: list[str]
    scopes: list[str]
    targets: list[str]
    where: str = ""
    older: list[str] = []

    @property
    def present(self) -> list[str]:
        """The nodes that are present, in the order of `nodes`."""
        offline = set(self.offline)
        return [node for node in self.nodes if node not in offline]

    def in_order(self, order: Sequence[str]) -> TargetSet:
        """The same nodes for the record of a rollout: the present ones in the order of the waves, then the offline ones."""
        return msgspec.structs.replace(self, nodes=[*order, *self.offline])


async def read_inventory(fleet: Fleet) -> Inventory:
    """Read every node that has connected or has assigned facts, without its gathered facts."""
    nodes: dict[str, Node] = {}
    for entry in await fleet.nodes.matching(["node.>", "presence.>"]):
        _take_in(nodes, entry)
    for entry in await fleet.facts.matching([">"]):
        document = decode_document(entry)
        if is_node(entry.key) and isinstance(document.body, dict) and document.body:
            node = nodes.setdefault(entry.key, Node(name=entry.key))
            node.assigned, node.entries[ASSIGNED] = document.body, entry
    return Inventory(dict(sorted(nodes.items())))


async def read_verified(fleet: Fleet, names: Iterable[str]) -> Inventory:
    """As `read_inventory`; what is not verified of these nodes is left out, and the operator is told."""
    inventory, left_out = await read_inventory(fleet), LeftOutReasons()
    verifier = await make_node_verifier(fleet)
    if verifier is not None:
        verify_nodes(verifier, inventory, (name for name in names if name in inventory.nodes), left_out)
        left_out.warn(fleet)
    return inventory


async def read_facts(fleet: Fleet, inventory: Inventory, names: Iterable[str]) -> None:
    """Read `gathered` of these nodes only, because facts are large."""
    wanted = [f"facts.{name}" for name in names]
    for begin in range(0, len(wanted), FACTS_AT_ONCE):
        for entry in await fleet.nodes.matching(wanted[begin : begin + FACTS_AT_ONCE]):
            _take_in(inventory.nodes, entry)


async def read_twins(fleet: Fleet, node: str) -> list[DuplicateIdentity]:
    """Return the two agents with one identity that reported the duplicate last."""
    found: dict[DuplicateIdentity, bool] = {}
    for message in await fleet.events.read(event_subject(AGENT_DUPLICATE, node)):
        try:
            details = decode_foreign(message.body, AgentEvent).details
        except msgspec.MsgspecError:
            continue
        twin = DuplicateIdentity(
            machine=str(details.get("machine", "")), started=str(details.get("started", ""))
        )
        found.pop(twin, None)
        found[twin] = bool(details.get("duplicate"))
    return [twin for twin, is_duplicate in found.items() if is_duplicate][-2:]


async def resolve(fleet: Fleet, wish: TargetSpec) -> tuple[Inventory, TargetSet]:
    """
    Resolve the target nodes, and return them with the inventory.

    Raises:
        UsageError: Nothing was specified; all nodes must be requested explicitly.
        SelectorError: A selector does not parse.
        NoTargetError: A target matches no node; the error names the term and similar values.
    """
    from ccm_agent.templates.selector import parse_targets
    from ccm_ctl.fleet.groups import expand_groups

    if wish.is_empty:
        raise UsageError("no nodes selected; use --targets role=web, --where or --all")
    wish = msgspec.structs.replace(wish, targets=await expand_groups(fleet, wish.targets))
    selectors = parse_targets(wish.targets)
    inventory = await read_inventory(fleet)
    await read_facts(fleet, inventory, lacking_facts(inventory, selectors, wish.where))
    if not inventory.nodes:
        raise NoTargetError(
            "no node has ever come to this broker: is an agent running, and does it use this broker?"
        )
    verifier = await make_node_verifier(fleet)
    if verifier is None:
        return inventory, select(inventory, wish, selectors)
    left_out = LeftOutReasons()
    try:
        return inventory, await _select_verified(fleet, inventory, wish, selectors, verifier, left_out)
    finally:
        left_out.warn(fleet)


async def _select_verified(
    fleet: Fleet,
    inventory: Inventory,
    wish: TargetSpec,
    selectors: Sequence[Selector],
    verifier: NodeVerifier,
    left_out: LeftOutReasons,
) -> TargetSet:
    """
    See `resolve`; only what nodes and operators signed selects them.

    Assigned facts are verified first, if they decide whether a node is selected: made-up ones must not keep a node out, either.
    Then the selected nodes are verified. Without an entry that is left out, other nodes may be selected, which are verified next.
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
        if not verify_nodes(verifier, inventory, rest, left_out):
            return found


def _find_decided(inventory: Inventory, wish: TargetSpec, selectors: Sequence[Selector]) -> Iterator[Node]:
    """The nodes that would not be selected without their assigned facts, or only without them."""
    from ccm_agent.templates.selector import parse_where

    where = parse_where(wish.where) if wish.where else None

    def is_meant(node: Node) -> bool:
        facts = node.facts
        is_selected = not selectors or any(selector.matches(node.name, facts) for selector in selectors)
        return is_selected and (where is None or where.matches(node.name, facts))

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
    """See `resolve`; pure. `signer`: the operator who asks; None: the rights are not known."""
    from ccm_ctl.fleet.older_selectors import write_targets

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
        # present nodes first, so that --limit 3 runs on three nodes
        nodes = sorted(nodes, key=lambda node: (not node.is_asked, node.name))[: wish.limit]
        nodes.sort(key=lambda node: node.name)
        targets = _narrowed(targets, nodes)
    if wish.node:
        nodes = [node for node in nodes if node.name == wish.node]
        if not nodes:
            raise NoTargetError(f"{wish.node}: is not among the nodes that {' or '.join(targets)} selects")
        targets = _narrowed(targets, nodes)
    return TargetSet(
        nodes=[node.name for node in nodes],
        offline=[node.name for node in nodes if not node.is_asked],
        scopes=scopes,
        targets=targets,
        where=wish.where,
        older=older,
    )


def _narrowed(targets: Sequence[str], nodes: Sequence[Node]) -> list[str]:
    """The selectors, for some of the nodes that they select."""
    names = f"node in ({','.join(node.name for node in nodes)})"
    return [f"{text},{names}" for text in targets] or [names]


def _scopes(selectors: Sequence[Selector], nodes: Sequence[Node]) -> list[str]:
    """
    Return the scopes of a request: for each selector the nodes it names, or its first equality on a routed fact, else all.

    A fact is used only if every matching node routes it: a node with an unrouted fact does not subscribe to that scope.
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
    """Return the scope of the first equality on a fact that all these nodes route; "" when there is none."""
    for key, value in selector.equalities:
        if all(fact_text(_assigned_or_routed(node, key)) == value for node in nodes):
            return fact_scope(key, value)
    return ""


def lasting_scope(inventory: Inventory, resolved: TargetSet) -> str:
    """
    Return the scope for an assignment or schedule, which also applies to future matching nodes.

    It is the node's if one is named, else that of the first equality on a fact that all route, else `all`.
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
    """Whether a fact is assigned or routed: a present node routes an assigned fact at once."""
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
        except SelectorLimitError as err:  # the facts of one node must not keep an operator from all others
            too_costly = err
    if not found and too_costly is not None:
        raise too_costly
    if not found:
        raise NoTargetError(f"--where {text}: is true on none of the {len(nodes)} nodes it was tried on")
    return found


def lacking_facts(inventory: Inventory, selectors: Sequence[Selector], where: str) -> list[str]:
    """Return the nodes whose short record lacks a requested fact."""
    keys = {key for selector in selectors for key in selector.keys}
    return [
        node.name
        for node in inventory.nodes.values()
        if where or any(_assigned_or_routed(node, key) is None for key in keys)
    ]


def _take_in(nodes: dict[str, Node], entry: KeyValueEntry) -> None:
    """Decode a record; an unreadable one is skipped, so that one broken node does not hide the others."""
    kind, _, name = entry.key.partition(".")
    if not is_node(name):
        return
    node = nodes.setdefault(name, Node(name=name))
    node.entries[kind] = entry
    try:
        if kind == "node":
            node.record, node.written = decode_foreign(entry.value, NodeRecord), entry.created
        elif kind == "presence":
            node.presence = decode_foreign(entry.value, Presence)
            node.clock_off_s = clock_off_s(node.presence, entry.created)
        elif kind == "facts":
            node.gathered = decode_foreign(entry.value, FactsRecord).facts
    except msgspec.MsgspecError:
        return


def _nested(routed: Mapping[str, Any]) -> dict[str, Any]:
    """`{"site.dc": "a"}` as `{"site": {"dc": "a"}}`."""
    nested: dict[str, Any] = {}
    for path, value in routed.items():
        here = nested
        *outer, last = path.split(".")
        for part in outer:
            inner = here.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = here[part] = {}
            here = inner
        here[last] = value
    return nested


def _over(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(low)
    for key, value in high.items():
        mine = merged.get(key)
        merged[key] = _over(mine, value) if isinstance(mine, dict) and isinstance(value, dict) else value
    return merged
