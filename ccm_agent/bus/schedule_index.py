"""
The index of schedules that have a request subject of their own.

The first schedule of an action and scope sends its requests on the common subject of such requests. The broker keeps one due
request for each subject, so every further schedule sends on a subject of its own. A node may read due requests only by subject,
and cannot list them. The index lists these subjects. It contains only subjects: a node checks the requests on them like all
others.
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
"""The maximum number of due requests that one node reads on the request subjects of single schedules."""


class ScheduleIndex(Struct, frozen=True, kw_only=True):
    """
    The message on INDEX_SUBJECT.

    Attributes:
        schedules: The sorted subjects of stored schedules that have a request subject of their own.
    """

    schedules: list[str] = []


async def read_index(connection: Connection, stream: str) -> tuple[ScheduleIndex, int]:
    """
    Return the index and its sequence in the stream; an empty index and 0 if there is none.

    Raises:
        BusError: The broker is unavailable, has no schedules, or does not allow the read.
        ProtocolError: The message was not written to this subject, or is not an index.
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
    """Return the subjects of these schedules' requests for some scopes. Entries that are not schedules are ignored."""
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
