"""
The possible bases of an operator's signatures: values with a verified signature, and the operator's own input.

All data from the broker comes from others. A program that computed a new document from it and signed the result would let them
use the operator's key. So `Signatory` requires the bases of each signature, and accepts only two kinds: `Verified`, which only
a `Verifier` creates, and `Authored`, for input from the operator's own command line and files. `Unverified` values can be
shown, with the reason.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from ccm_agent.bus.signatures.signing import SignatureError, check_content, check_times, read_claims
from ccm_agent.model.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ccm_agent.bus.signatures.signing import Claims, SignatureKind
    from ccm_agent.bus.signatures.trust import Signer, SignersList

T = TypeVar("T")
U = TypeVar("U")

DAY_MS = 86_400_000
"""How far the number of a document may be ahead of the clock. Numbers are times in milliseconds."""

_read_claims = lru_cache(maxsize=32_768)(read_claims)
"""Cached, because pages and lists read the same signatures repeatedly."""


class Verified(Struct, Generic[T], frozen=True, kw_only=True):
    """
    A value signed by a signer who may write it. Only a `Verifier` creates such values.

    Attributes:
        value: The value.
        signer: The operator's name; "" in unsigned operation, if the value is not signed.
        key: The signer's public nkey; "" in the same case.
        issued_ms: When it was signed, in milliseconds since 1970; 0 in the same case.
        details: The details of the signature's claims.
    """

    value: T
    signer: str = ""
    key: str = ""
    issued_ms: int = 0
    details: Mapping[str, str] = {}

    @property
    def reason(self) -> str:
        """Why the value is not verified: always "", because it is verified."""
        return ""

    def derive(self, compute: Callable[[T], U]) -> Verified[U]:
        """Return a value computed only from this one, such as its decoded form."""
        return Verified(
            value=compute(self.value),
            signer=self.signer,
            key=self.key,
            issued_ms=self.issued_ms,
            details=self.details,
        )


class Unverified(Struct, Generic[T], frozen=True, kw_only=True):
    """
    A value that must not be the base of a signature.

    Attributes:
        value: The value, only for display.
        reason: Why it is not verified.
        is_outdated: Whether the value was verified, but a newer one exists that the broker does not return.
    """

    value: T
    reason: str
    is_outdated: bool = False

    def derive(self, compute: Callable[[T], U]) -> Unverified[U]:
        """Return a value computed from this one; also unverified."""
        return Unverified(value=compute(self.value), reason=self.reason, is_outdated=self.is_outdated)


class Authored(Struct, frozen=True):
    """
    Input of the operator, without any data from the broker.

    Tests list the modules that may create it, each with the reason.

    Attributes:
        source: The source of the input.
    """

    source: str

    @classmethod
    def from_arguments(cls) -> Authored:
        """Return a base for the operator's own input: the command line, or a form on a page."""
        return cls("arguments")

    @classmethod
    def from_files(cls) -> Authored:
        """Return a base for the operator's own files, standard input or editor."""
        return cls("files")

    @classmethod
    def removal(cls) -> Authored:
        """Return a base for a deletion, which contains only the key."""
        return cls("removal")

    @classmethod
    def confirmation(cls) -> Authored:
        """Return a base for the time and the number of a signers list with a verified root signature."""
        return cls("confirmation")


Base = Verified[Any] | Authored
"""The possible bases of a signature."""


class Verifier:
    """Verifies signatures of operators with one signers list."""

    def __init__(
        self,
        signers: SignersList | None,
        now_ms: Callable[[], int],
        *,
        is_demanded: bool = True,
        doubt: str = "",
    ) -> None:
        """
        Create a verifier for a signers list.

        Args:
            signers: The newest signers list; None if there is none, so no signature is valid.
            now_ms: Returns the time in milliseconds since 1970.
            is_demanded: Whether signatures are required; False: unsigned operation, in which everything is accepted.
            doubt: The reason why the list is not reliable. If set, nothing is verified; "" if the list is reliable.
        """
        self.signers = signers
        self.is_demanded = is_demanded
        self._doubt = doubt
        self._now_ms = now_ms

    @property
    def accepts_unsigned(self) -> bool:
        """
        Whether unsigned values are accepted now: the fleet does not use signatures, or the signers list allows it for a time.
        """
        return not self.is_demanded or (
            not self._doubt and self.signers is not None and self.signers.allows_unsigned(self._now_ms())
        )

    def read(
        self,
        value: T,
        kind: SignatureKind,
        subject: str,
        body: bytes,
        signature: str,
        refusal: Callable[[Signer, Claims], str],
    ) -> Verified[T] | Unverified[T]:
        """
        Verify a signed value.

        Args:
            value: The value, computed only from these arguments.
            kind, subject, body, signature: See `signing.verify`.
            refusal: Returns why this signer may not write the value, or why the claims do not match it; "" if it is valid.
        """
        if not self.is_demanded:
            return Verified(value=value)
        if self._doubt:
            return Unverified(value=value, reason=self._doubt)
        try:
            claims, signer = self._judge(kind, subject, body, signature)
            if reason := refusal(signer, claims):
                raise SignatureError(f"{subject}: {reason}")
        except ProtocolError as err:
            if self.accepts_unsigned:
                return Verified(value=value)
            return Unverified(value=value, reason=err.message.removeprefix(f"{subject}: "))
        return Verified(
            value=value,
            signer=signer.name,
            key=claims.key,
            issued_ms=claims.issued,
            details=dict(claims.details),
        )

    def signer_of(self, verified: Verified[Any]) -> Signer | None:
        """Return the signer's entry in the list; None in unsigned operation."""
        return self.signers.by_key(verified.key, self._now_ms()) if self.signers and verified.key else None

    def _judge(self, kind: SignatureKind, subject: str, body: bytes, signature: str) -> tuple[Claims, Signer]:
        """
        Return the claims of a signature, and its signer.

        Raises:
            SignatureError: The signature is missing or not valid now, or its key is not in the list.
        """
        if not signature:
            raise SignatureError(f"{subject}: it is not signed")
        claims, now_ms = _read_claims(signature), self._now_ms()
        check_content(claims, kind, subject, body)
        check_times(claims, subject, now_ms=now_ms)
        signer = self.signers.by_key(claims.key, now_ms) if self.signers is not None else None
        if signer is None:
            raise SignatureError(
                f"{subject}: signed by the key {claims.key}, which is not in the signers list"
            )
        return claims, signer
