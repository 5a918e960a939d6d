"""
Detached signatures of messages and documents. Only this module creates and verifies them.

A signature is in one header, `Ccm-Signature`, and the body does not change, so programs without support for signatures can still
read it. The header contains the claims and the ed25519 signature over them:

    v1.<claims: JSON, base64url>.<signature, base64url>

The claims contain the subject (or `$KV.<bucket>.<key>`) and the SHA-256 of the exact bytes, so a signed body is valid only on
the subject for which it was signed. `verify` proves which key signed it. `bus.signatures.trust` defines the permissions of that
key.

Keys are nkeys of NATS. Operators and nodes sign with the seed in their `.creds` file.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import InputError, ProtocolError
from ccm_agent.model.secret import Secret

SIGNATURE_HEADER = "Ccm-Signature"

CERTIFICATE_HEADER = "Ccm-Certificate"
"""The root's certificate of the key that signed an entry, next to entries that other nodes read."""

HEADER_LIMIT = 4096
"""A longer header is refused before it is decoded."""

MAX_TIME_MS = 1 << 53
"""The maximum value of times and numbers. Not every JSON parser reads larger values exactly."""

SKEW_MS = 300_000
"""The allowed difference of clocks: a signature may be issued at most this far in the future."""

_VERSION = "v1"
_CONTEXT = b"ccm-signature-v1."
"""Signed before the claims, so that no other use of the same key produces a valid signature."""
_DERIVATION = b"ccm-derivation-v1."
"""Signed before a purpose, so that the result is never the signature of claims."""

_SEED_IN_CREDS = re.compile(r"(?<!-)-{3,}+BEGIN USER NKEY SEED-{3,}+\s*+(S[A-Z2-7]++)\s*+-{3,}+END")
_PUBLIC_KEY = re.compile(r"[A-Z][A-Z2-7]{55}")
_KEY_BYTES = 35
"""One byte of prefix, 32 of key and two of checksum."""


class SignatureKind(StrEnum):
    """The purpose of a signature. A signature of one kind is never valid for another kind."""

    REQUEST = "request"
    SCHEDULE = "schedule"
    DOCUMENT = "document"
    DELETION = "deletion"
    OBJECT = "object"
    EVENT = "event"
    SIGNERS = "signers"
    TIMESTAMP = "timestamp"
    """A short-lived confirmation of the newest signers list."""
    ROLLOUT = "rollout"
    """A rollout that an operator handed to the rollout servers."""
    AUDIT = "audit"
    """An entry of an operator's audit trail."""
    STATE = "state"
    """An entry of a node about itself: its presence, record and facts, its entries of slots, and its registrations."""
    RECORD = "record"
    """The record of a run."""
    ORDER = "order"
    """An order about a rollout, such as a pause."""
    NODE = "node"
    """A node's certificate: the root key certifies the key with which a node signs."""
    CERTIFIER = "certifier"
    """The root's permission for another key to sign certificates of nodes, and answers to nodes that join."""
    JOIN = "join"
    """A node's request to join or to renew its credentials."""
    JOIN_ANSWER = "join_answer"
    """The answer to a join request."""


