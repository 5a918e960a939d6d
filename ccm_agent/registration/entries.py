"""The subjects of entries in the stream of registrations, and the decoding of stored messages."""

from __future__ import annotations

import logging
from datetime import datetime

from msgspec import Struct

from ccm_agent.bus.signatures.node_state import StateReader, state_headers
from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.bus.streams import Stored
from ccm_agent.bus.subjects import parse_registration, registration_pattern, registration_subject
from ccm_agent.model.errors import CcmError, ProtocolError
from ccm_agent.model.records.registration import RegistrationEntry, decode_entry, instance_of

log = logging.getLogger(__name__)

MARKER = "Nats-Marker-Reason"
"""Header of the message that the broker stores for an expired or removed message (NATS ADR-43)."""


class RegistrationQuery(Struct, frozen=True):
    """Selects entries; "" or `*` matches any value."""

    cluster: str = "*"
    protocol: str = "*"
    service: str = "*"
    address: str = "*"

    @property
    def pattern(self) -> str:
        """
        Return the subject pattern of the matching entries.

        Raises:
            DataError: A part contains characters that a subject cannot have.
        """
        return registration_pattern(self.cluster, self.protocol, self.service, self.address)

    def __str__(self) -> str:
        return " ".join(part or "*" for part in (self.cluster, self.protocol, self.service, self.address))


class StreamEntry(Struct, frozen=True, kw_only=True, gc=False):
    """
    The message that the stream stores on one subject.

    Attributes:
        subject: The subject.
        sequence: Its sequence number in the stream; it changes each time the entry is published.
        time: When it was stored.
        entry: The entry; None if it was removed or has expired.
        reason: Why it was removed, as the broker reports it: `MaxAge`, `Remove` or `Purge`.
        is_spoilt: Whether the message is neither an entry nor a mark of a removal.
        body, signature, certificate: The bytes and headers with which `signatures.node_state` verifies an entry; "" if missing.
    """

    subject: str
    sequence: int
    time: datetime
    entry: RegistrationEntry | None = None
    reason: str = ""
    is_spoilt: bool = False
    body: bytes = b""
    signature: str = ""
    certificate: str = ""


def entry_subject(entry: RegistrationEntry) -> str:
    """Return the only subject on which an entry is published."""
    return registration_subject(
        entry.cluster, entry.protocol, entry.service, entry.address, instance_of(entry)
    )


def read_stored(stored: Stored) -> StreamEntry:
    """
    Decode a stored message: an entry, the mark of a removed one, or neither.

    The broker allows a node to publish on its own subjects, but does not check bodies. So an entry is valid only on the subject
    that its fields define, and only if it was not redirected there by a direct get (`copied`). Otherwise, one node could
    replace the entry of another node.
    """
    try:
        if stored.copied:
            raise ProtocolError("it was not published there but copied there by a redirected read")
        reason = stored.headers.get(MARKER, "")
        if reason:
            parse_registration(stored.subject)
            return StreamEntry(
                subject=stored.subject, sequence=stored.sequence, time=stored.time, reason=reason
            )
        entry = decode_entry(stored.body)
        if entry_subject(entry) != stored.subject:
            raise ProtocolError("its content does not match its subject")
    except CcmError as err:
        log.warning("a registration is skipped", extra={"subject": stored.subject, "reason": str(err)})
        return StreamEntry(subject=stored.subject, sequence=stored.sequence, time=stored.time, is_spoilt=True)
    signature, certificate = state_headers(stored.headers)
    return StreamEntry(
        subject=stored.subject,
        sequence=stored.sequence,
        time=stored.time,
        entry=entry,
        body=stored.body,
        signature=signature,
        certificate=certificate,
    )


def find_forgery(reader: StateReader, one: StreamEntry) -> str:
    """Return why an entry is not signed by a node; "" if it is. Marks of removed entries are not signed."""
    if one.entry is None:
        return ""
    try:
        reader.read_signer(one.subject, one.body, one.signature, one.certificate)
    except SignatureError as err:
        return err.message.removeprefix(f"{one.subject}: ")
    return ""
