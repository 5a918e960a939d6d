"""Find the proven keys of the nodes that get a secret."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ccm_agent.bus.signatures.signing import SignatureError, read_claims
from ccm_agent.bus.signatures.trust import Trust, read_certificate
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.errors import SelectorLimitError, UsageError
from ccm_agent.templates.selector import Selector, parse_targets
from ccm_ctl.fleet.keys.join_records import left_keys
from ccm_ctl.fleet.nodes.groups import expand_groups
from ccm_ctl.fleet.nodes.inventory import read_inventory
from ccm_ctl.fleet.nodes.nodes import ASSIGNED, Inventory, Node
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust.node_state import NodeVerifier, judge_assigned, make_node_verifier

TARGETS_LIMIT = 20

AT_ONCE = 32
"""The number of nodes that are verified before other tasks may run."""


class CertifiedKeys:
    """
    Finds the keys of nodes by selectors.

    Args:
        fleet: The fleet.
        trust: The fleet's root key.
    """

    def __init__(self, fleet: Fleet, trust: Trust) -> None:
        self._fleet = fleet
        self._trust = trust
        self._verifier: NodeVerifier | None = None
        self._inventory: Inventory | None = None

    async def selectors(self, targets: Sequence[str]) -> list[Selector]:
        """
        Parse the selectors of a secret.

        Raises:
            UsageError: There are too many, or one of them matches nodes that lack a fact. With such a selector, an attacker could
                give a node the secret by withholding its assigned facts.
        """
        if len(targets) > TARGETS_LIMIT:
            raise UsageError(f"a secret has at most {TARGETS_LIMIT} selectors; use a fact or a group instead")
        selectors = parse_targets(await expand_groups(self._fleet, targets))
        for selector in selectors:
            if negated := next((term for term in selector.terms if term.is_negated), None):
                raise UsageError(
                    f"{negated}: a secret cannot be for nodes that lack a fact; assign a fact to its nodes"
                )
        return selectors

    async def of(self, targets: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the keys of the nodes that match the selectors, by name, and the reasons for nodes without a proven key."""
        selectors = await self.selectors(targets)
        if self._inventory is None:
            # one command processes many secrets, so the inventory is read once
            self._inventory = await read_inventory(self._fleet)
        verifier = await self._node_verifier()
        left = await left_keys(self._fleet)
        keys: dict[str, str] = {}
        problems: dict[str, str] = {}
        for place, node in enumerate(self._inventory.nodes.values(), 1):
            if place % AT_ONCE == 0:
                await asyncio.sleep(0)
            judge_assigned(verifier, node)
            try:
                if not any(selector.matches(node.name, node.assigned) for selector in selectors):
                    continue
                if reason := node.unverified.get(ASSIGNED):
                    raise SignatureError(f"its assigned facts are not verified: {reason}")
                key = self._certified_key(verifier, node)
                if key in left:
                    raise SignatureError(
                        "it has left the fleet; remove it with `ccmctl node rm`, or let it join again"
                    )
                keys[node.name] = key
            except SelectorLimitError as err:
                problems[node.name] = err.message
            except SignatureError as err:
                problems[node.name] = _without_subject(err, node)
        return keys, problems

    async def doubt_record(self, node: Node) -> str:
        """Return why a node's record is not proven, or "" if it is."""
        try:
            self._certified_key(await self._node_verifier(), node)
        except SignatureError as err:
            return _without_subject(err, node)
        return ""

    def _certified_key(self, verifier: NodeVerifier, node: Node) -> str:
        """
        Return the key of a node. The root has certified it, and the node has used it.

        Raises:
            SignatureError: No key is proven.
        """
        entry = node.entries.get("node")
        if entry is None or node.record is None:
            raise SignatureError("it has never connected, so its key is not known")
        if not entry.signature or not node.record.certificate:
            raise SignatureError(
                f"its record is not signed with a certified key; issue credentials with `ccmctl node add {node.name}`"
            )
        subject = key_subject("CCM_NODES", f"node.{node.name}")
        signer = verifier.state.read_signer(
            subject, entry.value, entry.signature, node.record.certificate, is_timed=False
        )
        if signer != node.name:
            raise SignatureError(f"its record is signed with the key of {signer}")
        key = read_claims(entry.signature).key
        expires = read_certificate(node.record.certificate, node.name, key, self._trust.root).expires
        if expires and expires < self._fleet.clock.now().timestamp() * 1000:
            raise SignatureError(
                f"the certificate of its key has expired; issue credentials with `ccmctl node add {node.name}`"
            )
        return key

    async def _node_verifier(self) -> NodeVerifier:
        if self._verifier is None:
            self._verifier = await make_node_verifier(self._fleet)
        assert self._verifier is not None  # it is None only if there is no trust block
        return self._verifier


def _without_subject(err: SignatureError, node: Node) -> str:
    return err.message.removeprefix(f"{key_subject('CCM_NODES', f'node.{node.name}')}: ")
