"""
The keys that sign for each node, as certified by the fleet's root.

The root's public key is part of the operator's own credentials, so the broker cannot replace it. A certificate can be from any
source, such as the node's record or an event about its key. It is valid if the root signed it for this node and this key.
"""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.chain import PLACE_DETAIL
from ccm_agent.bus.signatures.signing import SignatureError, SignatureKind, verify_content
from ccm_agent.bus.signatures.trust import read_certificate
from ccm_agent.bus.subjects import event_subject, parse_event
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.records.verdicts import Verdict
from ccm_agent.model.wire import AGENT_KEY, AGENT_STARTUP, AgentEvent, NodeRecord
from ccm_ctl.fleet.trust.newest_signers import read_newest_signers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ccm_agent.bus.signatures.trust import SignersList
    from ccm_agent.model.ports import StoredEvent
    from ccm_ctl.fleet.nodes.nodes import TargetSet
    from ccm_ctl.fleet.ports import Fleet

KEY_EVENTS_READ = 1000
"""The maximum number of events about a node's keys that are searched for a certificate."""

RECORDS_AT_ONCE = 500
"""The maximum number of node records that are read with one request to the broker."""


class SignatureStatus(StrEnum):
    """The result of checking the signature of an event."""

    VALID = "valid"
    MISSING = "missing"
    UNKNOWN_KEY = "unknown key"
    """The signature is valid, but no root certificate of its key for this node was found."""
    EXPIRED = "expired"
    """The signature was made after all known certificates of its key for this node had expired."""
    BAD = "bad"


class SignatureCheck(Struct, frozen=True):
    """
    The result of checking a signature.

    Attributes:
        signature: The result.
        reason: The reason why it proves nothing. "": the signature is valid or missing.
        key: The signer's public nkey. "": the signature is missing or broken.
    """

    signature: SignatureStatus
    reason: str = ""
    key: str = ""


class Authors:
    """
    The keys of a fleet's nodes.

    Attributes:
        accepts_unsigned: Whether the signers list currently allows events without a signature.
    """

    def __init__(
        self,
        root: str,
        signers: SignersList | None,
        now_ms: int,
        certified: Mapping[str, tuple[str, int]] | None = None,
        revoked: frozenset[str] = frozenset(),
    ) -> None:
        """
        Store the keys that are known.

        Args:
            root: The root's public key.
            signers: The newest known signers list, or None.
            now_ms: The time, in milliseconds since 1970.
            certified, revoked: See `TargetSet`. If other keys are revoked now, the certificates are read again, because one of
                these keys may have certified them.
        """
        self.accepts_unsigned = signers is not None and signers.allows_unsigned(now_ms)
        self._root = root
        self._revoked = frozenset(signers.revoked_nodes) if signers is not None else frozenset[str]()
        self._given = certified if certified and revoked == self._revoked else {}
        self._certified: dict[tuple[str, str], int] = {}
        self._nodes: set[str] = set()

    def learn(self, node: str, key: str, certificate: str) -> None:
        """
        Store a certificate if the root signed it for this node and key.

        Nodes renew the certificates of their keys, so of several certificates, the one that is valid for longest is used.
        """
        known = self._find_expiry(node, key)
        if known == 0 or not key or not certificate:
            return
        try:
            claims = read_certificate(certificate, node, key, self._root)
        except SignatureError:
            return
        if claims.key in self._revoked:
            return
        if known is None or not claims.expires or claims.expires > known:
            self._certified[node, key] = claims.expires
            self._nodes.add(node)

    def learn_from(self, event: StoredEvent) -> None:
        """Store the certificate in an event about a node's key. Other events contain no certificates."""
        address = parse_event(event.subject)
        if address.protocol not in (AGENT_STARTUP, AGENT_KEY):
            return
        try:
            details = decode_foreign(event.body, AgentEvent).details
        except msgspec.MsgspecError:
            return
        key, certificate = details.get("key"), details.get("certificate")
        if isinstance(key, str) and isinstance(certificate, str):
            self.learn(address.node, key, certificate)

    def knows(self, node: str, key: str) -> bool:
        """Whether a certificate of this key for this node is known."""
        return self._find_expiry(node, key) is not None

    def is_current(self, node: str, key: str) -> bool:
        """Whether a certificate of this key for this node is known that has not expired."""
        expires = self._find_expiry(node, key)
        return expires is not None and (not expires or expires > time.time() * 1000)

    def certified(self, node: str) -> bool:
        """Whether a certificate of any key for this node is known. Such a node signs its events."""
        return node in self._given or node in self._nodes

    def check(self, node: str, event: StoredEvent) -> SignatureCheck:
        """Check the signature of an event of a node."""
        if not event.signature:
            return SignatureCheck(SignatureStatus.MISSING)
        try:
            claims = verify_content(event.signature, SignatureKind.EVENT, event.subject, event.body)
        except SignatureError as err:
            return SignatureCheck(SignatureStatus.BAD, err.message.removeprefix(f"{event.subject}: "))
        if claims.details.get(PLACE_DETAIL, "") != event.chain:
            return SignatureCheck(SignatureStatus.BAD, "the signature is for another place in the chain")
        key = claims.key
        if key in self._revoked:
            return SignatureCheck(SignatureStatus.BAD, f"signed with {key}, which was revoked", key)
        expires = self._find_expiry(node, key)
        if expires is None:
            reason = f"signed with {key}, which the root has not certified for this node"
            return SignatureCheck(SignatureStatus.UNKNOWN_KEY, reason, key)
        if expires and claims.issued > expires:
            reason = f"signed with {key} after its certificate had expired"
            return SignatureCheck(SignatureStatus.EXPIRED, reason, key)
        return SignatureCheck(SignatureStatus.VALID, key=key)

    def _find_expiry(self, node: str, key: str) -> int | None:
        found = self._certified.get((node, key))
        if found is None and (given := self._given.get(node)) is not None and given[0] == key:
            return given[1]
        return found

    def judge(self, node: str, event: StoredEvent) -> Verdict:
        """
        Read the certificate in a new event of a node, and return the verdict based on the event's signature.

        An event without a signature or with an unknown certificate is PROVISIONAL, because a later event of the node may prove
        it.
        """
        self.learn_from(event)
        signature = self.check(node, event).signature
        if signature in (SignatureStatus.BAD, SignatureStatus.EXPIRED):
            return Verdict.FORGED
        return Verdict.VERIFIED if signature is SignatureStatus.VALID else Verdict.PROVISIONAL

    def accepts(self, node: str, event: StoredEvent) -> bool:
        """
        Whether an event of a kind that nodes sign is accepted as the node's own.

        It is accepted if its signature is valid. While the signers list allows unsigned events, an event without a valid
        signature is also accepted if no certificate of the node is known. Call `find_certificates` first.
        """
        signature = self.check(node, event).signature
        proves_nothing = signature in (SignatureStatus.MISSING, SignatureStatus.UNKNOWN_KEY)
        return signature is SignatureStatus.VALID or (
            proves_nothing and self.accepts_unsigned and not self.certified(node)
        )