class Claims(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The signed content of a signature header.

    Attributes:
        kind: See `SignatureKind`.
        key: The signer's public nkey.
        subject: The subject of the message, or `$KV.<bucket>.<key>` for a document.
        digest: SHA-256 (hex) of the body.
        issued: When it was signed, in milliseconds since 1970.
        expires: When it expires, in milliseconds since 1970; 0: valid while the key is trusted.
        number: The number of a document, a deletion or a signers list.
        run: The run id of a request.
        details: More claims of one kind, such as the times of a schedule.
    """

    kind: str
    key: str
    subject: str
    digest: str
    issued: int
    expires: int = 0
    number: int = 0
    run: str = ""
    details: dict[str, str] = {}


class SignatureError(ProtocolError):
    """A signature is missing, broken or expired, or its key is not trusted for this purpose."""

    code = "bus.signature"


class SignatureTimeError(SignatureError):
    """A signature is genuine but not valid at this time: it expired, was sent late, or a clock is wrong."""

    code = "bus.signature_time"


class SigningKey:
    """
    A private key that signs.

    Attributes:
        public_key: The public nkey, by which others identify it.
    """

    def __init__(self, seed: Secret) -> None:
        """
        Create a key from its seed.

        Raises:
            InputError: The seed is not an nkey seed; the error does not show it.
        """
        import nkeys

        try:
            self._pair: Any = nkeys.from_seed(bytearray(seed.reveal().strip().encode()))
            self.public_key: str = self._pair.public_key.decode()
        except (nkeys.NkeysError, ValueError, TypeError, binascii.Error) as err:
            raise InputError("a signing key is damaged: it is not an nkey seed") from err

    def sign(
        self,
        kind: SignatureKind,
        subject: str,
        body: bytes,
        *,
        issued_ms: int,
        expires_ms: int = 0,
        number: int = 0,
        run: str = "",
        details: Mapping[str, str] | None = None,
    ) -> str:
        """Return the header value for a body; see `Claims` for the arguments."""
        claims = Claims(
            kind=str(kind),
            key=self.public_key,
            subject=subject,
            digest=hashlib.sha256(body).hexdigest(),
            issued=issued_ms,
            expires=expires_ms,
            number=number,
            run=run,
            details=dict(details or {}),
        )
        text = _encode(msgspec.json.encode(claims))
        signature: bytes = self._pair.sign(_CONTEXT + text.encode())
        return f"{_VERSION}.{text}.{_encode(signature)}"

    def unseal(self, sealed: bytes) -> bytes:
        """
        Open data that was sealed to this key (`bus.signatures.sealing`).

        Raises:
            SignatureError: The data was sealed to another key, or was changed.
        """
        import nacl.exceptions
        import nacl.public

        try:
            box = nacl.public.SealedBox(self._pair._keys.to_curve25519_private_key())
            return bytes(box.decrypt(sealed))
        except (nacl.exceptions.CryptoError, ValueError, TypeError):
            raise SignatureError("it was sealed to another key, or was changed after sealing") from None

    def derive(self, purpose: str) -> bytes:
        """Return 16 bytes that are derived from the key and the purpose. Only the holder of the key can compute them."""
        signature: bytes = self._pair.sign(_DERIVATION + purpose.encode())
        return hashlib.sha256(signature).digest()[:16]


def signing_key_in_credentials(text: str) -> SigningKey | None:
    """Return the key in a credentials file, or in a file with only a seed; None if there is none."""
    seed = seed_in_credentials(text)
    return None if seed is None else SigningKey(seed)


def seed_in_credentials(text: str) -> Secret | None:
    """Return the seed in a credentials file, or in a file with only a seed; None if there is none."""
    found = _SEED_IN_CREDS.search(text)
    seed = found[1] if found else text.strip()
    return Secret(seed) if re.fullmatch(r"S[A-Z2-7]{50,60}", seed) else None


def read_claims(header: str) -> Claims:
    """
    Return the claims of a header. The signature is verified, but the body is not compared.

    Raises:
        SignatureError: The header is malformed, or the signature was not made with the key.
    """
    if len(header) > HEADER_LIMIT:
        raise SignatureError(
            f"the signature is {len(header)} characters long; at most {HEADER_LIMIT} are read"
        )
    version, _, rest = header.partition(".")
    text, _, signature = rest.partition(".")
    if version != _VERSION:
        raise SignatureError(
            "this version does not support the format of the signature; upgrade it if the sender is newer"
        )
    try:
        claims = msgspec.json.decode(_decode(text), type=Claims)
        raw = _decode(signature)
    except (msgspec.MsgspecError, ValueError, RecursionError) as err:
        raise SignatureError("the signature cannot be decoded") from err
    if not _is_sound(claims):
        raise SignatureError("the signature has a time or number that is out of range")
    if not _is_signed(claims.key, _CONTEXT + text.encode(), raw):
        raise SignatureError("the signature is not valid: its claims were changed after signing")
    return claims


def verify(header: str, kind: SignatureKind, subject: str, body: bytes, *, now_ms: int) -> Claims:
    """
    Verify a header for a body, a subject and a time, and return its claims.

    Args:
        header: The value of the header; "" if the message has none.
        kind: The required purpose of the signature.
        subject: The subject of the message, or of the document's key.
        body: The exact bytes.
        now_ms: The time, in milliseconds since 1970.

    Raises:
        SignatureError: The signature is missing, malformed, for other content, not yet valid, or expired.
    """
    claims = verify_content(header, kind, subject, body)
    check_times(claims, subject, now_ms=now_ms)
    return claims


def check_times(claims: Claims, subject: str, *, now_ms: int, late_ms: int = 0) -> None:
    """
    Check that a signature is valid at a time; the arguments are those of `verify`.

    Args:
        late_ms: How long after its expiry a signature is still accepted, in milliseconds.

    Raises:
        SignatureTimeError: The signature is not valid yet, or has expired.
    """
    if claims.issued > now_ms + SKEW_MS:
        raise SignatureTimeError(f"{subject}: it was signed in the future; check the clocks")
    if claims.expires and now_ms > claims.expires + late_ms:
        raise SignatureTimeError(f"{subject}: the signature has expired; check the clocks")


def verify_content(header: str, kind: SignatureKind, subject: str, body: bytes) -> Claims:
    """
    Verify a header for a body and a subject, and return its claims. The caller checks its times.

    Raises:
        SignatureError: The signature is missing, malformed, or for other content.
    """
    if not header:
        raise SignatureError(f"{subject}: it is not signed")
    try:
        claims = read_claims(header)
    except SignatureError as err:
        raise SignatureError(f"{subject}: {err.message}") from err
    check_content(claims, kind, subject, body)
    return claims


def check_content(claims: Claims, kind: SignatureKind, subject: str, body: bytes) -> None:
    """
    Check that a signature is for a body, on a subject.

    Raises:
        SignatureError: The signature is for other content, another subject or another purpose.
    """
    if claims.kind != kind:
        raise SignatureError(f"{subject}: the signature is for a {claims.kind}, not for a {kind}")
    if claims.subject != subject:
        raise SignatureError(f"{subject}: the signature is for {claims.subject}")
    if claims.digest != hashlib.sha256(body).hexdigest():
        raise SignatureError(f"{subject}: the content was changed after signing")


def is_public_key(text: str) -> bool:
    """Whether the text is a public nkey with a correct checksum."""
    return public_key_bytes(text) is not None


def _is_sound(claims: Claims) -> bool:
    return all(0 <= value < MAX_TIME_MS for value in (claims.issued, claims.expires, claims.number))


def _is_signed(key: str, message: bytes, signature: bytes) -> bool:
    verifier = _verifier(key)
    if verifier is None:
        return False
    import nacl.exceptions

    try:
        verifier.verify(message, signature)
    except nacl.exceptions.CryptoError:
        return False
    return True


@lru_cache(maxsize=16_384)
def _verifier(key: str) -> Any:
    """Return the decoded key; None if the text is not a key. It is cached, because the same nodes sign many times."""
    import nacl.signing

    raw = public_key_bytes(key)
    return nacl.signing.VerifyKey(raw) if raw is not None else None


def public_key_bytes(key: str) -> bytes | None:
    """Return the 32 bytes of a public nkey; None if the text is not one."""
    if not _PUBLIC_KEY.fullmatch(key):
        return None
    try:
        raw = base64.b32decode(key)
    except binascii.Error:
        return None
    if len(raw) != _KEY_BYTES or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        return None
    return raw[1:-2]


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
