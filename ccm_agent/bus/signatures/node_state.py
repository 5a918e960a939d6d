"""
The entries that a node stores about itself, signed with its key (ADR 115), and the verification of other nodes' entries.

The signature has the kind `state` and covers the subject and the exact bytes. It expires with its entry, so an attacker who
controls the broker cannot show an old presence as a new one. Controllers get the certificate of the key from the node's record.
Entries that other nodes read (slots and registrations) contain the certificate.
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
    """A bucket in which this node stores its own entries, each of them signed."""

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
        Create the port for a bucket.

        Args:
            connection: The connection to the broker.
            bucket: The name of the bucket.
            key: The node's key.
            now_ms: Returns the time in milliseconds since 1970.
            carries_certificate: Whether entries include the certificate, because other nodes read them.
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
    Verifies entries of nodes with the certificates stored next to them.

    Attributes:
        is_demanded: Whether unsigned entries are refused, because the signers list requires signatures.
        revoked: The revoked keys of nodes and of those that certify nodes.
    """

    def __init__(
        self,
        root: str,
        signers: SignersList | None,
        now_ms: Callable[[], int],
        *,
        remembers: bool = True,
    ) -> None:
        """
        Create a reader that trusts a root key and a signers list.

        Args:
            root: The root's public key.
            signers: The newest signers list; None if there is none.
            now_ms: Returns the time in milliseconds since 1970.
            remembers: Whether this process may read the same entries again. If so, verified signatures stay in memory.
        """
        self.is_demanded = (
            signers is not None and signers.signed_state and not signers.allows_unsigned(now_ms())
        )
        self._root = root
        self.revoked = frozenset(signers.revoked_nodes) if signers is not None else frozenset[str]()
        self._now_ms = now_ms
        self._read_claims = _read_claims if remembers else read_claims
        # the certificate of a node is needed for each of its entries
        self._read_certified = _read_certified if remembers else lru_cache(maxsize=64)(_certified)

    def read_signer(
        self, subject: str, body: bytes, signature: str, certificate: str, *, is_timed: bool = True
    ) -> str:
        """
        Return the node that signed an entry; "" if the entry is not signed and signatures are not required.

        Args:
            subject, body: The subject of the entry, and its content.
            signature, certificate: The entry's headers; the certificate may come from another source.
            is_timed: Whether the times of the signature are checked. They are from the node's clock, which may be wrong.

        Raises:
            SignatureError: The entry is not signed as required; SignatureTimeError if only its times are wrong.
        """
        if not signature and not self.is_demanded:
            return ""
        claims = verify_state(signature, subject, body, self._read_claims)
        if claims.key in self.revoked:
            raise SignatureError(f"{subject}: signed with {claims.key}, which was revoked")
        if not certificate:
            raise SignatureError(f"{subject}: the certificate of its signing key is missing")
        node, expires, certifier = self._read_certified(certificate, claims.key, self._root)
        if certifier in self.revoked:
            raise SignatureError(f"{subject}: its key was certified with {certifier}, which was revoked")
        if expires and claims.issued > expires:
            raise SignatureError(f"{subject}: signed with {claims.key} after its certificate expired")
        if is_timed:
            # Clocks differ, so an attacker who controls the broker can show a presence for this long after its signature expires.
            check_times(claims, subject, now_ms=self._now_ms(), late_ms=SKEW_MS)
        return node

    def read_key(self, node: str, key: str, certificate: str) -> tuple[str, int]:
        """
        Return the key of a node, and the end of its certificate in milliseconds since 1970; 0: it has none.

        Raises:
            SignatureError: The certificate is not for this node and key, or was made with a revoked key.
        """
        name, expires, certifier = self._read_certified(certificate, key, self._root)
        if name != node or certifier in self.revoked:
            raise SignatureError(f"{node}: its key is not certified")
        return key, expires


class StateReaderRef:
    """
    Reference to the verifier of other nodes' entries. The verifier exists once the agent has the signers list.

    Attributes:
        get: Returns the verifier; None if nothing is verified.
    """

    def __init__(self) -> None:
        self.get: Callable[[], StateReader | None] = lambda: None


_read_claims = lru_cache(maxsize=32_768)(read_claims)
"""Cached, because gates and templates read the same entries repeatedly."""


def verify_state(
    signature: str, subject: str, body: bytes, read: Callable[[str], Claims] = _read_claims
) -> Claims:
    """
    Return the claims of a node's stored entry. The caller checks the times and the owner of the key. `read` reads a signature.

    Raises:
        SignatureError: The entry is not signed, or was changed.
    """
    if not signature:
        raise SignatureError(f"{subject}: it is not signed")
    claims = read(signature)
    if claims.kind != SignatureKind.STATE or claims.subject != subject:
        raise SignatureError(f"{subject}: the signature is for a {claims.kind} of {claims.subject}")
    if claims.digest != hashlib.sha256(body).hexdigest():
        raise SignatureError(f"{subject}: the content was changed after signing")
    return claims


def _certified(certificate: str, key: str, root: str) -> tuple[str, int, str]:
    """
    Return the node in a certificate, the end of its validity, and the key that certified it.

    The time is in milliseconds since 1970; 0: no end.

    Raises:
        SignatureError: See `read_certified`.
    """
    node, certified = read_certified(certificate, key, root)
    return node, certified.expires, certified.key


_read_certified = lru_cache(maxsize=131_072)(_certified)
"""
Contains only certificates that lead to the root. A scan of more nodes than the cache can store does not benefit from it.
"""


def state_headers(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the signature and the certificate of a stored entry; "" for a missing one."""
    return headers.get(SIGNATURE_HEADER, ""), headers.get(CERTIFICATE_HEADER, "")


def find_slot_forgery(reader: StateReader | None, entry: KeyValueEntry) -> str:
    """
    Return why an entry of a slot is not from its node; "" if it is, or if nothing is verified.

    Its times are not checked: if an entry is ignored, another node can take the slot, and a wrong clock must not cause that.
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
