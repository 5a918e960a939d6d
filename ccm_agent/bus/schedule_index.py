"""
The index of schedules that have a subject of their own.

The first schedule of an action and scope sends its requests where all requests of that kind arrive. Of each subject the broker
keeps one due request, so every further schedule sends on a subject of its own. A node may read due requests by subject only,
and cannot list them. The index tells it which subjects there are. It names subjects and nothing else: what a node finds there is
checked like every other request.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.streams import read_last
from ccm_agent.bus.subjects import SCHEDULE_PREFIX, own_subject, parse_schedule
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ccm_agent.bus.connection.connection import Connection

log = logging.getLogger(__name__)

INDEX_SUBJECT = f"{SCHEDULE_PREFIX}.names"

OWN_LIMIT = 1000
"""One node reads at most this many due requests that have a subject of their own."""


class ScheduleIndex(Struct, frozen=True, kw_only=True):
    """
    The message on INDEX_SUBJECT.

    Attributes:
        schedules: Subjects of the stored schedules whose requests arrive on a subject of their own, sorted.
    """

    schedules: list[str] = []


async def read_index(connection: Connection, stream: str) -> tuple[ScheduleIndex, int]:
    """
    The index and its sequence in the stream; an empty one and 0 when there is none.

    Raises:
        BusError: The broker is away, has no schedules, or does not let us.
        ProtocolError: It was not written there, or is not an index.
    """
    stored = await read_last(connection, stream, INDEX_SUBJECT)
    if stored is None or not stored.body:
        return ScheduleIndex(), stored.sequence if stored else 0
    if stored.copied:
        raise ProtocolError(f"{INDEX_SUBJECT}: refused: the index of schedules was copied there")
    try:
        return decode_foreign(stored.body, ScheduleIndex), stored.sequence
    except msgspec.DecodeError as err:
        raise ProtocolError(f"{INDEX_SUBJECT}: not an index of schedules: {err}") from err


def own_subjects(schedules: Iterable[str], scopes: Collection[str]) -> list[str]:
    """The subjects on which the requests of these schedules arrive for some scopes; what is not a schedule is passed over."""
    found = []
    for schedule in schedules:
        try:
            if parse_schedule(schedule)[1] in scopes:
                found.append(own_subject(schedule))
        except ProtocolError:
            continue
    if len(found) > OWN_LIMIT:
        log.warning(
            "too many schedules; missed requests of the rest are not read",
            extra={"schedules": len(found), "read": OWN_LIMIT},
        )
    return found[:OWN_LIMIT]
