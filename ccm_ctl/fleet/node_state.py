"""
Which entries of nodes were verified: presence, record and facts, and the services that nodes registered (ADR 115).

Lists show everything. Decisions, such as targets, gates and `plan --impact`, use what `verify_nodes` and `VerifiedServices`
leave: an entry that its node did not sign is left out, and the operator is warned. An entry without any signature is used, as
that of an agent of an earlier version, unless the signers list demands signatures, or the node signed another of its entries.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from ccm_agent.bus.layout import NODES
from ccm_agent.bus.node_state import StateReader
from ccm_agent.bus.signing import SignatureError
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.errors import BusSetupError
from ccm_agent.model.registration import sort_key
from ccm_agent.registration.entries import find_forgery
from ccm_ctl.fleet.newest_signers import read_newest_signers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ccm_agent.model.registration import RegistrationEntry
    from ccm_agent.registration.entries import StreamEntry
    from ccm_ctl.fleet.discovery import Inventory, Node
    from ccm_ctl.fleet.ports import Fleet, ServiceRegistry

NAMED = 3
"""The number of entries that a warning names."""

LIST_VERIFIED = 1_000
"""The most nodes of which a list verifies the signatures, which takes 0.4 ms for each."""

AT_ONCE = 100
"""The number of nodes that a list verifies before others have their turn."""

NOT_SIGNED = "it is not signed"


async def make_state_reader(fleet: Fleet) -> StateReader | None:
    """What verifies entries of nodes; None when these credentials name no root key, as in unsigned operation."""
    if fleet.trust is None:
        return None
    signers = await read_newest_signers(fleet, fleet.trust)
    return StateReader(fleet.trust.root, signers, lambda: int(time.time() * 1000))


async def mark_unverified(fleet: Fleet, nodes: Sequence[Node]) -> None:
    """
    Set `unverified` of nodes that are shown. Nothing is left out.

    Of more than LIST_VERIFIED nodes, only the presence of signatures is checked: a list must not take longer because of them.
    """
    reader = await make_state_reader(fleet)
    if reader is not None:
        for place, node in enumerate(nodes, 1):
            if place % AT_ONCE == 0:
                await asyncio.sleep(0)
            judge_node(reader, node, is_quick=len(nodes) > LIST_VERIFIED)


def judge_node(verifier: StateReader, node: Node, *, is_quick: bool = False) -> None:
    """Set `unverified` of a node by the entries that were read of it; `is_quick`: any signature counts."""
    certificate = node.record.certificate if node.record is not None else ""
    bare, signs = [], False
    for kind, entry in node.entries.items():
        subject = key_subject(NODES, f"{kind}.{node.name}")
        if not entry.signature:
            bare.append(kind)
            continue
        if is_quick:
            signs = True
            continue
        try:
            signer = verifier.read_signer(subject, entry.value, entry.signature, certificate)
            if signer != node.name:
                raise SignatureError(f"signed with the key of {signer}")
        except SignatureError as err:
            node.unverified[kind] = err.message.removeprefix(f"{subject}: ")
        else:
            signs = True
            node.unverified.pop(kind, None)
    for kind in bare:
        if verifier.is_demanded or signs:
            node.unverified[kind] = (
                f"{NOT_SIGNED}, and the node signs {'its other entries' if signs else 'entries'}"
            )


def leave_out(node: Node) -> list[str]:
    """Take what is not verified from a node, before a decision; what was taken, with the reason of each."""
    taken = [f"{kind} of {node.name} ({reason})" for kind, reason in sorted(node.unverified.items())]
    if "presence" in node.unverified:
        node.presence = None
    if "facts" in node.unverified:
        node.gathered = {}
    if "node" in node.unverified:
        node.record = node.written = None
    for kind in node.unverified:
        node.entries.pop(kind, None)
    node.unverified = {}
    return taken


def verify_nodes(verifier: StateReader, inventory: Inventory, names: Iterable[str]) -> list[str]:
    """Leave out what these nodes did not sign; what was left out, in words."""
    found = []
    for name in names:
        judge_node(verifier, inventory.nodes[name])
        found += leave_out(inventory.nodes[name])
    return found


def format_left_out(found: Sequence[str], what: str) -> str:
    """The warning: how many, the first ones, and what to do."""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"left out {len(found)} {what} not signed by their node: {'; '.join(found[:NAMED])}{more}"


async def judge_services(fleet: Fleet, entries: Iterable[StreamEntry]) -> list[tuple[StreamEntry, str]]:
    """Each registration with the reason why it is not one that a node signed; "" if it is, or if nothing is verified."""
    verifier = await make_state_reader(fleet)
    return [(one, find_forgery(verifier, one) if verifier is not None else "") for one in entries]


class VerifiedServices:
    """The registered services that gates and reports use. What a node did not sign is left out, with a warning."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def registrations(
        self, cluster: str, protocol: str, service: str, address: str
    ) -> list[RegistrationEntry]:
        """The verified entries that match, as `registrations()` in a template returns them."""
        registry = self._registry()
        found = await self._verified(await registry.matching(cluster, protocol, service, address))
        return sorted((one.entry for one in found if one.entry is not None), key=sort_key)

    async def stored(self) -> list[StreamEntry]:
        """The verified entries, and marks of removed ones."""
        return await self._verified(await self._registry().stored())

    async def kv_get(self, bucket: str, key: str) -> bytes | None:
        """Not used by gates, which have no `kvGet`."""
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