async def read_authors(fleet: Fleet, resolved: TargetSet | None = None) -> Authors | None:
    """
    Return the keys with which this operator can verify nodes. None: the credentials contain no root key.

    The newest signers list is used: the published one, or the one in the credentials if that is newer. The certificates of
    `resolved` nodes are known.
    """
    if fleet.trust is None:
        return None
    now_ms = int(time.time() * 1000)
    signers = await read_newest_signers(fleet, fleet.trust)
    if resolved is None:
        return Authors(fleet.trust.root, signers, now_ms)
    return Authors(fleet.trust.root, signers, now_ms, resolved.certified, resolved.revoked)


async def find_certificates(fleet: Fleet, authors: Authors, wanted: Iterable[tuple[str, str]]) -> None:
    """
    Find the certificates of keys, first in the nodes' records, then in the events about their keys.

    Args:
        fleet: The bus.
        authors: Receives the certificates.
        wanted: The node and the key of each certificate. If the key is "", only the node's record is read.
    """
    missing = {pair for pair in wanted if not authors.is_current(*pair)}
    await learn_records(fleet, authors, sorted({node for node, _ in missing}))
    for node in sorted({node for node, key in missing if key and not authors.knows(node, key)}):
        await _learn_events(fleet, authors, node)


async def learn_records(fleet: Fleet, authors: Authors, nodes: Iterable[str]) -> None:
    """Read the certificates in the records of nodes."""
    names = list(nodes)
    for begin in range(0, len(names), RECORDS_AT_ONCE):
        keys = [f"node.{name}" for name in names[begin : begin + RECORDS_AT_ONCE]]
        for entry in await fleet.nodes.matching(keys):
            try:
                record = decode_foreign(entry.value, NodeRecord)
            except msgspec.MsgspecError:
                continue
            authors.learn(entry.key.removeprefix("node."), record.key, record.certificate)


async def _learn_events(fleet: Fleet, authors: Authors, node: str) -> None:
    for protocol in (AGENT_STARTUP, AGENT_KEY):
        count = 0
        async for event in fleet.events.scan(event_subject(protocol, node)):
            authors.learn_from(event)
            count += 1
            if count >= KEY_EVENTS_READ:
                break
