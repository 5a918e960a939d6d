"""
What a node stores about itself, signed with its key (ADR 115), and what other nodes stored, verified.

The signature is of kind `state`, over the subject and the exact bytes. That of an entry that expires expires with it, so
the holder of the broker cannot show an old presence as a new one. Controllers have the certificate of the key from the node's
record. Entries that other nodes read carry it: those of slots and registrations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.signatures.signing import (
    CERTIFICATE_HEADER,
    SIGNATURE_HEADER,
    SKEW_MS,
    Claims,
    SignatureError,
    SignatureKind,
    check_times,
    read_claims,
)
from ccm_agent.bus.signatures.trust import read_certified
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.records.slots import BUCKET as SLOTS_BUCKET

if TYPE_CHECKING:
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.signatures.node_key import NodeKey
    from ccm_agent.bus.signatures.trust import SignersList
    from ccm_agent.model.ports import KeyValueEntry

TTL_HEADER = "Nats-TTL"


class NodeStateBucket(NatsKeyValue):
    """A bucket in which this node stores its own entries: each of them is signed."""

    def __init__(
        self,
        connection: Connection,
        bucket: str,
        key: NodeKey,
        now_ms: Callable[[], int],
        *,
        carries_certificate: bool = False,
    ) -> None:
        """
        Take a bucket.

        Args:
            connection: The connection to the broker.
            bucket: Its name.
            key: The node's key.
            now_ms: Returns the time in milliseconds since 1970.
            carries_certificate: Other nodes read the entries.
        """
        super().__init__(connection, bucket)
        self._key = key
        self._now_ms = now_ms
        self._carries_certificate = carries_certificate

    async def _write(self, key: str, value: bytes, headers: dict[str, str]) -> int:
        now_ms = self._now_ms()
        ttl_s = int(headers.get(TTL_HEADER, 0))
        signed = self._key.sign_state(
            key_subject(self.bucket, key),
            value,
            issued_ms=now_ms,
            expires_ms=now_ms + ttl_s * 1000 if ttl_s else 0,
            carries_certificate=self._carries_certificate,
        )
        return await super()._write(key, value, {**headers, **signed})


class StateReader:
    """
    Verifies what nodes stored, by the certificates next to it.

    Attributes:
        is_demanded: What is not signed is refused: the signers list demands it.
    """

    def __init__(self, root: str, signers: SignersList | None, now_ms: Callable[[], int]) -> None:
        """
        Take what is trusted.

        Args:
            root: The root's public key.
            signers: The newest signers list; None: none is known.
            now_ms: Returns the time in milliseconds since 1970.
        """
        self.is_demanded = (
            signers is not None and signers.signed_state and not signers.allows_unsigned(now_ms())
        )
        self._root = root
        self._revoked = frozenset(signers.revoked_nodes) if signers is not None else frozenset[str]()
        self._now_ms = now_ms

    def read_signer(
        self, subject: str, body: bytes, signature: str, certificate: str, *, is_timed: bool = True
    ) -> str:
        """
        The node that signed an entry; "" if it is not signed, and need not be.

        Args:
            subject, body: What is stored, and where.
            signature, certificate: Its headers; the certificate may come from elsewhere.
            is_timed: Whether its times are checked. They are those of the node's clock, which may be wrong.

        Raises:
            SignatureError: It is not signed as it has to be; a SignatureTimeError if only its times are wrong.
        """
        if not signature and not self.is_demanded:
            return ""
        claims = verify_state(signature, subject, body)
        if claims.key in self._revoked:
            raise SignatureError(f"{subject}: signed with {claims.key}, which was revoked")
        if not certificate:
            raise SignatureError(f"{subject}: the certificate of its signing key is missing")
        node, expires, certifier = _certified(certificate, claims.key, self._root)
        if certifier in self._revoked:
            raise SignatureError(f"{subject}: its key was certified with {certifier}, which was revoked")
        if expires and claims.issued > expires:
            raise SignatureError(f"{subject}: signed with {claims.key} after its certificate expired")
        if is_timed:
            # clocks differ, so the holder of the broker can show a presence this much longer than it lasts
            check_times(claims, subject, now_ms=self._now_ms(), late_ms=SKEW_MS)
        return node


class StateReaderRef:
    """
    What an agent verifies the entries of other nodes with, once it knows the signers list.

    Attributes:
        get: Returns it; None where nothing is verified.
    """

    def __init__(self) -> None:
        self.get: Callable[[], StateReader | None] = lambda: None


def verify_state(signature: str, subject: str, body: bytes) -> Claims:
    """
    The claims of what a node stored. The caller checks its times, and whose key it is.

    Raises:
        SignatureError: It is not signed, or was changed.
    """
    if not signature:
        raise SignatureError(f"{subject}: it is not signed")
    claims = _read_claims(signature)
    if claims.kind != SignatureKind.STATE or claims.subject != subject:
        raise SignatureError(f"{subject}: the signature is for a {claims.kind} of {claims.subject}")
    if claims.digest != hashlib.sha256(body).hexdigest():
        raise SignatureError(f"{subject}: the content was changed after signing")
    return claims


_read_claims = lru_cache(maxsize=32_768)(read_claims)
"""Gates and templates read the same entries again and again."""


@lru_cache(maxsize=131_072)
def _certified(certificate: str, key: str, root: str) -> tuple[str, int, str]:
    """
    The node that a certificate names, until when its key is certified, and the key that certified it.

    The time is in milliseconds since 1970; 0: without end. A scan of more nodes than the cache keeps finds nothing in it. Only
    certificates that lead to the root are in it.
    """
    node, certified = read_certified(certificate, key, root)
    return node, certified.expires, certified.key


def state_headers(headers: Mapping[str, str]) -> tuple[str, str]:
    """Signature and certificate of a stored entry; "" for what it lacks."""
    return headers.get(SIGNATURE_HEADER, ""), headers.get(CERTIFICATE_HEADER, "")


def find_slot_forgery(reader: StateReader | None, entry: KeyValueEntry) -> str:
    """
    Why an entry of a slot is not that of its node; "" if it is, or if nothing is verified.

    Its times are not checked: an ignored entry lets another node take the slot, and a wrong clock must not do that.
    """
    if reader is None:
        return ""
    subject = key_subject(SLOTS_BUCKET, entry.key)
    node = entry.key.partition(".")[2]
    try:
        signer = reader.read_signer(subject, entry.value, entry.signature, entry.certificate, is_timed=False)
    except SignatureError as err:
        return err.message.removeprefix(f"{subject}: ")
    return f"signed with the key of {signer}" if signer not in ("", node) else ""
