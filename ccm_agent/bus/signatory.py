"""
Signing of everything that an operator sends and writes, with the key in the operator's credentials.

The results are headers to send along. Bodies do not change.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ccm_agent.bus.signing import SIGNATURE_HEADER, SignatureKind
from ccm_agent.bus.subjects import key_subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from ccm_agent.bus.signing import SigningKey

REQUEST_VALID_MS = 3_600_000
"""
How long a request is valid.

This is far less than the day for which agents remember runs, so a request cannot be replayed after an agent has forgotten it.
It is far more than the minutes by which clocks of servers differ.
"""


NOTE_DETAIL = "note"
"""Of a deletion, in `Claims.details`: SHA-256 (hex) of the note that goes with it."""


class Signatory:
    """
    Signs as one operator.

    Attributes:
        public_key: The operator's public nkey.
    """

    def __init__(self, key: SigningKey, now_ms: Callable[[], int]) -> None:
        """
        Take a key.

        Args:
            key: The operator's.
            now_ms: The time in milliseconds since 1970.
        """
        self.public_key = key.public_key
        self._key = key
        self._now_ms = now_ms

    def request(self, subject: str, body: bytes) -> dict[str, str]:
        """Headers for a request that is sent now."""
        now = self._now_ms()
        signature = self._key.sign(
            SignatureKind.REQUEST, subject, body, issued_ms=now, expires_ms=now + REQUEST_VALID_MS
        )
        return {SIGNATURE_HEADER: signature}

    def schedule(
        self, subject: str, body: bytes, *, name: str, when: str, zone: str, expires_ms: int
    ) -> dict[str, str]:
        """
        Headers for a request that the broker stores, and sends when it is due.

        Args:
            subject: The request's subject when it is due.
            body: The request.
            name: The schedule's name.
            when, zone: The times of the schedule. They are signed, so that the broker cannot choose others.
            expires_ms: When the schedule expires, in milliseconds since 1970.
        """
        details = {"name": name, "when": when, "zone": zone}
        signature = self._key.sign(
            SignatureKind.SCHEDULE,
            subject,
            body,
            issued_ms=self._now_ms(),
            expires_ms=expires_ms,
            details={key: value for key, value in details.items() if value},
        )
        return {SIGNATURE_HEADER: signature}

    def document(self, bucket: str, key: str, body: bytes) -> dict[str, str]:
        """Headers for a document, which is valid until it is replaced or removed."""
        subject = key_subject(bucket, key)
        signature = self._key.sign(SignatureKind.DOCUMENT, subject, body, issued_ms=self._now_ms())
        return {SIGNATURE_HEADER: signature}

    def rollout(self, subject: str, body: bytes, *, expires_ms: int) -> str:
        """The signature of a rollout that is handed over; `expires_ms` is in milliseconds since 1970."""
        return self._key.sign(
            SignatureKind.ROLLOUT, subject, body, issued_ms=self._now_ms(), expires_ms=expires_ms
        )

    def timestamp(self, subject: str, body: bytes, *, issued_ms: int) -> str:
        """The signature of a timestamp (`bus.timestamp`), which is also its number."""
        return self._key.sign(SignatureKind.TIMESTAMP, subject, body, issued_ms=issued_ms, number=issued_ms)

    def object(self, subject: str, digest: str) -> dict[str, str]:
        """Headers for the description of an object; its digest (SHA-256, hex) is signed."""
        signature = self._key.sign(SignatureKind.OBJECT, subject, digest.encode(), issued_ms=self._now_ms())
        return {SIGNATURE_HEADER: signature}

    def deletion(self, bucket: str, key: str, number: int = 0, note: str = "") -> dict[str, str]:
        """Headers for the removal of a document; `number` 0 uses the time, like the numbers of documents. The note is signed."""
        now = self._now_ms()
        subject = key_subject(bucket, key)
        details = {NOTE_DETAIL: hashlib.sha256(note.encode()).hexdigest()} if note else {}
        signature = self._key.sign(
            SignatureKind.DELETION, subject, b"", issued_ms=now, number=number or now, details=details
        )
        return {SIGNATURE_HEADER: signature}
