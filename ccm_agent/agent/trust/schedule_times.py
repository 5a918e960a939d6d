"""
Scheduled requests: their run id and time, and the times that this node has taken.

The broker repeats one fixed body, so run id and time come from the headers it adds. The id is a KSUID of the time at which the
message was stored and of the digest of its place: each node that receives it, now or later, knows the run by the same id.

The broker keeps time, and may not choose it. A schedule's signature says when it is due. A due request is taken when its time
fits that, and only once for each of those times, so the holder of the broker cannot run a schedule at another time or twice.
What was taken last is kept on disk until the schedule's signature expires.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from ccm_agent.bus.signatures.signing import Claims, SignatureError
from ccm_agent.bus.subjects import parse_schedule
from ccm_agent.model.errors import CcmError, ProtocolError
from ccm_agent.model.formats.moments import format_moment
from ccm_agent.model.ids import due_run_id, short_id
from ccm_agent.model.ports import IncomingRequest
from ccm_agent.model.records.schedule_slots import least_pause_s, schedule_slot
from ccm_agent.storage.state_file import StateFile

log = logging.getLogger(__name__)


def scheduled_run_id(incoming: IncomingRequest) -> tuple[str, datetime]:
    """
    Run id and due time of a scheduled request.

    Raises:
        ProtocolError: The broker's headers are not there.
    """
    try:
        return due_run_id(incoming.headers)
    except (KeyError, ValueError) as err:
        raise ProtocolError(
            f"{incoming.subject}: a scheduled request without the broker's headers: {err}"
        ) from err


def schedule_name(incoming: IncomingRequest) -> str:
    """The name of the schedule that a request is due to; "" if the broker's headers do not say it."""
    for name, value in incoming.headers.items():
        if name.lower() == "nats-scheduler":
            try:
                return parse_schedule(value)[2]
            except ProtocolError:
                return ""
    return ""


class _Taken(Struct, frozen=True, kw_only=True):
    """The last time of one schedule that was taken: which of its times, by which run, and when its signature expires."""

    slot: float
    run: str
    expires: int = 0


class ScheduleTimes:
    """The times at which signed schedules were taken."""

    def __init__(self, path: Path) -> None:
        self._file = StateFile(path, dict[str, _Taken])
        self._taken: dict[str, _Taken] = {}

    def open(self) -> None:
        """Read what an earlier process has taken. Blocking."""
        self._taken = self._file.load() or {}

    async def take(self, claims: Claims, due: datetime, run: str) -> None:
        """
        Take a due request once; the same run may come again, for the ledger knows it.

        Raises:
            SignatureError: Its time is not one of the schedule's, or was taken already.
        """
        when, zone = claims.details.get("when", ""), claims.details.get("zone", "")
        try:
            # in a thread, for time zones are files
            slot = (await asyncio.to_thread(schedule_slot, when, zone, due)).timestamp()
        except (CcmError, ValueError, LookupError, OSError, OverflowError, TypeError) as err:
            raise SignatureError(
                f"{claims.subject}: it was due at {format_moment(due)}, which does not fit the signed "
                f"schedule {when!r}: {err}"
            ) from err
        key = f"{claims.digest}:{claims.issued}"
        was = self._taken.get(key)
        if was is not None and was.run != run and slot < was.slot + least_pause_s(when):
            raise SignatureError(
                f"{claims.subject}: the signed schedule {when!r} was taken for this time already, by run {short_id(was.run)}"
            )
        if was is None or was.run != run:
            self._taken[key] = _Taken(slot=slot, run=run, expires=claims.expires)
            await self._keep(due)

    async def _keep(self, now: datetime) -> None:
        now_ms = now.timestamp() * 1000
        self._taken = {
            key: one for key, one in self._taken.items() if not one.expires or one.expires > now_ms
        }
        await self._file.save(dict(self._taken))
