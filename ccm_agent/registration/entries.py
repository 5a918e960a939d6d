"""Where an entry stands in the stream of registrations, and which stored messages are entries."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.bus.subjects import parse_registration, registration_pattern, registration_subject
from ccm_agent.model.errors import CcmError, ProtocolError
from ccm_agent.model.registration import RegistrationEntry, decode_entry, instance_of

if TYPE_CHECKING:
    from datetime import datetime

    from ccm_agent.bus.streams import Stored

log = logging.getLogger(__name__)

MARKER = "Nats-Marker-Reason"
"""The broker's own message in the place of one that expired or was removed (ADR-43 of NATS)."""


class RegistrationQuery(Struct, frozen=True):
    """Which entries; "" or `*` fits any."""

    cluster: str = "*"
    protocol: str = "*"
    service: str = "*"
    address: str = "*"

    @property
    def pattern(self) -> str:
        """
        The subjects of the entries that fit.

        Raises:
            DataError: A part holds what no subject can.
        """
        return registration_pattern(self.cluster, self.protocol, self.service, self.address)

    def __str__(self) -> str:
        return " ".join(part or "*" for part in (self.cluster, self.protocol, self.service, self.address))


class StreamEntry(Struct, frozen=True, kw_only=True):
    """
    What the stream holds on one subject.

    Attributes:
        subject: The subject.
        sequence: Its place in the stream: another one each time that the entry is published.
        time: When it was stored.
        entry: The entry; None when it is gone.
        reason: Why it is gone, in the broker's words: `MaxAge`, `Remove` or `Purge`.
        is_spoilt: Something stands there that is neither an entry nor such a mark.
    """

    subject: str
    sequence: int
    time: datetime
    entry: RegistrationEntry | None = None
    reason: str = ""
    is_spoilt: bool = False


def entry_subject(entry: RegistrationEntry) -> str:
    """The subject that an entry is published on, and no other."""
    return registration_subject(
        entry.cluster, entry.protocol, entry.service, entry.address, instance_of(entry)
    )


def read_stored(stored: Stored) -> StreamEntry:
    """
    A stored message as an entry, as the mark of one that is gone, or as what is neither.

    The broker lets a node publish on its own subjects, and looks at no body. So an entry counts only where its own words
    belong, and not where somebody's direct get had it sent (`copied`): otherwise one node could stand in another's place.
    """
    try:
        if stored.copied:
            raise ProtocolError("it was not published there but copied by somebody's read")
        reason = stored.headers.get(MARKER, "")
        if reason:
            parse_registration(stored.subject)
            return StreamEntry(
                subject=stored.subject, sequence=stored.sequence, time=stored.time, reason=reason
            )
        entry = decode_entry(stored.body)
        if entry_subject(entry) != stored.subject:
            raise ProtocolError("it says something else than its subject")
    except CcmError as err:
        log.warning("a registration is passed over", extra={"subject": stored.subject, "reason": str(err)})
        return StreamEntry(subject=stored.subject, sequence=stored.sequence, time=stored.time, is_spoilt=True)
    return StreamEntry(subject=stored.subject, sequence=stored.sequence, time=stored.time, entry=entry)
