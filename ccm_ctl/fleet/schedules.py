"""
Schedules: requests that the broker stores and publishes on time, so that no process of ours keeps it.

One message each, on a subject that says what it does to whom. What is due goes out as the request that it is, to the very
subject that a person would have used.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from ccm_agent.bus.events import EXPECTED_STREAM
from ccm_agent.bus.layout import SCHEDULES_VERSION
from ccm_agent.bus.requests import SCHEDULES_STREAM
from ccm_agent.bus.signing import SIGNATURE_HEADER, SignatureError, read_claims
from ccm_agent.bus.streams import call, read_last, read_newest, store
from ccm_agent.bus.subjects import (
    DUE_PREFIX,
    SCHEDULE_PREFIX,
    due_subject,
    parse_schedule,
    request_subject,
    schedule_subject,
)
from ccm_agent.model.cron import Cron
from ccm_agent.model.durations import parse_duration
from ccm_agent.model.errors import BusDeniedError, BusSetupError, CcmError, NotFoundError, UsageError
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.model.untrusted_json import decode_foreign
from ccm_agent.model.wire import ManifestRequest
from ccm_ctl.fleet.assignments import scope_words

if TYPE_CHECKING:
    from ccm_agent.bus.connection import Connection
    from ccm_agent.bus.signatory import Signatory
    from ccm_agent.bus.streams import Stored


class Schedule(Struct, frozen=True, kw_only=True):
    """
    A schedule as it is stored.

    Attributes:
        name: As it is called.
        subject: Where it is stored.
        protocol, scope: What it asks of whom.
        when: `0 0 2 * * *`, `@every 3600s` or `@at 2026-12-01T02:00:00Z`; "" for one that was due once and is kept for those who
            catch up.
        zone: Time zone of a cron; "" is UTC.
        stored: When it was made.
        last: When it was due last; None: not yet.
        ends: When its signature expires; None: it is not signed.
        request: What it sends.
    """

    name: str
    subject: str
    protocol: str
    scope: str
    when: str
    zone: str = ""
    stored: datetime
    last: datetime | None = None
    ends: datetime | None = None
    request: ManifestRequest

    def next_after(self, now: datetime) -> datetime | None:
        """When it is due next, as far as that can be said from here; None: not again, or unknown."""
        word, _, rest = self.when.partition(" ")
        try:
            if word == "@at":
                moment = datetime.fromisoformat(rest)
                return moment if moment > now else None
            if word == "@every":
                return max(self.last or self.stored, self.stored) + timedelta(seconds=parse_duration(rest))
            return Cron(self.when).next_after(now, ZoneInfo(self.zone or "UTC"))
        except (CcmError, ValueError, LookupError, OSError, OverflowError, TypeError):
            return None  # OverflowError: beyond the calendar; TypeError: a time without a zone


class Schedules:
    """The schedules of a broker that knows them."""

    def __init__(self, connection: Connection, signatory: Signatory | None = None) -> None:
        """
        Take a broker.

        Args:
            connection: Where it is.
            signatory: Signs what is stored; None: it is not signed.

        Raises:
            BusSetupError: It has no schedules of this kind.
        """
        server = connection.server
        if server is not None and server.version < SCHEDULES_VERSION:
            has, wants = (".".join(map(str, version)) for version in (server.version, SCHEDULES_VERSION))
            raise BusSetupError(
                f"nats-server {has}: has no schedules of this kind; they need {wants} or newer"
            )
        self._connection = connection
        self._signatory = signatory

    async def all(self) -> list[Schedule]:
        """All of them, by name, those too that were due once and are not due again. What somebody copied there is none."""
        stored = await read_newest(
            self._connection, SCHEDULES_STREAM, [f"{SCHEDULE_PREFIX}.>", f"{DUE_PREFIX}.>"]
        )
        due = {each.subject: each.time for each in stored if each.subject.startswith(f"{DUE_PREFIX}.")}
        found = [_schedule(each, due) for each in stored if each.subject not in due and not each.copied]
        lasting = {one.subject for one in found if one is not None}
        past = [_past(each) for each in stored if each.subject in due and not each.copied]
        removed = {each.subject for each in stored if not each.body}
        found += [one for one in past if one is not None and one.subject not in lasting | removed]
        return sorted((one for one in found if one is not None), key=lambda one: one.name)

    async def need(self, name: str) -> Schedule:
        """
        The schedule of a name.

        Raises:
            NotFoundError: There is none.
        """
        known = await self.all()
        for one in known:
            if one.name == name:
                return one
        near = did_you_mean(name, (one.name for one in known))
        raise NotFoundError(
            f"{name}: there is no such schedule{near or '; `ccmctl schedule list` shows which there are'}"
        )

    async def put(
        self,
        name: str,
        scope: str,
        when: str,
        zone: str,
        request: ManifestRequest,
        *,
        ends: datetime,
    ) -> bool:
        """
        Store a schedule; whether it took the place of one of the same name.

        Args:
            name: What it is called.
            scope: Whom it is for.
            when, zone: Its times, as the broker words them.
            request: What is sent.
            ends: Agents that demand signatures take it no longer after this.

        Raises:
            UsageError: The name is taken for other nodes, or others have a schedule for the same nodes already.
        """
        subject = schedule_subject(request.protocol, scope, name)
        known = [one for one in await self.all() if one.when]
        for one in known:
            if one.name == name and one.subject != subject:
                raise UsageError(
                    f"{name}: there is a schedule of that name for {scope_words(one.scope)}; "
                    f"`ccmctl schedule rm {name}` removes it"
                )
            if one.name != name and (one.protocol, one.scope) == (request.protocol, scope):
                raise UsageError(
                    f"{name}: the schedule {one.name} asks the same of {scope_words(scope)}, "
                    "and one would hide what the other had due; use one manifest, or other targets"
                )
        target = due_subject(request_subject(request.protocol, scope))
        await self._forget_due(target)
        headers = {"Nats-Schedule": when, "Nats-Schedule-Target": target}
        if zone:
            headers["Nats-Schedule-Time-Zone"] = zone
        body = msgspec.json.encode(request)
        if self._signatory is not None:
            headers |= self._signatory.schedule(
                request_subject(request.protocol, scope),
                body,
                name=name,
                when=when,
                zone=zone,
                expires_ms=int(ends.timestamp() * 1000),
            )
        await store(self._connection, subject, body, headers)
        return any(one.subject == subject for one in known)

    async def remove(self, name: str) -> None:
        """
        Take a schedule away; NotFoundError when there is none.

        An empty message takes its place: the broker asks nothing more then, and agents that were away see that there is nothing
        to catch up with. Purging would do the same, but the broker can allow a purge of all subjects only, not of one.
        """
        one = await self.need(name)
        await store(self._connection, one.subject, b"", {EXPECTED_STREAM: SCHEDULES_STREAM})
        await self._forget_due(due_subject(request_subject(one.protocol, one.scope)))

    async def _forget_due(self, subject: str) -> None:
        """Remove what was due, where the operator may: agents of before do not look whether its schedule is still there."""
        if await read_last(self._connection, SCHEDULES_STREAM, subject) is None:
            return
        with contextlib.suppress(BusDeniedError):
            await call(self._connection, f"STREAM.PURGE.{SCHEDULES_STREAM}", {"filter": subject})


def _past(stored: Stored) -> Schedule | None:
    """A schedule that was due once: the broker removes it then, and names it in what was due."""
    headers = {key.lower(): value for key, value in stored.headers.items()}
    try:
        protocol, scope, name = parse_schedule(headers.get("nats-scheduler", ""))
        request = decode_foreign(stored.body, ManifestRequest)
    except (CcmError, msgspec.MsgspecError):
        return None
    if due_subject(request_subject(protocol, scope)) != stored.subject or not request.catch_up:
        return None
    return Schedule(
        name=name,
        subject=headers["nats-scheduler"],
        protocol=protocol,
        scope=scope,
        when="",
        stored=stored.time,
        last=stored.time,
        request=request,
    )


def _schedule(stored: Stored, due: dict[str, datetime]) -> Schedule | None:
    headers = {key.lower(): value for key, value in stored.headers.items()}
    try:
        protocol, scope, name = parse_schedule(stored.subject)
        request = decode_foreign(stored.body, ManifestRequest)
    except (CcmError, msgspec.MsgspecError):
        return None
    last = due.get(due_subject(request_subject(protocol, scope)))
    return Schedule(
        name=name,
        subject=stored.subject,
        protocol=protocol,
        scope=scope,
        when=headers.get("nats-schedule", ""),
        zone=headers.get("nats-schedule-time-zone", ""),
        stored=stored.time,
        last=last,
        ends=_end_of(headers.get(SIGNATURE_HEADER.lower(), "")),
        request=request,
    )


def _end_of(signature: str) -> datetime | None:
    try:
        expires = read_claims(signature).expires if signature else 0
    except SignatureError:
        return None
    return datetime.fromtimestamp(expires / 1000, UTC) if expires else None
