"""
Schedules: requests that the broker stores and publishes at the scheduled time, without a running controller.

Each schedule is one message, on a subject that contains its action and scope. The first schedule of an action and scope sends
its requests to the subject that an operator would use, to which agents of every version subscribe. The broker keeps the last
due request of each subject, for nodes that catch up. Therefore a further schedule with the same action and scope sends to its
own subject, which is listed in the index of schedules (`ccm_agent.bus.schedule_index`).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.events import EXPECTED_STREAM
from ccm_agent.bus.layout import SCHEDULES_VERSION
from ccm_agent.bus.requests import SCHEDULES_STREAM
from ccm_agent.bus.schedule_index import INDEX_SUBJECT, ScheduleIndex, read_index
from ccm_agent.bus.streams import EXPECTED_SEQUENCE, call, read_last, read_newest, store
from ccm_agent.bus.subjects import (
    DUE_PREFIX,
    ROLLOUT_STARTS,
    SCHEDULE_PREFIX,
    due_subject,
    format_scope,
    own_subject,
    request_subject,
    rollout_due_subject,
    rollout_schedule_subject,
    rollout_start_subject,
    schedule_subject,
)
from ccm_agent.model.errors import (
    BusDeniedError,
    BusSetupError,
    NotFoundError,
    ProtocolError,
    RevisionError,
    UsageError,
)
from ccm_agent.model.suggestions import did_you_mean
from ccm_ctl.fleet.rollout.scheduled import find_due
from ccm_ctl.fleet.schedules.stored_schedule import read_past, read_schedule
from ccm_ctl.fleet.trust.verified_reader import open_reader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.signatures.verified import Base
    from ccm_agent.model.wire import ManifestRequest
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.rollout.scheduled import DueRollout, ScheduledRollout
    from ccm_ctl.fleet.schedules.stored_schedule import Schedule

SCHEDULES_LIMIT = 200
"""The maximum number of schedules for one action and scope. A node that comes back requests the last due request of each."""

_TRIES = 10


class SchedulePlacement(Struct, frozen=True, kw_only=True):
    """
    The storage location of a new schedule.

    Attributes:
        subject: The subject that stores it.
        target: The subject on which its requests arrive.
        is_new: Whether it does not replace another schedule.
        has_own_subject: Whether its requests arrive on a separate subject. Older agents refuse such requests.
    """

    subject: str
    target: str
    is_new: bool
    has_own_subject: bool


class _ScheduleMessage(Struct, frozen=True, kw_only=True):
    """
    A schedule before it is stored.

    Attributes:
        subject: The subject that will store it.
        target: The subject for which it is signed.
        due: The subject on which the broker stores due requests.
        body: Its bytes.
    """

    subject: str
    target: str
    due: str
    body: bytes


async def read_due_rollouts(connection: Connection) -> list[DueRollout]:
    """
    Return the newest due start of each scheduled rollout.

    Raises:
        BusError: The starts cannot be read, or the broker has no schedules.
    """
    return find_due(await read_newest(connection, SCHEDULES_STREAM, ROLLOUT_STARTS))


async def read_schedules(connection: Connection, fleet: Fleet, left_out: list[str]) -> list[Schedule]:
    """
    Return all schedules, sorted by name.

    Args:
        connection: The connection to the broker.
        fleet: The fleet. Its signers list is used to verify the schedules.
        left_out: The subjects of unreadable schedules are added to this list.

    Raises:
        BusSetupError: The broker has no schedules.
    """
    return await Schedules(connection, fleet).all(left_out=left_out)


class Schedules:
    """The schedules on a broker."""

    def __init__(self, connection: Connection, fleet: Fleet | None = None) -> None:
        """
        Store the connection and the fleet.

        Args:
            connection: The connection to the broker.
            fleet: The fleet, whose signatory signs and whose signers list verifies. None: nothing is signed or verified.

        Raises:
            BusSetupError: The broker does not support such schedules.
        """
        server = connection.server
        if server is not None and server.version < SCHEDULES_VERSION:
            has, wants = (".".join(map(str, version)) for version in (server.version, SCHEDULES_VERSION))
            raise BusSetupError(
                f"nats-server {has}: does not support schedules of this kind; {wants} or newer is required"
            )
        self._connection = connection
        self._fleet = fleet
        self._signatory = fleet.signatory if fleet is not None else None

    async def all(self, at_least: int = 0, left_out: list[str] | None = None) -> list[Schedule]:
        """
        Return all schedules, sorted by name, including those that were due once and will not be due again. Copied messages are
        left out.

        Args:
            at_least: The result includes at least all messages up to this sequence of the stream.
            left_out: The subjects of unreadable schedules are added to this list.
        """
        stored = await read_newest(
            self._connection, SCHEDULES_STREAM, [f"{SCHEDULE_PREFIX}.>", f"{DUE_PREFIX}.>"], at_least
        )
        due = {each.subject: each for each in stored if each.subject.startswith(f"{DUE_PREFIX}.")}
        found = [read_schedule(each, due) for each in stored if each.subject not in due and not each.copied]
        if left_out is not None:
            readable = {one.subject for one in found if one is not None}
            left_out += [
                one.subject
                for one in stored
                if one.body
                and one.subject != INDEX_SUBJECT
                and one.subject not in due
                and one.subject not in readable
            ]
        lasting = {one.subject for one in found if one is not None}
        past = [read_past(each) for each in stored if each.subject in due and not each.copied]
        removed = {each.subject for each in stored if not each.body}
        found += [one for one in past if one is not None and one.subject not in lasting | removed]
        known = sorted((one for one in found if one is not None), key=lambda one: one.name)
        if self._fleet is None:
            return known
        reader = await open_reader(self._fleet)
        return [reader.judged(one) for one in known]

    async def need(self, name: str) -> Schedule:
        """
        Return the schedule with a name.

        Raises:
            NotFoundError: There is no such schedule.
        """
        known = await self.all()
        for one in known:
            if one.name == name:
                return one
        near = did_you_mean(name, (one.name for one in known))
        raise NotFoundError(f"{name}: there is no such schedule{near or '; see `ccmctl schedule list`'}")

    async def place(self, protocol: str, scope: str, name: str) -> SchedulePlacement:
        """
        Return the subject that stores a schedule, and the subject on which its requests arrive.

        Raises:
            UsageError: The name is in use for other nodes, or there are too many schedules.
        """
        subject = schedule_subject(protocol, scope, name)
        known = await self._known(name, subject)
        alike = [
            one for one in known if one.rollout is None and (one.protocol, one.scope) == (protocol, scope)
        ]
        before = next((one for one in alike if one.subject == subject), None)
        others = [one for one in alike if one.subject != subject]
        if len(others) >= SCHEDULES_LIMIT:
            raise UsageError(
                f"{name}: there are already {len(others)} schedules for {format_scope(scope)}; remove one first"
            )
        is_shared = not before.has_own_subject if before else all(one.has_own_subject for one in others)
        return SchedulePlacement(
            subject=subject,
            target=request_subject(protocol, scope) if is_shared else own_subject(subject),
            is_new=before is None or not before.when,
            has_own_subject=not is_shared,
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
        base: Sequence[Base],
    ) -> bool:
        """
        Store a schedule. Returns whether it replaced one with the same name.

        Args:
            name: Its name.
            scope: Its scope.
            when, zone: Its times, in the broker's format.
            request: The request to send.
            ends: When the signature expires. Agents that require signatures do not accept the schedule after this time.
            base: The verified data or operator input from which it was made.

        Raises:
            UsageError: See `place`.
        """
        place = await self.place(request.protocol, scope, name)
        if place.has_own_subject:
            await self._update_index(place.subject)
        message = _ScheduleMessage(
            subject=place.subject,
            target=place.target,
            due=due_subject(place.target),
            body=msgspec.json.encode(request),
        )
        await self._store(message, name, when, zone, ends, base)
        if place.has_own_subject:
            # another operator who removed a schedule in the meantime may have written the index without this schedule
            await self._update_index(place.subject)
        return not place.is_new

    async def check_rollout(self, name: str) -> bool:
        """
        Return whether the schedule of a rollout with this name would be new.

        Raises:
            UsageError: The name is in use for another schedule, or there are too many.
        """
        subject = rollout_schedule_subject(name)
        rollouts = [one for one in await self._known(name, subject) if one.rollout is not None]
        others = [one for one in rollouts if one.subject != subject]
        if len(others) >= SCHEDULES_LIMIT:
            raise UsageError(
                f"{name}: there are already {len(others)} schedules of rollouts; remove one first"
            )
        return not any(one.when for one in rollouts if one.subject == subject)

    async def put_rollout(
        self,
        name: str,
        when: str,
        zone: str,
        rollout: ScheduledRollout,
        *,
        ends: datetime,
        base: Sequence[Base],
    ) -> bool:
        """
        Store the schedule of a rollout, which rollout servers start. Returns whether it replaced one with the same name.

        Args:
            name: Its name.
            when, zone: Its times, in the broker's format.
            rollout: The rollout to start.
            ends: When the signature expires. Servers that require signatures do not accept the schedule after this time.
            base: The verified data or operator input from which it was made.

        Raises:
            UsageError: See `check_rollout`.
        """
        is_new = await self.check_rollout(name)
        message = _ScheduleMessage(
            subject=rollout_schedule_subject(name),
            target=rollout_start_subject(name),
            due=rollout_due_subject(name),
            body=msgspec.json.encode(rollout),
        )
        await self._store(message, name, when, zone, ends, base)
        return not is_new

    async def _known(self, name: str, subject: str) -> list[Schedule]:
        """
        Return all schedules, after checking that none has this name and another subject.

        Raises:
            UsageError: A schedule has this name and another subject.
        """
        known = [one for one in await self.all() if one.has_effect]
        for one in known:
            if one.when and one.name == name and one.subject != subject:
                what = "of a rollout " if one.rollout is not None else ""
                raise UsageError(
                    f"{name}: there is already a schedule {what}with that name for {format_scope(one.scope)}; "
                    f"`ccmctl schedule rm {name}` removes it"
                )
        return known

    async def _store(
        self,
        message: _ScheduleMessage,
        name: str,
        when: str,
        zone: str,
        ends: datetime,
        base: Sequence[Base],
    ) -> None:
        """Sign and store a schedule in place of one on the same subject, and remove the due request of the old one."""
        await self._forget_due(message.due)
        headers = {"Nats-Schedule": when, "Nats-Schedule-Target": message.due}
        if zone:
            headers["Nats-Schedule-Time-Zone"] = zone
        if self._signatory is not None:
            headers |= self._signatory.schedule(
                message.target,
                message.body,
                base,
                name=name,
                when=when,
                zone=zone,
                expires_ms=int(ends.timestamp() * 1000),
            )
        await store(self._connection, message.subject, message.body, headers)

    async def remove(self, name: str) -> None:
        """
        Remove a schedule. Raises NotFoundError if it does not exist.

        The schedule is replaced by an empty message. The broker then sends no further requests, and agents that were offline have
        nothing to catch up with. A purge would have the same effect, but the broker can only permit purges of all subjects, not
        of one.
        """
        one = await self.need(name)
        await store(self._connection, one.subject, b"", {EXPECTED_STREAM: SCHEDULES_STREAM})
        await self._forget_due(one.due)
        if one.has_own_subject:
            await self._update_index()

    async def _update_index(self, added: str = "") -> None:
        """
        Write the index of stored schedules, including `added`, which is stored next.

        Raises:
            RevisionError: Other operators keep writing it.
        """
        for _ in range(_TRIES):
            index, sequence = await self._read_index()
            own = {one.subject for one in await self.all(sequence) if one.has_own_subject and one.has_effect}
            wanted = ScheduleIndex(schedules=sorted(own | ({added} if added else set())))
            if wanted == index:
                return
            headers = {
                EXPECTED_STREAM: SCHEDULES_STREAM,
                EXPECTED_SEQUENCE: str(sequence),
            }
            with contextlib.suppress(RevisionError):
                await store(self._connection, INDEX_SUBJECT, msgspec.json.encode(wanted), headers)
                return
        raise RevisionError("other operators keep writing the index of schedules; try again")

    async def _read_index(self) -> tuple[ScheduleIndex, int]:
        """Return the index. An unusable index is treated as empty and written again."""
        try:
            return await read_index(self._connection, SCHEDULES_STREAM)
        except ProtocolError:
            stored = await read_last(self._connection, SCHEDULES_STREAM, INDEX_SUBJECT)
            return ScheduleIndex(), stored.sequence if stored else 0

    async def _forget_due(self, subject: str) -> None:
        """Remove the due request if permitted. Older agents do not check that its schedule still exists."""
        if await read_last(self._connection, SCHEDULES_STREAM, subject) is None:
            return
        with contextlib.suppress(BusDeniedError):
            await call(self._connection, f"STREAM.PURGE.{SCHEDULES_STREAM}", {"filter": subject})
