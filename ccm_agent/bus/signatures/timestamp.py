"""
The timestamp of the signers list: a short-lived signature that confirms which list was the newest at a time.

The root key signs the list and stays offline, so a list alone cannot prove that there is no newer one. A signer with the right
`timestamp` confirms it repeatedly. If a node's list was not confirmed for longer than its `max_age_s`, the node executes only
plans: the broker may withhold a list in which an operator was revoked. See docs/concepts/signatures.md.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.signing import SignatureError, SignatureKind, verify
from ccm_agent.bus.signatures.trust import TRUST_BUCKET, SignedText, SignersList
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign

SNAPSHOT_PREFIX = "snapshot."
"""Prefix of keys in TRUST_BUCKET that signers with the right `timestamp` write."""

TIMESTAMP_KEY = f"{SNAPSHOT_PREFIX}timestamp"
TIMESTAMP_SUBJECT = key_subject(TRUST_BUCKET, TIMESTAMP_KEY)

AHEAD_MS = 86_400_000
"""
The maximum time that a number may be ahead of its signature. Numbers are times, and one in the far future could freeze a key.
"""


class Timestamp(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The confirmation of one signer.

    Attributes:
        issued: The time of the signature, in milliseconds since 1970. It is also the number of the timestamp: an earlier one
            never replaces it.
        signers: The number of the newest signers list.
        pieces: The digests (SHA-256, hex) of the pieces of the snapshot (`signatures.snapshot`), by index; empty: there is no
            snapshot.
        restarted: When an administrator last created the snapshot from only the stored documents, in milliseconds since 1970; 0:
            never. Numbers of earlier snapshots are then ignored.
    """

    issued: int
    signers: int
    pieces: tuple[str, ...] = ()
    restarted: int = 0


def read_timestamp(signed: SignedText, signers: SignersList, *, now_ms: int) -> Timestamp:
    """
    Decode a timestamp that a listed signer has signed.

    Raises:
        SignatureError: The timestamp is not signed by an operator who may sign timestamps according to this list.
        ProtocolError: The timestamp is signed, but cannot be used.
    """
    body = signed.body.encode()
    claims = verify(signed.signature, SignatureKind.TIMESTAMP, TIMESTAMP_SUBJECT, body, now_ms=now_ms)
    signer = signers.by_key(claims.key, now_ms)
    if signer is None or not signer.timestamp:
        raise SignatureError(
            f"{TIMESTAMP_SUBJECT}: signed by the key {claims.key}, which may not sign timestamps by signers list "
            f"{signers.number}"
        )
    try:
        found = decode_foreign(body, Timestamp)
    except msgspec.MsgspecError as err:
        raise ProtocolError(f"{TIMESTAMP_SUBJECT}: the timestamp cannot be read: {err}") from err
    if claims.issued != found.issued or claims.number != found.issued:
        raise SignatureError(f"{TIMESTAMP_SUBJECT}: the times of the timestamp and its signature differ")
    if found.signers > found.issued + AHEAD_MS:
        raise ProtocolError(
            f"{TIMESTAMP_SUBJECT}: it names signers list {found.signers}, whose time is in the future"
        )
    return found
