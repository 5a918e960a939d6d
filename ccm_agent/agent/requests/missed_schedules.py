"""
Scheduled requests that were due while this node was away: the node takes the last one of each schedule, once, if it catches up.

The broker keeps the last due request of each subject. One schedule of an action and scope sends where all requests arrive;
every further one has a subject of its own, which the index of schedules names. So each schedule has its own last due request.

What was seen of each subject is on disk, for a ledger forgets within a day and a schedule may come once a month. It is seen by
the broker's time of it, so neither a replica that lags nor a stream that was made again brings an old one back. What was due
before the node had the scope does not concern it: a node that becomes a web server today has not missed last night's run.

Apart from that it remembers the latest due request of each subject, permanently and whatever the schedule says. A node or an
operator can have a stored due request delivered again with all its headers, and a ledger knows a run for a day only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from ccm_agent.agent.trust.schedule_times import scheduled_run_id
from ccm_agent.bus.streams import parse_sequence, parse_time
from ccm_agent.bus.subjects import parse_scheduled, request_subject
from ccm_agent.model.errors import BusDeniedError, BusError, ProtocolError
from ccm_agent.model.formats.moments import format_moment
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import BrokerConnection, Clock, IncomingRequest, Requests
from ccm_agent.model.wire import MANIFEST_APPLY, MANIFEST_PLAN
from ccm_agent.storage.state_file import StateFile

log = logging.getLogger(__name__)

SCHEDULED = (MANIFEST_APPLY, MANIFEST_PLAN)
"""What `ccmctl schedule add` makes schedules of."""


STALE_S = 86_400.0
"""A scheduled request that is older is not a timely one; no request log needs to remember one for longer."""


LATE_S = 600.0
"""A due request is delivered within seconds; one that is older than this is not on its way for the first time."""

LATEST_LIMIT = 10_000
"""So many subjects are remembered, those of the latest requests; a node has a few scopes at a time."""


class Seen(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The last due request of a subject that this node has seen.

    Attributes:
        time: When it was due, by the broker's clock; None: there was none when the node looked.
        sequence: Its place in the stream, for people.
    """

    time: datetime | None = None
    sequence: int = 0


class _StoredTimes(Struct, kw_only=True):
    """
    What is stored on disk.

    Attributes:
        node: Whose it is.
        seen: By subject, for what a schedule is caught up with; of the scopes that the node has.
        latest: By subject, the latest due request that the node was given; of all scopes that it ever had.
    """

    node: str
    seen: dict[str, Seen] = {}
    latest: dict[str, Seen] = {}


class _Flag(Struct):
    catch_up: bool = False


