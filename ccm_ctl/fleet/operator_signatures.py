"""Signatures of operators on what they store for others: groups, schedules, assignments and rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.bus.signing import SignatureError, verify

if TYPE_CHECKING:
    from ccm_agent.bus.signing import Claims, SignatureKind
    from ccm_agent.bus.trust import Signer, SignersList


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
