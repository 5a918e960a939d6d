"""Signatures of operators on what they store for others: groups, schedules, assignments and rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.bus.signing import SignatureError, SignatureKind, verify
from ccm_agent.bus.subjects import key_subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from ccm_agent.bus.signing import Claims
    from ccm_agent.bus.trust import Signer, SignersList
    from ccm_agent.model.ports import KeyValueEntry


def verify_operator(
    signers: SignersList | None,
    kind: SignatureKind,
    subject: str,
    body: bytes,
    signature: str,
    *,
    now_ms: int,
) -> tuple[Claims, Signer]:
    """
    Return what a signature says, and the operator who made it. The caller checks the operator's rights.

    Args:
        signers: The newest signers list; None: none is known, and no signature counts.
        kind, subject, body, signature, now_ms: As of `verify`.

    Raises:
        SignatureError: It is missing or not valid, or its key is not in the list.
    """
    claims = verify(signature, kind, subject, body, now_ms=now_ms)
    signer = signers.by_key(claims.key, now_ms) if signers is not None else None
    if signer is None:
        raise SignatureError(f"{subject}: signed by the key {claims.key}, which is not in the signers list")
    return claims, signer


def check_document_author(
    signers: SignersList | None,
    bucket: str,
    entry: KeyValueEntry,
    now_ms: int,
    refusal: Callable[[Signer], str],
) -> None:
    """
    Check that an operator who may write a document signed it, unless the signers list accepts unsigned ones.

    Args:
        signers: The newest signers list; None: none is known, and no signature counts.
        bucket, entry: The document.
        now_ms: The time, in milliseconds since 1970.
        refusal: Returns why a signer may not write it; "": the signer may.

    Raises:
        SignatureError: No such operator did.
    """
    subject = key_subject(bucket, entry.key)
    try:
        _, signer = verify_operator(
            signers, SignatureKind.DOCUMENT, subject, entry.value, entry.signature, now_ms=now_ms
        )
        if reason := refusal(signer):
            raise SignatureError(f"{subject}: {reason}")
    except SignatureError:
        if signers is None or not signers.allows_unsigned(now_ms):
            raise
