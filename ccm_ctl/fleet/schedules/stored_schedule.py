"""Schedules in the form stored by the broker: decode messages of CCM_SCHEDULES, and compute the next due times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureError, read_claims
from ccm_agent.bus.signatures.verified import Unverified, Verified
from ccm_agent.bus.streams import Stored
from ccm_agent.bus.subjects import (
    due_subject,
    own_subject,
    parse_schedule,
    request_subject,
    rollout_due_subject,
    rollout_schedule_subject,
    rollout_start_subject,
    scheduled_rollout,
)
from ccm_agent.model.errors import CcmError, ProtocolError
from ccm_agent.model.formats.cron import Cron
from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ids import due_run_id
from ccm_agent.model.wire import ManifestRequest
from ccm_ctl.fleet.rollout.scheduled import ScheduledRollout

_DUE_ONCE = "purge"
"""
The value of the header `Nats-Schedule-Next` in a due message whose schedule will not be due again. Otherwise it is the next
time.
"""


class Schedule(Struct, frozen=True, kw_only=True):
    """
    A stored schedule.

    Attributes:
        name: Its name.
        subject: The subject that stores it.
        protocol, scope: Its action and scope.
        target: The subject on which its requests arrive.
        when: `0 0 2 * * *`, `@every 3600s` or `@at 2026-12-01T02:00:00Z`. "": it was due once. The due message is kept to show
            its outcome, and for nodes that catch up.
        zone: Time zone of a cron expression. "": UTC.
        stored: When it was created.
        last: When it was last due. None: not yet.
        last_run: The ID of its last run. "": it was not due yet, or the broker does not report it.
        ends: When its signature expires. None: it is not signed.
        request: The request that it sends.
        rollout: Waves and limits, if rollout servers start it. None: the broker sends its request to the nodes.
        message: The stored message, or the due one of a schedule that was due once.
        proof: The request and the result of checking its signature. None: it was not checked.
    """

    name: str
    subject: str
    protocol: str
    scope: str
    target: str
    when: str
    zone: str = ""
    stored: datetime
    last: datetime | None = None
    last_run: str = ""
    ends: datetime | None = None
    request: ManifestRequest
    rollout: ScheduledRollout | None = None
    message: Stored | None = None
    proof: Verified[ManifestRequest] | Unverified[ManifestRequest] | None = None

    @property
    def unverified(self) -> str:
        """The reason why its signature is not valid. "": it is valid, or was not checked."""
        return self.proof.reason if self.proof is not None else ""

    def verified(self) -> Verified[ManifestRequest]:
        """
        Return its request, as the base of new signed objects.

        Raises:
            SignatureError: It is not verified.
        """
        if isinstance(self.proof, Verified):
            return self.proof
        raise SignatureError(
            f"{self.name}: the schedule is not verified: {self.unverified or 'its signature was not checked'}; "
            f"`ccmctl schedule add {self.name}` stores it again from its files"
        )

    @property
    def has_own_subject(self) -> bool:
        """Whether its requests arrive on a separate subject, instead of the common one for their kind."""
        return self.rollout is None and self.target != request_subject(self.protocol, self.scope)

    @property
    def has_effect(self) -> bool:
        """
        Whether it will be due, or nodes that were offline will catch up with it. Otherwise it is only stored to show its outcome.
        """
        return bool(self.when) or self.request.catch_up

    @property
    def due(self) -> str:
        """The subject on which the broker stores due requests."""
        return rollout_due_subject(self.name) if self.rollout is not None else due_subject(self.target)

    def next_after(self, now: datetime) -> datetime | None:
        """Return when it is due next. None: not again, or unknown."""
        return next_time(self.when, self.zone, since=max(self.last or self.stored, self.stored), now=now)


def next_time(when: str, zone: str, *, since: datetime, now: datetime) -> datetime | None:
    """
    Return when a schedule is due next, if this can be computed without the broker. None: not again, or unknown.

    Args:
        when, zone: Its times, as in `Schedule`.
        since: When it was last due, or stored. An interval starts at this time.
        now: The result is later than this time.
    """
    word, _, rest = when.partition(" ")
    try:
        if word == "@at":
            moment = datetime.fromisoformat(rest)
            return moment if moment > now else None
        if word == "@every":
            return since + timedelta(seconds=parse_duration(rest))
        return Cron(when).next_after(now, ZoneInfo(zone or "UTC"))
    except (CcmError, ValueError, LookupError, OSError, OverflowError, TypeError):
        return None  # OverflowError: beyond the calendar; TypeError: a time without a zone


def read_past(stored: Stored) -> Schedule | None:
    """
    Return a schedule that was due once. The broker has removed the schedule, but the due message still contains its name.

    A schedule that would be due again was removed on purpose. Older controllers leave its due message in place. Such a schedule
    is returned only if nodes will still catch up with the message.
    """
    if scheduled_rollout(stored.subject):
        return _read_past_rollout(stored)
    headers = {key.lower(): value for key, value in stored.headers.items()}
    subject = headers.get("nats-scheduler", "")
    try:
        protocol, scope, name = parse_schedule(subject)
        target = _parse_target(subject, stored.subject)
        request = decode_foreign(stored.body, ManifestRequest)
    except (CcmError, msgspec.MsgspecError):
        return None
    if headers.get("nats-schedule-next") != _DUE_ONCE and not request.catch_up:
        return None
    return Schedule(
        name=name,
        subject=subject,
        protocol=protocol,
        scope=scope,
        target=target,
        when="",
        stored=stored.time,
        last=stored.time,
        last_run=_read_run(stored),
        request=request,
        message=stored,
    )


def read_schedule(stored: Stored, due: Mapping[str, Stored]) -> Schedule | None:
    """Return a schedule, or None if it cannot be read. `due`: the last due messages, by subject."""
    if scheduled_rollout(stored.subject):
        return _read_rollout(stored, due)
    headers = {key.lower(): value for key, value in stored.headers.items()}
    try:
        protocol, scope, name = parse_schedule(stored.subject)
        target = _parse_target(stored.subject, headers.get("nats-schedule-target", ""))
        request = decode_foreign(stored.body, ManifestRequest)
    except (CcmError, msgspec.MsgspecError):
        return None
    last = due.get(due_subject(target))
    return Schedule(
        name=name,
        subject=stored.subject,
        protocol=protocol,
        scope=scope,
        target=target,
        when=headers.get("nats-schedule", ""),
        zone=headers.get("nats-schedule-time-zone", ""),
        stored=stored.time,
        last=last.time if last is not None else None,
        last_run=_read_run(last) if last is not None else "",
        ends=_read_expiry(headers.get(SIGNATURE_HEADER.lower(), "")),
        request=request,
        message=stored,
    )


def _read_rollout(stored: Stored, due: Mapping[str, Stored]) -> Schedule | None:
    """Return the schedule of a rollout."""
    headers = {key.lower(): value for key, value in stored.headers.items()}
    name = scheduled_rollout(stored.subject)
    last = due.get(rollout_due_subject(name))
    made = _make_rollout(stored, name)
    if made is None or headers.get("nats-schedule-target", "") != rollout_due_subject(name):
        return None
    return msgspec.structs.replace(
        made,
        when=headers.get("nats-schedule", ""),
        zone=headers.get("nats-schedule-time-zone", ""),
        last=last.time if last is not None and last.body else None,
        ends=_read_expiry(headers.get(SIGNATURE_HEADER.lower(), "")),
    )


def _read_past_rollout(stored: Stored) -> Schedule | None:
    """Return the schedule of a rollout that was due once."""
    made = _make_rollout(stored, scheduled_rollout(stored.subject))
    return made and msgspec.structs.replace(made, last=stored.time)


def _make_rollout(stored: Stored, name: str) -> Schedule | None:
    """Decode the body. Returns None if it cannot be read."""
    try:
        rollout = decode_foreign(stored.body, ScheduledRollout)
    except msgspec.MsgspecError:
        return None
    return Schedule(
        name=name,
        subject=rollout_schedule_subject(name),
        protocol=rollout.request.protocol,
        scope=rollout.scope,
        target=rollout_start_subject(name),
        when="",
        stored=stored.time,
        request=rollout.request,
        rollout=rollout,
        message=stored,
    )


def _read_run(due: Stored) -> str:
    """Return the ID of the run that a due request starts, as each node derives it."""
    try:
        return due_run_id(due.headers)[0]
    except (KeyError, ValueError):
        return ""


def _parse_target(schedule: str, due: str) -> str:
    """
    Return the subject on which a schedule's requests arrive, from the subject on which the broker stores them.

    Raises:
        ProtocolError: This subject is not for its requests, so agents refuse them.
    """
    protocol, scope, _ = parse_schedule(schedule)
    targets = (request_subject(protocol, scope), own_subject(schedule))
    for target in targets:
        if due_subject(target) == due:
            return target
    raise ProtocolError(f"{schedule}: it sends to {due}, where agents do not accept its requests")


def _read_expiry(signature: str) -> datetime | None:
    try:
        expires = read_claims(signature).expires if signature else 0
    except SignatureError:
        return None
    return datetime.fromtimestamp(expires / 1000, UTC) if expires else None
