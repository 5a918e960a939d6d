"""
Scheduled requests that were due while this node was offline. If a schedule catches up, the node executes its last missed
request, once.

The broker keeps the last due request of each subject. The first schedule of an action and scope uses the common subject of its
requests. Each further schedule has a subject of its own, which is in the index of schedules. So each schedule has its own last
due request.

The last request seen on each subject is stored on disk, because the request log covers only a day and a schedule may be
monthly. Requests are compared by the broker's time, so neither a lagging replica nor a recreated stream can cause an old
request to be executed again. Requests that were due before the node had the scope are ignored: a node that becomes a web server
today has not missed last night's run.

In addition, the latest due request of each subject is remembered permanently, for all schedules. A node or an operator can make
the broker deliver a stored due request again with all its headers, and the request log remembers a run only for a day.
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
"""The actions that `ccmctl schedule add` can schedule."""


STALE_S = 86_400.0
"""A scheduled request that is older than this is not executed, so request logs need not remember it for longer."""


LATE_S = 600.0
"""A due request is delivered within seconds. If the request is older than this, it was delivered before."""

LATEST_LIMIT = 10_000
"""The maximum number of remembered subjects. Those with the latest requests are kept. A node has only a few scopes at a time."""


class Seen(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The last due request of a subject that this node has seen.

    Attributes:
        time: When it was due, by the broker's clock; None if there was no due request when the node checked.
        sequence: Its sequence in the stream, for display.
    """

    time: datetime | None = None
    sequence: int = 0


class _StoredTimes(Struct, kw_only=True):
    """
    The content of the file.

    Attributes:
        node: The node's identity.
        seen: By subject, the last request seen, for catching up; only for the node's current scopes.
        latest: By subject, the latest due request that was delivered; for all scopes that the node has ever had.
    """

    node: str
    seen: dict[str, Seen] = {}
    latest: dict[str, Seen] = {}


class _Flag(Struct):
    catch_up: bool = False


class MissedSchedules:
    """The scheduled requests that one agent has missed and executes when it is back online."""

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
            node: The node's identity.
            requests: Reads the last due request of a subject.
            link: The connection.
            path: The file of the requests seen.
            scopes: Returns the node's current scopes.
            on_request: Handles a request as if it had been delivered now; `heard` is called afterwards.
            clock: Returns the current time.
            is_known: Returns whether the request log contains a run. If so, the request is answered and not executed again.
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
        """Whether nothing is left to read and the requests seen are on disk."""
        return not self._is_due and not self._is_looking and self._file.is_saved(self._now())

    def open(self) -> None:
        """Read the file of an earlier process. Blocking."""
        kept = self._file.load()
        if kept is not None and kept.node == self._node:
            self._seen, self._latest = dict(kept.seen), dict(kept.latest)
        self._file.mark_saved(self._now())

    def expect(self) -> None:
        """
        Expect missed requests, because the broker was unavailable or the node's scopes have changed. They are read after
        `settled`.
        """
        self._is_due = True

    def settled(self) -> None:
        """Record that the node's scopes are now correct."""
        if self._is_due:
            self._wake.set()

    def identify_run(self, incoming: IncomingRequest) -> tuple[str, datetime]:
        """
        Return run id and due time of a scheduled request.

        Anyone who may read due messages can make the broker deliver an old one to all nodes again. The request log recognizes
        its id for a day. After that, only a request that this node has missed is accepted, and only if it is later than the
        latest one on its subject. The broker's times are compared, because the sequences of a rebuilt broker start at 1 again.

        Raises:
            ProtocolError: The broker's headers are missing, or the request is old and was not missed, or it was superseded.
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
        """
        Whether the request is later than the previous ones on its subject, or is the latest one delivered twice within minutes.
        """
        latest, seen = self._latest.get(incoming.subject), _read_seen(incoming)
        if latest is None or _is_above(seen, latest):
            return True
        return seen == latest and age_s <= LATE_S

    def _was_missed(self, incoming: IncomingRequest) -> bool:
        was = self._seen.get(incoming.subject)
        return was is not None and _wants(incoming) and _is_newer(_read_seen(incoming), was)

    def heard(self, incoming: IncomingRequest) -> None:
        """Record that a scheduled request was handled, regardless of its source and its result."""
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
        """Execute missed requests until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                # A read takes as long as the broker needs, so save first.
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
            # Try again the next time that facts are read.
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
                # The node had this scope at the last check, so it has missed the requests of a schedule that is new to it.
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
        # A node that loses a scope and gets it back starts from the beginning.
        for subject in self._seen.keys() - set(subjects):
            del self._seen[subject]

    async def _own_subjects(self, scopes: list[str]) -> list[str]:
        """
        Return the request subjects of schedules that do not use the common one. If the index cannot be read, return the known
        ones.
        """
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
                # This node does not execute the request, and a second delivery must not change that.
                self._raise_latest(subject, seen)
        elif (latest := self._latest.get(subject)) is not None and not _is_above(seen, latest):
            # The request was executed or refused before the index removed this schedule and added it again.
            self._seen[subject] = seen
        elif _is_newer(seen, was):
            log.info("a due request was missed", extra={"subject": subject, "due": str(seen.time)})
            self._on_request(incoming)

    async def _save(self) -> None:
        await self._file.save(self._now())

    def _now(self) -> _StoredTimes:
        return _StoredTimes(node=self._node, seen=dict(self._seen), latest=dict(self._latest))


def _find_shared_subject(subject: str) -> str:
    """Return the common subject for requests of the same kind and scope."""
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
    """Whether a request is later; for equal times, the sequence in the stream decides."""
    return _is_newer(seen, was) or (seen.time == was.time and seen.sequence > was.sequence)


def _is_newer(seen: Seen, was: Seen) -> bool:
    return was.time is None or (seen.time is not None and seen.time > was.time)
