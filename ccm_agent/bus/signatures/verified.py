"""
What may be the base of something that an operator signs: values whose signature was verified, and what the operator wrote.

Everything that the broker delivers is made by others. A program that computes a new document from it and signs the result would
lend the operator's key to them. So `Signatory` demands the bases of each signature, and takes two kinds only: `Verified`, which a
`Verifier` alone makes, and `Authored`, for what comes from the operator's own command line and files. `Unverified` values can be
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
"""How far the number of a document may be ahead of the clock; numbers are times in milliseconds."""

_read_claims = lru_cache(maxsize=32_768)(read_claims)
"""Pages and lists read the same signatures again and again."""


class Verified(Struct, Generic[T], frozen=True, kw_only=True):
    """
    A value that a signer signed who may write it. Only a `Verifier` makes one.

    Attributes:
        value: The value.
        signer: The operator's name; "" if it is not signed, in unsigned operation.
        key: The signer's public nkey; "" likewise.
        issued_ms: When it was signed, in milliseconds since 1970; 0 likewise.
        details: The details of the signature's claims.
    """

    value: T
    signer: str = ""
    key: str = ""
    issued_ms: int = 0
    details: Mapping[str, str] = {}

    @property
    def reason(self) -> str:
        """Why it is not verified: "", because it is."""
        return ""

    def derive(self, compute: Callable[[T], U]) -> Verified[U]:
        """What is computed from this value alone, such as its decoded form."""
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
        value: The value, for showing only.
        reason: Why it is not verified.
        is_outdated: It was verified, and a newer one exists that the broker does not show.
    """

    value: T
    reason: str
    is_outdated: bool = False

    def derive(self, compute: Callable[[T], U]) -> Unverified[U]:
        """What is computed from this value; unverified, too."""
        return Unverified(value=compute(self.value), reason=self.reason, is_outdated=self.is_outdated)


class Authored(Struct, frozen=True):
    """
    The operator wrote it: nothing of it came from the broker.

    Tests list the modules that may make one, each with the reason.

    Attributes:
        source: Where it came from.
    """

    source: str

    @classmethod
    def from_arguments(cls) -> Authored:
        """The operator's words: the command line, or a form of a page."""
        return cls("arguments")

    @classmethod
    def from_files(cls) -> Authored:
        """The operator's own files, standard input or editor."""
        return cls("files")

    @classmethod
    def removal(cls) -> Authored:
        """A deletion: it holds nothing but the key."""
        return cls("removal")

    @classmethod
    def confirmation(cls) -> Authored:
        """The time, and the number of a signers list whose root signature was verified."""
        return cls("confirmation")


Base = Verified[Any] | Authored
"""What the base of a signature can be."""


class Verifier:
    """Verifies what operators signed, with one signers list."""

    def __init__(
        self,
        signers: SignersList | None,
        now_ms: Callable[[], int],
        *,
        is_demanded: bool = True,
        doubt: str = "",
    ) -> None:
        """
        Take a signers list.

        Args:
            signers: The newest one; None: none is known, and no signature is valid.
            now_ms: Returns the time in milliseconds since 1970.
            is_demanded: Whether signatures are demanded; False: unsigned operation, in which everything is taken.
            doubt: Why the list cannot be relied on, so that nothing is verified; "": it can.
        """
        self.signers = signers
        self.is_demanded = is_demanded
        self._doubt = doubt
        self._now_ms = now_ms

    @property
    def accepts_unsigned(self) -> bool:
        """What is not signed is taken now: the fleet does not use signatures, or the signers list allows it for a time."""
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
        Judge a signed value.

        Args:
            value: The value, computed from nothing but these arguments.
            kind, subject, body, signature: As of `signing.verify`.
            refusal: Returns why this signer may not write it, or why the claims do not fit it; "": all is well.
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
        """The signer's entry in the list; None in unsigned operation."""
        return self.signers.by_key(verified.key, self._now_ms()) if self.signers and verified.key else None

    def _judge(self, kind: SignatureKind, subject: str, body: bytes, signature: str) -> tuple[Claims, Signer]:
        """
        Return what a signature says, and whose it is.

        Raises:
            SignatureError: It is missing or not valid now, or its key is not in the list.
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
