"""The nodes of a fleet, and the target nodes of a command. The module `inventory` reads nodes, and `discovery` selects them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import NoTargetError
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.suggestions import nearest
from ccm_agent.model.wire import NodeRecord, Presence
from ccm_agent.templates.fact_texts import fact_at
from ccm_ctl.fleet.nodes.node_clock import find_wrong_clock

ASSIGNED = "assigned"
"""The kind of entry that an operator signs: the facts assigned to a node."""

_KIND_NAMES = {"node": "record", ASSIGNED: "assigned facts"}

_NO_FACTS: dict[str, Any] = {}
_NOTHING: Mapping[str, Any] = MappingProxyType({})
"""Shared by thousands of nodes, because an empty dict needs 64 bytes. They are replaced, not changed."""


class Node(Struct, kw_only=True, gc=False):
    """
    A node, with the controller's information about it.

    Attributes:
        name: Its identity.
        record: Its own record. None: it has never connected.
        presence: Its presence key. None: it is offline.
        assigned: Facts that an operator assigned.
        gathered: All its facts, if they were read.
        written: When it last wrote its record. A running agent writes it at least once an hour. None: it has never written a
            record.
        heard: When the broker received its last heartbeat. None: it is offline.
        clock_off_s: The seconds by which its clock was ahead of the broker's at that time. None: it is offline.
        entries: Its entries that were read, by kind: `node`, `presence`, `facts` or `assigned`. They are kept until verified.
        signs: Whether one of its verified entries is signed. If so, unsigned entries are not from this node.
        unverified: The kinds of entries whose signature is not valid, each with the reason. See `node_state.judge_node`.
        is_mistimed: Whether its presence has a valid signature for a time other than now.
        certified: Its certified key, if its record was verified. See `TargetSet.certified`.
        copied_from: The broker's name for the site from whose broker its entries were copied. "": they were written here.
    """

    name: str
    record: NodeRecord | None = None
    presence: Presence | None = None
    assigned: dict[str, Any] = msgspec.field(default_factory=lambda: _NO_FACTS)
    gathered: dict[str, Any] = msgspec.field(default_factory=lambda: _NO_FACTS)
    written: datetime | None = None
    heard: datetime | None = None
    clock_off_s: float | None = None
    entries: Mapping[str, KeyValueEntry] = _NOTHING
    signs: bool = False
    unverified: Mapping[str, str] = _NOTHING
    is_mistimed: bool = False
    certified: tuple[str, int] | None = None
    copied_from: str = ""

    @property
    def is_asked(self) -> bool:
        """Whether requests are sent to it. A node with a wrong clock also gets them, and refuses them for this reason."""
        return self.is_present or self.is_mistimed

    @property
    def wrong_clock(self) -> str:
        """The reason why its clock is wrong, or "" if it seems to be right."""
        return find_wrong_clock(self.record, self.clock_off_s or 0.0, is_mistimed=self.is_mistimed)

    @property
    def is_present(self) -> bool:
        """Whether its presence key exists."""
        return self.presence is not None

    @property
    def unverified_note(self) -> str:
        """Its unverified entries with the reasons, as text, or ""."""
        if not self.unverified:
            return ""
        kinds = sorted(self.unverified.items())
        return "; ".join(f"{_KIND_NAMES.get(kind, kind)}: {reason}" for kind, reason in kinds)

    @property
    def state(self) -> str:
        """`present`, `offline`, or `expected` (it has assigned facts, but has never connected)."""
        if self.is_present:
            return "present"
        return "offline" if self.record else "expected"

    @property
    def routed(self) -> dict[str, Any]:
        """Facts that the node currently routes, by dotted path. They can be used in a request's scope."""
        return dict(self.record.facts) if self.record else {}

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that a selector uses: all known facts, with assigned facts merged over them."""
        return _over(_over(self.gathered, _nested(self.routed)), self.assigned)

    def fact(self, path: str) -> Any:
        """Return a fact by its dotted path, as a selector uses it, or None."""
        return fact_at(self.facts, path)


class DuplicateIdentity(Struct, frozen=True, kw_only=True):
    """One of two agents with the same identity, and its differences from the other."""

    machine: str
    started: str


class Inventory(Struct, frozen=True):
    """The nodes by name, sorted."""

    nodes: dict[str, Node]

    def need(self, name: str) -> Node:
        """
        Return the node with a name.

        Raises:
            NoTargetError: There is no such node. The error names the most similar node.
        """
        node = self.nodes.get(name)
        if node is None:
            raise NoTargetError(f"{name}: there is no such node{suggest_node(name, self.nodes)}")
        return node


class TargetSet(Struct, frozen=True, kw_only=True):
    """
    The fixed list of target nodes, and the scopes that reach them.

    Attributes:
        nodes: All target nodes, sorted.
        offline: The target nodes that are not present.
        scopes: The scopes to which the request is sent, as text.
        targets, where: The selectors in the request, which agents check with their own facts.
        older: Nodes whose agents would interpret the selectors differently. If there are any, `targets` contains the names of the
            target nodes.
        certified: The key of each node whose record was verified, and the end of its certificate in milliseconds since 1970 (0:
            it has none).
        revoked: The keys that were revoked when the nodes were verified.
    """

    nodes: list[str]
    offline: list[str]
    scopes: list[str]
    targets: list[str]
    where: str = ""
    older: list[str] = []
    certified: dict[str, tuple[str, int]] = {}
    revoked: frozenset[str] = frozenset()

    @property
    def present(self) -> list[str]:
        """The nodes that are present, in the order of `nodes`."""
        offline = set(self.offline)
        return [node for node in self.nodes if node not in offline]

    def in_order(self, order: Sequence[str]) -> TargetSet:
        """
        Return the same nodes in the order for a rollout's record: present ones in the order of the waves, then offline ones.
        """
        return msgspec.structs.replace(self, nodes=[*order, *self.offline])


def suggest_node(word: str, known: Iterable[str], prefix: str = "") -> str:
    """
    Return the end of an error message about an unknown node: the most similar known name, or the command that lists the nodes.
    """
    near = nearest(word, known)
    return f", did you mean {prefix}{near}?" if near else "; see `ccmctl node list`"


def _nested(routed: Mapping[str, Any]) -> dict[str, Any]:
    """Convert `{"site.dc": "a"}` to `{"site": {"dc": "a"}}`."""
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
