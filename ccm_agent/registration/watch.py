"""Watch the changes of registrations."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from ccm_agent.model.errors import BusUnavailableError
from ccm_agent.model.records.registration import REGISTER, REMOVE, RegistrationChange
from ccm_agent.registration.lookup import read

if TYPE_CHECKING:
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.registration.entries import RegistrationQuery, StreamEntry

log = logging.getLogger(__name__)

POLL_S = 1.0
"""
Seconds between two reads of the stream.

If the stream does not create markers, the broker sends no message when an entry expires. One request a second costs the broker
less than a consumer.
"""


async def watch(
    connection: Connection, stream: str, query: RegistrationQuery, poll_s: float = POLL_S
) -> AsyncGenerator[RegistrationChange, None]:
    """
    Yield the current registrations, then each change. After an outage, the iteration continues and yields the net change.
    """
    known: dict[str, StreamEntry] = {}
    while True:
        try:
            found = await read(connection, stream, query)
        except BusUnavailableError as err:
            log.info("registrations cannot be read", extra={"reason": str(err)})
            await connection.wait_connected()
        else:
            for change in _changes(known, found):
                yield change
        await asyncio.sleep(poll_s)


def _changes(known: dict[str, StreamEntry], found: list[StreamEntry]) -> list[RegistrationChange]:
    """Return the differences from the known entries, and update the known entries."""
    now = {one.subject: one for one in found}
    changes = []
    for subject, one in list(known.items()):
        seen = now.get(subject)
        if (seen is None or seen.entry is None) and one.entry is not None:
            reason = seen.reason if seen is not None and seen.reason else "Gone"
            changes.append(RegistrationChange(action=REMOVE, entry=one.entry, reason=reason))
            del known[subject]
    for one in found:
        if one.entry is not None and (
            one.subject not in known or known[one.subject].sequence != one.sequence
        ):
            changes.append(RegistrationChange(action=REGISTER, entry=one.entry))
            known[one.subject] = one
    return changes
