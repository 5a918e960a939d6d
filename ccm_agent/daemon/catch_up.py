"""
Scheduled requests that this node was away for: of each of its scopes it takes the last one, once, if the schedule says so.

What was seen of each scope stands on disk, for a ledger forgets within a day and a schedule may come once a month. It is seen by
the broker's time of it, so neither a replica that lags nor a stream that was made anew brings an old one back. What was due
before the node had the scope is none of its business: whoever becomes a web server today has not missed last night's run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from ccm_agent.bus.subjects import request_subject
from ccm_agent.daemon.due import run_of
from ccm_agent.daemon.keeping import read_kept, write_kept
from ccm_agent.model.errors import BusError, FileError, ProtocolError
from ccm_agent.model.foreign import decode_foreign
from ccm_agent.model.ports import Clock, Incoming, Link, Requests
from ccm_agent.model.wire import MANIFEST_APPLY, MANIFEST_PLAN

log = logging.getLogger(__name__)

SCHEDULED = (MANIFEST_APPLY, MANIFEST_PLAN)
"""What `ccmctl schedule add` makes schedules of."""


STALE_S = 86_400.0
"""A scheduled request that is older comes from nobody who keeps time; no ledger need remember one for longer."""


class Seen(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The last due request of a subject that this node has seen.

    Attributes:
        time: When it was due, by the broker's clock; None: there was none when the node looked.
        sequence: Its place in the stream, for people.
    """

    time: datetime | None = None
    sequence: int = 0


class _Kept(Struct, kw_only=True):
    node: str
    seen: dict[str, Seen] = {}


class _Flag(Struct):
    catch_up: bool = False


class CatchUp:
    """What one agent has missed, and takes when it is back."""

    def __init__(
        self,
        node: str,
        requests: Requests,
        link: Link,
        path: Path,
        scopes: Callable[[], list[str]],
        on_request: Callable[[Incoming], None],
        clock: Clock,
    ) -> None:
        """
        Nothing is read yet.

        Args:
            node: This node.
            requests: Where the last due request of a subject is asked for.
            link: The connection.
            path: Where it is kept what was seen.
            scopes: The node's scopes as they are now.
            on_request: Takes a request, as if it had been delivered now; `heard` follows when it was handled.
            clock: What time it is.
        """
        self._clock = clock
        self._node = node
        self._requests = requests
        self._link = link
        self._path = path
        self._scopes = scopes
        self._on_request = on_request
        self._seen: dict[str, Seen] = {}
        self._kept: dict[str, Seen] = {}
        self._is_due = True
        self._is_looking = False
        self._trouble = ""
        self._wake = asyncio.Event()

    @property
    def is_settled(self) -> bool:
        """Nothing is to be looked at, and what was seen stands on disk."""
        return not self._is_due and not self._is_looking and self._seen == self._kept

    def open(self) -> None:
        """Take what an earlier process saw. Blocking."""
        kept = read_kept(self._path, _Kept)
        if kept is not None and kept.node == self._node:
            self._seen = dict(kept.seen)
        self._kept = dict(self._seen)

    def expect(self) -> None:
        """The broker was away, or the node has other scopes: there may be something, as soon as `settled` is called."""
        self._is_due = True

    def settled(self) -> None:
        """The node's scopes are right as of now."""
        if self._is_due:
            self._wake.set()

    def run_of(self, incoming: Incoming) -> tuple[str, datetime]:
        """
        Run id and due time of a scheduled request.

        Whoever may read due messages can have an old one delivered again, to everybody; by its id a ledger knows it for a day.
        After that only one that this node has missed is taken.

        Raises:
            ProtocolError: The broker's headers are not there, or it is old and was not missed.
        """
        run, due = run_of(incoming)
        age_s = (self._clock.now() - due).total_seconds()
        if age_s > STALE_S and not self._was_missed(incoming):
            raise ProtocolError(
                f"{incoming.subject}: it was due {due:%Y-%m-%d %H:%M} UTC and is not taken any more; is this host's clock right?"
            )
        return run, due

    def _was_missed(self, incoming: Incoming) -> bool:
        was = self._seen.get(incoming.subject)
        return was is not None and _wants(incoming) and _is_newer(_seen_of(incoming), was)

    def heard(self, incoming: Incoming) -> None:
        """A scheduled request was handled, however it had come and whatever became of it."""
        if not incoming.scheduled or not _wants(incoming):
            return
        seen, was = _seen_of(incoming), self._seen.get(incoming.subject)
        if was is None or _is_newer(seen, was):
            self._seen[incoming.subject] = seen
            self._wake.set()

    async def run(self) -> None:
        """Take what was missed, for ever."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._turn()
                await self._keep()
        finally:
            await self._keep()

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
                log.info("what was due cannot be read now", extra={"reason": str(err)})
            self._trouble = str(err)
        else:
            self._trouble = ""
        finally:
            self._is_looking = False

    async def _look(self) -> None:
        subjects = [request_subject(protocol, scope) for scope in self._scopes() for protocol in SCHEDULED]
        for subject in subjects:
            try:
                incoming = await self._requests.last_due(subject)
            except ProtocolError as err:
                log.warning("a due request is passed over", extra={"subject": subject, "reason": str(err)})
                continue
            self._judge(subject, incoming)
        # who loses a scope and gets it again begins anew
        for subject in self._seen.keys() - set(subjects):
            del self._seen[subject]

    def _judge(self, subject: str, incoming: Incoming | None) -> None:
        was = self._seen.get(subject)
        if incoming is None:
            self._seen.setdefault(subject, Seen())
            return
        seen = _seen_of(incoming)
        if was is None or not _wants(incoming):
            self._seen[subject] = seen
        elif _is_newer(seen, was):
            log.info("a due request was missed", extra={"subject": subject, "due": str(seen.time)})
            self._on_request(incoming)

    async def _keep(self) -> None:
        if self._seen == self._kept:
            return
        now = dict(self._seen)
        try:
            await write_kept(self._path, _Kept(node=self._node, seen=now))
            self._kept = now
        except FileError as err:
            log.warning("what was due is not kept on disk", extra={"reason": str(err)})


def _wants(incoming: Incoming) -> bool:
    try:
        return decode_foreign(incoming.body, _Flag).catch_up
    except msgspec.DecodeError:
        return False


def _seen_of(incoming: Incoming) -> Seen:
    from ccm_agent.bus.streams import parse_time

    lowered = {name.lower(): value for name, value in incoming.headers.items()}
    return Seen(time=parse_time(lowered["nats-time-stamp"]), sequence=int(lowered["nats-sequence"]))


def _is_newer(seen: Seen, was: Seen) -> bool:
    return was.time is None or (seen.time is not None and seen.time > was.time)
