"""Look up registered services: the stream's raw answer, and the settled answer that templates may use for configuration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ccm_agent.bus.consumers import read_newest_by_consumer
from ccm_agent.bus.layout import REGISTRATION
from ccm_agent.bus.streams import read_newest
from ccm_agent.bus.subjects import subject_matches
from ccm_agent.model.errors import BusDeniedError, BusUnavailableError, FileError, UnsettledError
from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.records.registration import sort_key
from ccm_agent.registration.entries import RegistrationQuery, StreamEntry, find_forgery, read_stored
from ccm_agent.registration.liveness import read_sightings, write_sightings

if TYPE_CHECKING:
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.signatures.node_state import StateReader
    from ccm_agent.model.ports import Clock, Records
    from ccm_agent.model.records.registration import RegistrationEntry
    from ccm_agent.registration.liveness import LastSeen

log = logging.getLogger(__name__)

SETTLE_S = 600.0
"""Default seconds for nodes to register again: twice the interval at which agents converge."""

RECORD = "registrations"
"""The kind of state record that stores the last observations."""

EVERYTHING = ">"
"""The pattern that matches every subject of a stream."""

REMOVED = ("Remove", "Purge")
"""The broker's reasons for a requested removal."""


async def read(connection: Connection, stream: str, query: RegistrationQuery) -> list[StreamEntry]:
    """
    Return the stored messages for a query: entries and marks of removed ones, the oldest first.

    Raises:
        DataError: The query does not result in a valid subject.
        BusError: The stream cannot be read.
    """
    pattern = query.pattern
    # With a pattern, the broker searches its index of subjects for each message. Without one, it reads the stream in order.
    asked = EVERYTHING if pattern == RegistrationQuery().pattern else pattern
    try:
        stored = await read_newest(connection, stream, [asked])
    except BusDeniedError:
        # On a broker with permissions, a node may not read other nodes' entries by direct get (ADR 60).
        stored = await read_newest_by_consumer(connection, stream, pattern)
    return [read_stored(one) for one in stored if subject_matches(pattern, one.subject)]


async def find(connection: Connection, stream: str, query: RegistrationQuery) -> list[RegistrationEntry]:
    """Return the matching entries by address and port, without waiting for missing ones. See `read` for errors."""
    return _entries(await read(connection, stream, query))


class RegistrationLookup:
    """
    The lookup for templates. It returns the matching entries, or raises an error if the broker may have lost some of them.

    Args:
        broker: The broker's name in the state record; one host may use several.
        connect: Returns the connection; called at the first lookup.
        records: The state records, which store the last observations.
        clock: Returns the current time.
        settle_s: How long nodes have to register again; 0 accepts any answer of the broker, None uses SETTLE_S.
        stream: The stream of registrations; "" for the default.
        get_reader: Returns the verifier of entries; None if nothing is verified. An entry that no node signed is treated as
            spoilt.
    """

    def __init__(
        self,
        broker: str,
        connect: Callable[[], Awaitable[Connection]],
        records: Records,
        clock: Clock,
        *,
        settle_s: float | None = None,
        stream: str = "",
        get_reader: Callable[[], StateReader | None] = lambda: None,
    ) -> None:
        stream = stream or REGISTRATION
        self._key = f"{broker} {stream}"
        self._connect = connect
        self._records = records
        self._clock = clock
        self._settle_s = SETTLE_S if settle_s is None else settle_s
        self._stream = stream
        self._get_reader = get_reader
        self._lock = asyncio.Lock()
        self._kept: bytes | None = None

    async def find(self, query: RegistrationQuery) -> list[RegistrationEntry]:
        """
        Return the matching entries, in order of address and port.

        Raises:
            DataError: The query does not result in a valid subject.
            UnsettledError: Some entries are missing, and the broker was recently unreachable.
            BusError: The stream cannot be read.
        """
        pattern = query.pattern
        async with self._lock:
            sightings = await self._recall()
            try:
                connection = await self._connect()
                found = self._verified(await read(connection, self._stream, query))
            except BusUnavailableError:
                sightings.missed(self._now())
                await self._keep(sightings)
                raise
            self._meet(sightings, connection)
            there = {one.subject for one in found if one.entry is not None}
            removed = {one.subject for one in found if one.reason in REMOVED}
            spoilt = {one.subject: one.time.timestamp() for one in found if one.is_spoilt}
            missing = sightings.missing(pattern, there, removed)
            since = max([sightings.steady_since, *(spoilt.get(one, 0) for one in missing)])
            doubt_s = self._settle_s - (self._now() - since)
            is_believed = not missing or doubt_s <= 0
            if is_believed:
                sightings.believe(pattern, there)
            await self._keep(sightings)
        if not is_believed:
            raise _unsettled(query, len(missing), self._now() - since, doubt_s)
        return _entries(found)

    def _verified(self, found: list[StreamEntry]) -> list[StreamEntry]:
        reader = self._get_reader()
        if reader is None:
            return found
        return [_checked(reader, one) for one in found]

    def _meet(self, sightings: LastSeen, connection: Connection) -> None:
        now, server = self._now(), connection.server
        again = connection.reconnects > 0
        since = now - (self._clock.monotonic() - connection.since) if again else None
        sightings.met(server.id if server is not None else "", now, since)

    def _now(self) -> float:
        return self._clock.now().timestamp()

    async def _recall(self) -> LastSeen:
        """Load the last observations. If the record cannot be read, use those of this process."""
        try:
            self._kept = await self._records.recall(RECORD, self._key) or self._kept
        except FileError as err:
            log.warning("earlier registrations cannot be read", extra={"reason": str(err)})
        return read_sightings(self._kept)

    async def _keep(self, sightings: LastSeen) -> None:
        document = write_sightings(sightings)
        if document == self._kept:
            return
        self._kept = document
        try:
            await self._records.keep(RECORD, self._key, document)
        except FileError as err:
            log.warning("registrations cannot be saved", extra={"reason": str(err)})


def _checked(reader: StateReader, one: StreamEntry) -> StreamEntry:
    """Return the entry; if no node signed it, mark it as spoilt."""
    reason = find_forgery(reader, one)
    if not reason:
        return one
    log.warning("a registration is skipped", extra={"subject": one.subject, "reason": reason})
    return StreamEntry(subject=one.subject, sequence=one.sequence, time=one.time, is_spoilt=True)


def _entries(found: list[StreamEntry]) -> list[RegistrationEntry]:
    return sorted((one.entry for one in found if one.entry is not None), key=sort_key)


def _unsettled(query: RegistrationQuery, count: int, ago_s: float, doubt_s: float) -> UnsettledError:
    ago, more = format_duration(max(0, round(ago_s))), format_duration(max(1, round(doubt_s)))
    return UnsettledError(
        f"registrations of {query}: {count} known entries are missing, and the broker was unavailable or had "
        f"invalid entries {ago} ago. Nodes have {more} left to register again; use a settle time "
        "of 0s to treat missing entries as removed"
    )
