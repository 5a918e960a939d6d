"""
Verify entries of nodes: presence, record and facts, and the services that nodes registered (ADR 115).

Lists show everything. Decisions, such as targets, gates and `plan --impact`, use only the data that `verify_nodes` and
`VerifiedServices` accept. An entry that its node did not sign is left out, and the operator is warned. An entry without any
signature may be from an agent of an earlier version. It is used unless the signers list requires signatures or the node signed
another of its entries.

Assigned facts also select nodes. They are valid if they are signed by an operator with the right to write them. The rights are in
the same signers list.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.bus.layout import FACTS, NODES
from ccm_agent.bus.signatures.node_state import StateReader
from ccm_agent.bus.signatures.signing import SignatureError, SignatureTimeError
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.errors import BusSetupError
from ccm_agent.model.records.registration import sort_key
from ccm_agent.registration.entries import find_forgery
from ccm_ctl.fleet.nodes.nodes import ASSIGNED
from ccm_ctl.fleet.trust.newest_signers import read_newest_signers
from ccm_ctl.fleet.trust.verified_reader import VerifiedReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ccm_agent.bus.signatures.trust import Signer
    from ccm_agent.model.ports import KeyValueEntry
    from ccm_agent.model.records.registration import RegistrationEntry
    from ccm_agent.registration.entries import StreamEntry
    from ccm_ctl.fleet.nodes.nodes import Inventory, Node
    from ccm_ctl.fleet.ports import Fleet, ServiceRegistry

NAMED = 3
"""The maximum number of entries named in a warning."""

LIST_VERIFIED = 1_000
"""The maximum number of nodes whose signatures a list verifies. Each takes 0.4 ms."""

AT_ONCE = 100
"""The number of nodes that a list verifies before other tasks may run."""

NOT_SIGNED = "it is not signed"


class NodeVerifier(Struct, frozen=True, kw_only=True):
    """
    Verifies the entries about nodes.

    Attributes:
        state: Verifies entries signed by nodes.
        facts: Verifies assigned facts.
        own_signer: This operator's entry in the signers list, or None.
    """

    state: StateReader
    facts: VerifiedReader
    own_signer: Signer | None = None

    def judge_facts(self, entry: KeyValueEntry) -> str:
        """Return why assigned facts are not valid, or "" if they are."""
        return self.facts.document(FACTS, entry).reason


class LeftOutReasons(Struct, kw_only=True):
    """
    The data that a decision does not use, as texts.

    Attributes:
        entries: Entries that were not signed by their node.
        assigned: Assigned facts that were not signed by an operator with the right to write them.
    """

    entries: list[str] = []
    assigned: list[str] = []

    def take(self, node: Node) -> bool:
        """Remove the unverified data from a node that was judged. Returns whether there were any."""
        entries, assigned = leave_out(node)
        self.entries += entries
        self.assigned += assigned
        return bool(entries or assigned)

    def warn(self, fleet: Fleet) -> None:
        """Warn the operator."""
        if self.entries:
            fleet.warn(format_left_out(self.entries, "entries"))
        if self.assigned:
            fleet.warn(
                format_left_out(
                    self.assigned, "documents of assigned facts", "an operator who may write them"
                )
            )


async def make_state_reader(fleet: Fleet) -> StateReader | None:
    """Return a verifier for entries of nodes. None: the credentials contain no root key, for example in unsigned operation."""
    verifier = await make_node_verifier(fleet)
    return verifier.state if verifier is not None else None


async def make_node_verifier(fleet: Fleet, *, remembers: bool = True) -> NodeVerifier | None:
    """
    Return a verifier for entries of nodes and assigned facts. See `make_state_reader`, and `StateReader` for `remembers`.
    """
    if fleet.trust is None:
        return None
    signers, now_ms = await read_newest_signers(fleet, fleet.trust), int(time.time() * 1000)
    key = fleet.signatory.public_key if fleet.signatory is not None else ""
    return NodeVerifier(
        state=StateReader(fleet.trust.root, signers, lambda: int(time.time() * 1000), remembers=remembers),
        facts=VerifiedReader(signers, fleet.clock, is_demanded=True),
        own_signer=signers.by_key(key, now_ms) if signers is not None and key else None,
    )


async def mark_unverified(fleet: Fleet, nodes: Sequence[Node]) -> None:
    """
    Set `unverified` of nodes for display. No data are removed.

    For more than LIST_VERIFIED nodes, only the presence of signatures is checked, to limit the time.
    """
    await judge_listed(await make_node_verifier(fleet), nodes, len(nodes))


async def judge_listed(verifier: NodeVerifier | None, nodes: Sequence[Node], total: int) -> None:
    """Mark some nodes of a list of `total` nodes. See `mark_unverified`. Without a verifier, no node is marked."""
    if verifier is not None:
        for place, node in enumerate(nodes, 1):
            if place % AT_ONCE == 0:
                await asyncio.sleep(0)
            judge_node(verifier, node, is_quick=total > LIST_VERIFIED)


def warn_of_length(fleet: Fleet, count: int) -> None:
    """Warn if the number of nodes is so high that `mark_unverified` does not verify their signatures."""
    if fleet.trust is not None and count > LIST_VERIFIED:
        fleet.warn(
            f"more than {LIST_VERIFIED:,} nodes: ccmctl checked only that signatures exist, not that they are valid; "
            "`ccmctl node list --targets` verifies the nodes that it selects"
        )


def judge_node(verifier: NodeVerifier, node: Node, *, is_quick: bool = False) -> None:
    """
    Set `unverified` and `is_mistimed` of a node from its entries. `is_quick`: any signature is accepted.

    The signatures of a node with a wrong clock are for another time. Its record and facts are genuine. Its presence may be an old
    one that was replayed, so it is not used as a heartbeat, but requests are still sent to the node.
    """
    judge_assigned(verifier, node, is_quick=is_quick)
    _judge_own(verifier.state, node, is_quick=is_quick)


def judge_assigned(verifier: NodeVerifier, node: Node, *, is_quick: bool = False) -> None:
    """Judge only the assigned facts. See `judge_node`."""
    entry = node.entries.get(ASSIGNED)
    if entry is None or (is_quick and entry.signature):
        return
    _mark(node, ASSIGNED, verifier.judge_facts(entry))


def _judge_own(verifier: StateReader, node: Node, *, is_quick: bool) -> None:
    certificate = node.record.certificate if node.record is not None else ""
    bare, signs = [], node.signs
    for kind, entry in node.entries.items():
        if kind == ASSIGNED:
            continue
        subject = key_subject(NODES, f"{kind}.{node.name}")
        if not entry.signature:
            bare.append(kind)
            continue
        if is_quick:
            signs = True
            continue
        try:
            signer = _read_signer(verifier, node, kind, subject, entry, certificate)
            if signer != node.name:
                raise SignatureError(f"signed with the key of {signer}")
        except SignatureError as err:
            _mark(node, kind, err.message.removeprefix(f"{subject}: "))
        else:
            signs = node.signs = True
            _mark(node, kind, "")
            if kind == "node" and node.record is not None:
                with contextlib.suppress(SignatureError):
                    node.certified = verifier.read_key(node.name, node.record.key, certificate)
    for kind in bare:
        if verifier.is_demanded or signs:
            what = "its other entries" if signs else "entries"
            _mark(node, kind, f"{NOT_SIGNED}, and the node signs {what}")


def _mark(node: Node, kind: str, reason: str) -> None:
    """Record why an entry is not verified; "": it is."""
    if reason:
        node.unverified = {**node.unverified, kind: reason}
    elif kind in node.unverified:
        node.unverified = {one: why for one, why in node.unverified.items() if one != kind}


def _read_signer(
    verifier: StateReader, node: Node, kind: str, subject: str, entry: KeyValueEntry, certificate: str
) -> str:
    try:
        return verifier.read_signer(subject, entry.value, entry.signature, certificate)
    except SignatureTimeError:
        node.is_mistimed = node.is_mistimed or kind == "presence"
        return verifier.read_signer(subject, entry.value, entry.signature, certificate, is_timed=False)


def leave_out(node: Node) -> tuple[list[str], list[str]]:
    """
    Remove the unverified data from a node before a decision. Returns the removed entries and assigned facts, with the reasons.
    """
    found = sorted(node.unverified.items())
    taken = [f"{kind} of {node.name} ({reason})" for kind, reason in found if kind != ASSIGNED]
    assigned = [f"{node.name} ({reason})" for kind, reason in found if kind == ASSIGNED]
    if assigned:
        node.assigned = {}
    if "presence" in node.unverified:
        node.presence, node.is_mistimed = None, False
    elif node.is_mistimed:
        node.presence = None
    if "facts" in node.unverified:
        node.gathered = {}
    if "node" in node.unverified:
        node.record = node.written = None
    if found:
        node.entries = {kind: one for kind, one in node.entries.items() if kind not in node.unverified}
        node.unverified = {}
    return taken, assigned


async def verify_nodes(
    verifier: NodeVerifier, inventory: Inventory, names: Iterable[str], left_out: LeftOutReasons
) -> bool:
    """
    Remove the unverified data of these nodes, and record the data as left out. Returns whether there were any.

    Verified entries are not verified again. Unsigned entries are kept, because an entry that is read later may show that the
    node signs.
    """
    nodes = [inventory.nodes[name] for name in names]
    count = max(1, min(os.cpu_count() or 1, len(nodes) // AT_ONCE))
    async with asyncio.TaskGroup() as group:
        for first in range(count):  # libsodium releases the interpreter lock
            part = asyncio.to_thread(_judge_nodes, verifier, nodes[first::count])
            group.create_task(part, name=f"verify:{first}")
    is_any = False
    for node in nodes:
        is_any |= left_out.take(node)
        if any(entry.signature for entry in node.entries.values()):
            node.entries = {kind: one for kind, one in node.entries.items() if not one.signature}
    return is_any


def _judge_nodes(verifier: NodeVerifier, nodes: Sequence[Node]) -> None:
    for node in nodes:
        judge_node(verifier, node)


def format_left_out(found: Sequence[str], what: str, by: str = "their node") -> str:
    """Return the text of the warning, with the number of entries and the first of them."""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"left out {len(found)} {what} not signed by {by}: {'; '.join(found[:NAMED])}{more}"


async def judge_services(fleet: Fleet, entries: Iterable[StreamEntry]) -> list[tuple[StreamEntry, str]]:
    """
    Return each registration with the reason why it is not verified. "": a node signed it, or these credentials do not verify
    registrations.
    """
    verifier = await make_state_reader(fleet)
    return [(one, find_forgery(verifier, one) if verifier is not None else "") for one in entries]


class VerifiedServices:
    """The registered services for gates and reports. Entries that were not signed by their node are left out, with a warning."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def registrations(
        self, cluster: str, protocol: str, service: str, address: str
    ) -> list[RegistrationEntry]:
        """Return the verified entries that match, in the form of `registrations()` in a template."""
        registry = self._registry()
        found = await self._verified(await registry.matching(cluster, protocol, service, address))
        return sorted((one.entry for one in found if one.entry is not None), key=sort_key)

    async def stored(self) -> list[StreamEntry]:
        """Return the verified entries, and the marks for expired and removed services."""
        return await self._verified(await self._registry().stored())

    async def kv_get(self, bucket: str, key: str) -> bytes | None:
        """Refuse the read. Gates have no `kvGet`."""
        raise NotImplementedError(f"a gate cannot read {key} of {bucket}")

    def _registry(self) -> ServiceRegistry:
        if self._fleet.services is None:
            raise BusSetupError("the registered services of this broker cannot be read")
        return self._fleet.services

    async def _verified(self, entries: list[StreamEntry]) -> list[StreamEntry]:
        kept, left_out = [], []
        for one, reason in await judge_services(self._fleet, entries):
            if reason:
                left_out.append(f"{one.subject} ({reason})")
            else:
                kept.append(one)
        if left_out:
            self._fleet.warn(format_left_out(left_out, "registrations"))
        return kept
