"""Nodes that sign their events: a root key, credentials with certificates, and chains made by hand."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from pathlib import Path

import nkeys

from ccm_agent.bus.chain import PLACE_DETAIL
from ccm_agent.bus.signatures.signing import SignatureKind, SigningKey
from ccm_agent.bus.signatures.trust import SignersList, Trust, certify_node, sign_signers
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.secret import Secret
from ccm_agent.storage.spool_chain import Chain
from ccm_agent.storage.spool_segment import Kind as EventKind
from ccm_agent.storage.spool_segment import Spooled


def new_seed() -> Secret:
    """A seed of a user."""
    return Secret(nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER).decode())


def now_ms() -> int:
    """The time."""
    return int(time.time() * 1000)


class Root:
    """A fleet's root key, and what it signs."""

    def __init__(self) -> None:
        self.key = SigningKey(new_seed())
        self.number = 0

    def certificate(self, node: str, key: SigningKey, *, expires_ms: int = 0, issued_ms: int = 0) -> str:
        """A certificate: the root says that a key is a node's."""
        issued = issued_ms or now_ms()
        return certify_node(self.key, node, key.public_key, issued_ms=issued, expires_ms=expires_ms)

    def trust(
        self, *, certificate: str = "", revoked: Sequence[str] = (), allow_unsigned_until: int = 0
    ) -> Trust:
        """The trust block of credentials that are made now."""
        self.number += 1
        signers = SignersList(
            number=self.number,
            issued=now_ms(),
            revoked_nodes=tuple(revoked),
            allow_unsigned_until=allow_unsigned_until,
        )
        return Trust(
            root=self.key.public_key, signers=sign_signers(self.key, signers), certificate=certificate
        )

    def credentials(self, node: str, seed: Secret) -> str:
        """What a node's credentials file holds, without the part for the broker."""
        key = SigningKey(seed)
        block = self.trust(certificate=self.certificate(node, key)).as_block()
        return f"-----BEGIN USER NKEY SEED-----\n{seed.reveal()}\n------END USER NKEY SEED------\n\n{block}"


def write_credentials(path: Path, root: Root, node: str) -> SigningKey:
    """New credentials of a node in a file; its key."""
    seed = new_seed()
    path.write_text(root.credentials(node, seed))
    return SigningKey(seed)


class Writer:
    """What one node writes: events with their places, signed as an agent signs them."""

    def __init__(self, key: SigningKey | None) -> None:
        self.key = key
        self.chain = Chain()
        self.sequence = 0

    def event(
        self, subject: str, body: bytes, *, run: str = "", kind: EventKind = EventKind.AGENT
    ) -> StoredEvent:
        """The next event."""
        self.sequence += 1
        event = Spooled(seq=self.sequence, subject=subject, event_id="", body=body, run=run, kind=kind)
        self.chain.take(event)
        signature = ""
        if self.key is not None and kind in (EventKind.AGENT, EventKind.SUMMARY):
            signature = sign_event(self.key, subject, body, event.chain)
        return StoredEvent(
            subject=subject, body=body, sequence=self.sequence, chain=event.chain, signature=signature
        )


def sign_event(key: SigningKey, subject: str, body: bytes, place: str, issued_ms: int = 0) -> str:
    """A signature as an agent makes it."""
    details = {PLACE_DETAIL: place}
    return key.sign(SignatureKind.EVENT, subject, body, issued_ms=issued_ms or now_ms(), details=details)