class MissedSchedules:
    """What one agent has missed, and takes when it is back."""

    def __init__(
        self,
        node: str,
        requests: Requests,
        link: BrokerConnection,
        path: Path,
        scopes: Callable[[], list[str]],
        on_request: Callable[[IncomingRequest], None],
        clock: Clock,
        is_known: Callable[[str], bool],
    ) -> None:
        """
        Args:
            node: This node.
            requests: Where the last due request of a subject is asked for.
            link: The connection.
            path: Where it is kept what was seen.
            scopes: The node's scopes as they are now.
            on_request: Takes a request, as if it had been delivered now; `heard` follows when it was handled.
            clock: What time it is.
            is_known: The ledger knows a run, so the request is answered and not carried out again.
        """
        self._clock = clock
        self._is_known = is_known
        self._node = node
        self._requests = requests
        self._link = link
        self._file = StateFile(path, _StoredTimes)
        self._scopes = scopes
        self._on_request = on_request
        self._seen: dict[str, Seen] = {}
        self._latest: dict[str, Seen] = {}
        self._is_due = True
        self._is_looking = False
        self._trouble = ""
        self._limited = LimitedLog(log)
        self._wake = asyncio.Event()

    @property
    def is_settled(self) -> bool:
        """Nothing is left to read, and what was seen is on disk."""
        return not self._is_due and not self._is_looking and self._file.is_saved(self._now())

    def open(self) -> None:
        """Take what an earlier process saw. Blocking."""
        kept = self._file.load()
        if kept is not None and kept.node == self._node:
            self._seen, self._latest = dict(kept.seen), dict(kept.latest)
        self._file.mark_saved(self._now())

    def expect(self) -> None:
        """The broker was away, or the node has other scopes: there may be something, as soon as `settled` is called."""
        self._is_due = True

    def settled(self) -> None:
        """The node's scopes are right as of now."""
        if self._is_due:
            self._wake.set()

    def identify_run(self, incoming: IncomingRequest) -> tuple[str, datetime]:
        """
        Run id and due time of a scheduled request.

        Who may read due messages can have an old one delivered again, to all nodes; by its id a ledger knows it for a day.
        After that only one that this node has missed is taken, and never one that is not above the latest of its subject.
        The broker's time of it is compared, because a rebuilt broker counts from 1 again.

        Raises:
            ProtocolError: The broker's headers are not there, or it is old and was not missed, or was superseded.
        """
        run, due = scheduled_run_id(incoming)
        age_s = (self._clock.now() - due).total_seconds()
        if age_s > STALE_S and not self._was_missed(incoming):
            raise ProtocolError(
                f"{incoming.subject}: it was due {format_moment(due)}, which is too long ago; check this host's clock"
            )
        if age_s < -STALE_S:
            raise ProtocolError(
                f"{incoming.subject}: it is due {format_moment(due)}, which is in the future; check the clocks"
            )
        if not self._is_known(run) and not self._is_above_latest(incoming, age_s):
            raise ProtocolError(
                f"{incoming.subject}: refused: it was due {format_moment(due)}, and it or a later one was already accepted"
            )
        return run, due

    def _is_above_latest(self, incoming: IncomingRequest, age_s: float) -> bool:
        """It is later than what came on its subject before, or the latest itself, which may come twice within minutes."""
        latest, seen = self._latest.get(incoming.subject), _read_seen(incoming)
        if latest is None or _is_above(seen, latest):
            return True
        return seen == latest and age_s <= LATE_S

    def _was_missed(self, incoming: IncomingRequest) -> bool:
        was = self._seen.get(incoming.subject)
        return was is not None and _wants(incoming) and _is_newer(_read_seen(incoming), was)

    def heard(self, incoming: IncomingRequest) -> None:
        """A scheduled request was handled, however it had come and whatever became of it."""
        if not incoming.scheduled:
            return
        seen, was = _read_seen(incoming), self._seen.get(incoming.subject)
        self._raise_latest(incoming.subject, seen)
        if _wants(incoming) and (was is None or _is_newer(seen, was)):
            self._seen[incoming.subject] = seen
        self._wake.set()

    def _raise_latest(self, subject: str, seen: Seen) -> None:
        latest = self._latest.get(subject)
        is_to_come = seen.time is not None and (seen.time - self._clock.now()).total_seconds() > STALE_S
        if is_to_come or (latest is not None and not _is_above(seen, latest)):
            return
        self._latest.pop(subject, None)
        self._latest[subject] = seen
        while len(self._latest) > LATEST_LIMIT:
            self._latest.pop(next(iter(self._latest)))

    async def run(self) -> None:
        """Take what was missed, until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                # a look takes as long as the broker does; what was handled is on disk before
                await self._save()
                await self._turn()
                await self._save()
        finally:
            await self._save()

    async def _turn(self) -> None:
        if not self._is_due or not self._link.connected:
            return
        self._is_due, self._is_looking = False, True
        try:
            await self._look()
        except BusError as err:
            # the next reading of the facts is the next try
            self._is_due = True
            if str(err) != self._trouble:
                log.info("due requests cannot be read now", extra={"reason": str(err)})
            self._trouble = str(err)
        else:
            self._trouble = ""
        finally:
            self._is_looking = False

    async def _look(self) -> None:
        scopes = self._scopes()
        shared = [request_subject(protocol, scope) for scope in scopes for protocol in SCHEDULED]
        own = await self._own_subjects(scopes)
        for subject in own:
            if _find_shared_subject(subject) in self._seen:
                # the node had this scope when it looked last, so it has missed what a schedule that is new to it sent since
                self._seen.setdefault(subject, Seen())
        subjects = [*shared, *own]
        for subject in subjects:
            try:
                incoming = await self._requests.last_due(subject)
            except ProtocolError as err:
                self._limited.warning(
                    "a due request is skipped", extra={"subject": subject, "reason": str(err)}
                )
                continue
            self._judge(subject, incoming)
        # a node that loses a scope and gets it again starts from the beginning
        for subject in self._seen.keys() - set(subjects):
            del self._seen[subject]

    async def _own_subjects(self, scopes: list[str]) -> list[str]:
        """The subjects of schedules that have one of their own; those that are known where the index cannot be read."""
        try:
            return await self._requests.own_subjects(scopes)
        except (BusDeniedError, ProtocolError) as err:
            self._limited.warning("the index of schedules cannot be used", extra={"reason": str(err)})
        found = {subject: parse_scheduled(subject) for subject in self._seen}
        return [subject for subject, (_, scope, schedule) in found.items() if schedule and scope in scopes]

    def _judge(self, subject: str, incoming: IncomingRequest | None) -> None:
        was = self._seen.get(subject)
        if incoming is None:
            self._seen.setdefault(subject, Seen())
            return
        seen = _read_seen(incoming)
        if was is None or not _wants(incoming):
            self._seen[subject] = seen
            if seen.time is not None and (self._clock.now() - seen.time).total_seconds() > LATE_S:
                # this node does not take it, so a second delivery does not make the node take it
                self._raise_latest(subject, seen)
        elif (latest := self._latest.get(subject)) is not None and not _is_above(seen, latest):
            # it was taken, or refused, before the index dropped this schedule and named it again
            self._seen[subject] = seen
        elif _is_newer(seen, was):
            log.info("a due request was missed", extra={"subject": subject, "due": str(seen.time)})
            self._on_request(incoming)

    async def _save(self) -> None:
        await self._file.save(self._now())

    def _now(self) -> _StoredTimes:
        return _StoredTimes(node=self._node, seen=dict(self._seen), latest=dict(self._latest))


def _find_shared_subject(subject: str) -> str:
    """Where all requests arrive of the kind and scope of a subject."""
    protocol, scope, _ = parse_scheduled(subject)
    return request_subject(protocol, scope)


def _wants(incoming: IncomingRequest) -> bool:
    try:
        return decode_foreign(incoming.body, _Flag).catch_up
    except msgspec.DecodeError:
        return False


def _read_seen(incoming: IncomingRequest) -> Seen:
    lowered = {name.lower(): value for name, value in incoming.headers.items()}
    return Seen(
        time=parse_time(lowered["nats-time-stamp"]), sequence=parse_sequence(lowered["nats-sequence"])
    )


def _is_above(seen: Seen, was: Seen) -> bool:
    """It is later; of one moment, by its place in the stream."""
    return _is_newer(seen, was) or (seen.time == was.time and seen.sequence > was.sequence)


def _is_newer(seen: Seen, was: Seen) -> bool:
    return was.time is None or (seen.time is not None and seen.time > was.time)
