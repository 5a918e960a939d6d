"""
Signs everything that an operator sends and writes, with the key in the operator's credentials.

The results are headers; bodies do not change. Each signature requires its bases: the values from which the signed bytes were
made. Unverified data from the broker cannot be a base (`ccm_agent.bus.signatures.verified`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureKind, SigningKey
from ccm_agent.bus.signatures.verified import Authored, Base, Verified
from ccm_agent.bus.subjects import key_subject

REQUEST_VALID_MS = 3_600_000
"""
How long a request is valid.

This is far less than the day for which agents remember runs, so a request cannot be replayed after an agent has forgotten it.
It is far more than the minutes by which clocks of servers differ.
"""


NOTE_DETAIL = "note"
"""A detail of a deletion in `Claims.details`: SHA-256 (hex) of its note."""


class Signatory:
    """
    Signs as one operator.

    Attributes:
        public_key: The operator's public nkey.
    """

    def __init__(self, key: SigningKey, now_ms: Callable[[], int]) -> None:
        """
        Create a signatory for a key.

        Args:
            key: The operator's key.
            now_ms: Returns the time in milliseconds since 1970.
        """
        self.public_key = key.public_key
        self._key = key
        self._now_ms = now_ms

    def derive(self, purpose: str) -> bytes:
        """See `SigningKey.derive`."""
        return self._key.derive(purpose)

    def request(self, subject: str, body: bytes, base: Sequence[Base]) -> dict[str, str]:
        """Return headers for a request that is sent now."""
        now = self._now_ms()
        signature = self._sign(
            SignatureKind.REQUEST, subject, body, base, issued_ms=now, expires_ms=now + REQUEST_VALID_MS
        )
        return {SIGNATURE_HEADER: signature}

    def schedule(
        self,
        subject: str,
        body: bytes,
        base: Sequence[Base],
        *,
        name: str,
        when: str,
        zone: str,
        expires_ms: int,
    ) -> dict[str, str]:
        """
        Return headers for a request that the broker stores and sends when it is due.

        Args:
            subject: The request's subject when it is due.
            body: The request.
            base: The bases of the request.
            name: The schedule's name.
            when, zone: The times of the schedule. They are signed, so that the broker cannot choose others.
            expires_ms: When the schedule expires, in milliseconds since 1970.
        """
        details = schedule_details(name, when, zone)
        signature = self._sign(
            SignatureKind.SCHEDULE, subject, body, base, expires_ms=expires_ms, details=details
        )
        return {SIGNATURE_HEADER: signature}

    def document(self, bucket: str, key: str, body: bytes, base: Sequence[Base]) -> dict[str, str]:
        """Return headers for a document, which is valid until it is replaced or removed."""
        return {SIGNATURE_HEADER: self._sign(SignatureKind.DOCUMENT, key_subject(bucket, key), body, base)}

    def rollout(self, subject: str, body: bytes, base: Sequence[Base], *, expires_ms: int) -> str:
        """Return the signature of a rollout that is handed over; `expires_ms` is in milliseconds since 1970."""
        return self._sign(SignatureKind.ROLLOUT, subject, body, base, expires_ms=expires_ms)

    def timestamp(self, subject: str, body: bytes, base: Sequence[Base], *, issued_ms: int) -> str:
        """Return the signature of a timestamp (`bus.signatures.timestamp`); `issued_ms` is also its number."""
        return self._sign(SignatureKind.TIMESTAMP, subject, body, base, issued_ms=issued_ms, number=issued_ms)

    def record(self, subject: str, body: bytes, base: Sequence[Base]) -> str:
        """Return the signature of the record of a run."""
        return self._sign(SignatureKind.RECORD, subject, body, base)

    def order(self, subject: str, body: bytes, base: Sequence[Base]) -> str:
        """Return the signature of an order about a rollout."""
        return self._sign(SignatureKind.ORDER, subject, body, base)

    def object(self, subject: str, digest: str, base: Sequence[Base]) -> dict[str, str]:
        """Return headers for the description of an object; its digest (SHA-256, hex) is signed."""
        return {SIGNATURE_HEADER: self._sign(SignatureKind.OBJECT, subject, digest.encode(), base)}

    def deletion(
        self, bucket: str, key: str, base: Sequence[Base], number: int = 0, note: str = ""
    ) -> dict[str, str]:
        """
        Return headers for the removal of a document. If `number` is 0, the time is the number, as for documents. The note is
        signed.
        """
        now = self._now_ms()
        details = {NOTE_DETAIL: hashlib.sha256(note.encode()).hexdigest()} if note else {}
        signature = self._sign(
            SignatureKind.DELETION,
            key_subject(bucket, key),
            b"",
            base,
            issued_ms=now,
            number=number or now,
            details=details,
        )
        return {SIGNATURE_HEADER: signature}

    def _sign(
        self,
        kind: SignatureKind,
        subject: str,
        body: bytes,
        base: Sequence[Base],
        *,
        issued_ms: int = 0,
        expires_ms: int = 0,
        number: int = 0,
        details: Mapping[str, str] | None = None,
    ) -> str:
        if not base or not all(isinstance(one, Verified | Authored) for one in base):
            raise TypeError(f"{subject}: only verified data and the operator's own input can be signed")
        return self._key.sign(
            kind,
            subject,
            body,
            issued_ms=issued_ms or self._now_ms(),
            expires_ms=expires_ms,
            number=number,
            details=details,
        )


def schedule_details(name: str, when: str, zone: str) -> dict[str, str]:
    """Return the details of a schedule's signature: its name and its times."""
    details = {"name": name, "when": when, "zone": zone}
    return {key: value for key, value in details.items() if value}
