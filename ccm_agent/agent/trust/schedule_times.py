"""
Scheduled requests: their run id and time, and the times that this node has accepted.

The broker repeats one fixed body, so run id and time come from the headers that it adds. The id is a KSUID that is made from
the time when the message was stored, and from the digest of its position. So each node that receives the message, now or later,
derives the same run id.

The broker triggers schedules, but must not choose their times. A schedule's signature contains its times. A due request is
accepted if its time matches one of them, and only once for each. So an attacker who controls the broker cannot run a schedule at
another time or twice. The last accepted time is stored on disk until the schedule's signature expires.
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
    Return run id and due time of a scheduled request.

    Raises:
        ProtocolError: The broker's headers are missing.
    """
    try:
        return due_run_id(incoming.headers)
    except (KeyError, ValueError) as err:
        raise ProtocolError(
            f"{incoming.subject}: a scheduled request without the broker's headers: {err}"
        ) from err


def schedule_name(incoming: IncomingRequest) -> str:
    """Return the name of the schedule that triggered a request; "" if the broker's headers do not contain it."""
    for name, value in incoming.headers.items():
        if name.lower() == "nats-scheduler":
            try:
                return parse_schedule(value)[2]
            except ProtocolError:
                return ""
    return ""


class _Taken(Struct, frozen=True, kw_only=True):
    """The last accepted time of one schedule: the scheduled time, its run, and when the schedule's signature expires."""

    slot: float
    run: str
    expires: int = 0


class ScheduleTimes:
    """The accepted times of signed schedules."""

    def __init__(self, path: Path) -> None:
        self._file = StateFile(path, dict[str, _Taken])
        self._taken: dict[str, _Taken] = {}

    def open(self) -> None:
        """Read the times that an earlier process stored. Blocking."""
        self._taken = self._file.load() or {}

    async def take(self, claims: Claims, due: datetime, run: str) -> None:
        """
        Accept a due request once. The same run may be delivered again, because the request log recognizes it.

        Raises:
            SignatureError: The time is not one of the schedule's times, or was already used.
        """
        when, zone = claims.details.get("when", ""), claims.details.get("zone", "")
        try:
            # Run this in a thread, because time zones are read from files.
            slot = (await asyncio.to_thread(schedule_slot, when, zone, due)).timestamp()
        except (CcmError, ValueError, LookupError, OSError, OverflowError, TypeError) as err:
            raise SignatureError(
                f"{claims.subject}: it was due at {format_moment(due)}, which does not match the signed "
                f"schedule {when!r}: {err}"
            ) from err
        key = f"{claims.digest}:{claims.issued}"
        was = self._taken.get(key)
        if was is not None and was.run != run and slot < was.slot + least_pause_s(when):
            raise SignatureError(
                f"{claims.subject}: the signed schedule {when!r} was already executed for this time, by run {short_id(was.run)}"
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
