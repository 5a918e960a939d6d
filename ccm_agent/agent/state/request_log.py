"""
The log of requests that this node has accepted. It ensures that each request is executed once, even if it is delivered several
times.

A request is written before it is answered, and its end state is added later. Run ids are kept for a day, and the requests until
they have ended. If a run has no end when the agent starts, it was waiting or was interrupted.

A refusal is also recorded, including one for a full queue: the controller has counted the node as refused, and would not watch a
run that began later. A stop of an unknown run is recorded as that run's end, because it may arrive before its run.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec import Struct

from ccm_agent.agent.events.publisher import AgentEventPublisher
from ccm_agent.bus.chain import NONE
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureError, read_claims
from ccm_agent.model.errors import FileError, Refusal
from ccm_agent.model.formats.json_text import json_safe
from ccm_agent.model.ports import Clock, IncomingRequest
from ccm_agent.model.records.policy import Principal
from ccm_agent.model.wire import NODE_FACTS, NODE_PING, NODE_STATUS, PROTOCOL, AnswerState
from ccm_agent.storage.journal import Journal, encode_record, replace_file
from ccm_agent.storage.state_file import StateFile

log = logging.getLogger(__name__)

COMPACT_BYTES = 1 << 20
"""The minimum size of a file for rewriting it."""


OFF_S = 3600.0
"""
A run that ended before the process started is remembered for at least this long.

A scheduled run that was recorded just before a kill may not be in `due.json` yet. The node looks for missed runs when it is
back online, and must recognize this one even after a long time.
"""


class _Taken(Struct, tag="t", array_like=True):
    run: str
    at: float
    protocol: str
    subject: str
    body: bytes
    principal: Principal | None = None
    scheduled: bool = False


class _Begun(Struct, tag="b", array_like=True):
    run: str


class _Ended(Struct, tag="e", array_like=True):
    run: str
    at: float
    outcome: str
    reason: str
    code: str


class _Last(Struct, tag="l", array_like=True, frozen=True):
    """
    The newest run of the node that has ended, including runs that the node started itself.

    Attributes:
        run: The run's id.
        state: The run's end state.
        at: When it ended, in seconds since 1970.
    """

    run: str
    state: str
    at: float


class _Decided(Struct, tag="d", array_like=True, frozen=True):
    number: int
    link: str


_Record: TypeAlias = _Taken | _Begun | _Ended | _Last | _Decided
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Record)


class DecisionPlace(Struct, frozen=True):
    """The last decision: its number and its link."""

    number: int = 0
    link: str = NONE


class RequestLogEntry(Struct, kw_only=True):
    """
    The entry of one run.

    Attributes:
        run: The run's id.
        at: When it was accepted or, after its end, when it ended, in seconds since 1970.
        protocol, subject, body: The request as received; empty after the run has ended.
        principal: The sender.
        scheduled: Whether a schedule triggered it.
        has_begun: Whether its execution had started.
        outcome: The end state, a word of `NodeState`; "" while the run waits or is in progress.
        reason, code: The reason of the end state.
    """

    run: str
    at: float
    protocol: str = ""
    subject: str = ""
    body: bytes = b""
    principal: Principal = Principal()
    scheduled: bool = False
    has_begun: bool = False
    outcome: str = ""
    reason: str = ""
    code: str = ""


class RequestLog:
    """
    The runs of one agent. All methods except `open` and `compact` are called on the event loop and do not block for long.

    Attributes:
        last_run: The newest run that has ended; None if unknown.
        last_decision: The last decision about a request; number 0 if unknown.
    """

    def __init__(self, path: Path, *, keep_s: float, clock: Clock) -> None:
        """
        Args:
            path: The file of the log.
            keep_s: How long an ended run is remembered.
            clock: Returns the current time.
        """
        self.last_run: _Last | None = None
        self.last_decision = DecisionPlace()
        self._journal = Journal(path)
        self._keep_s = keep_s
        self._clock = clock
        self._entries: dict[str, RequestLogEntry] = {}
        self._forgotten_at: dict[str, float] = {}
        self._since_compaction: list[bytes] | None = None

    def open(self) -> list[RequestLogEntry]:
        """
        Read the file, and return the runs that have not ended, in the order in which they were accepted. Blocking.

        Raises:
            FileError: The file cannot be used.
        """
        read = self._journal.open()
        if read.damaged_bytes:
            log.error(
                "the ledger was damaged", extra={"path": str(self._journal.path), "bytes": read.damaged_bytes}
            )
        for _, payload in read.records:
            try:
                self._take_in(_decoder.decode(payload))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                log.error("a record of the ledger cannot be read", extra={"path": str(self._journal.path)})
        self._forget()
        return [entry for entry in self._entries.values() if not entry.outcome]

    def find(self, run: str) -> RequestLogEntry | None:
        """Return the entry of a run; None if this node has not received the run in the last day."""
        return self._entries.get(run)

    def knows(self, run: str) -> bool:
        """Whether this node has received the run in the last day."""
        return run in self._entries

    def take(
        self,
        run: str,
        *,
        protocol: str,
        subject: str,
        body: bytes,
        principal: Principal | None = None,
        scheduled: bool = False,
    ) -> None:
        """Record an accepted request. It survives a kill after this returns."""
        self._write(_Taken(run, self._now(), protocol, subject, body, principal, scheduled))

    def begin(self, run: str) -> None:
        """Record that a run has started."""
        self._write(_Begun(run))

    def end(self, run: str, outcome: str, reason: str = "", code: str = "") -> None:
        """Record that a run has ended."""
        self._write(_Ended(run, self._now(), outcome, json_safe(reason), code))
        self._forget()

    def note_last(self, run: str, state: str) -> None:
        """Record that a run ends now, so that a kill does not hide it."""
        self._write(_Last(run, state, self._now()))

    def note_decision(self, place: DecisionPlace) -> None:
        """Record the last decision. It survives a kill after this returns."""
        self._write(_Decided(place.number, place.link))

    @property
    def wants_compaction(self) -> bool:
        """Whether most of the file is about forgotten or ended runs."""
        return self._journal.size > COMPACT_BYTES and self._journal.size > 4 * self._live_bytes()

    async def compact(self) -> None:
        """Rewrite the file with the entries that are still needed."""
        if self._since_compaction is not None:
            return
        self._since_compaction = []
        records = b"".join(encode_record(payload) for payload in self._live_payloads())
        try:
            journal = await asyncio.to_thread(_written, self._journal.path, records)
            for payload in self._since_compaction:
                journal.append(payload)
            self._journal.close()
            self._journal = journal
        except (OSError, FileError) as err:
            log.warning("the ledger cannot be compacted", extra={"reason": str(err)})
        finally:
            self._since_compaction = None

    def close(self) -> None:
        """Close the file. No data is lost."""
        self._journal.close()

    def _write(self, record: _Record) -> None:
        payload = _encoder.encode(record)
        try:
            self._journal.append(payload)
        except FileError as err:
            # A request to a node with a full disk may be the one that frees space, so it is executed nevertheless.
            log.error("the ledger is only in memory", extra={"reason": str(err)})
        if self._since_compaction is not None:
            self._since_compaction.append(payload)
        self._take_in(record)

    def _take_in(self, record: _Record) -> None:
        if isinstance(record, _Last):
            self.last_run = record
            return
        if isinstance(record, _Decided):
            self.last_decision = DecisionPlace(record.number, record.link)
            return
        if isinstance(record, _Taken):
            self._entries.setdefault(
                record.run,
                RequestLogEntry(
                    run=record.run,
                    at=record.at,
                    protocol=record.protocol,
                    subject=record.subject,
                    body=record.body,
                    principal=record.principal or Principal(),
                    scheduled=record.scheduled,
                ),
            )
            return
        entry = self._entries.get(record.run)
        if isinstance(record, _Begun):
            if entry is not None:
                entry.has_begun = True
            return
        if entry is None:
            entry = self._entries[record.run] = RequestLogEntry(run=record.run, at=record.at)
        entry.at, entry.outcome = record.at, record.outcome
        entry.reason, entry.code = record.reason, record.code
        entry.protocol, entry.subject, entry.body = "", "", b""
        # Uses the monotonic clock: with the wall clock, a change of the time could drop all entries or keep them too long.
        age_s = max(self._now() - record.at, 0)
        rest_s = max(self._keep_s - age_s, min(OFF_S, self._keep_s))
        self._forgotten_at[record.run] = self._clock.monotonic() + rest_s

    def _forget(self) -> None:
        """
        Drop runs that ended more than a day ago. Entries are roughly ordered by age, so the first young one ends the search.
        """
        now = self._clock.monotonic()
        while self._entries:
            run, entry = next(iter(self._entries.items()))
            if not entry.outcome or self._forgotten_at[run] > now:
                return
            del self._entries[run], self._forgotten_at[run]

    def _live_payloads(self) -> Iterator[bytes]:
        if self.last_run is not None:
            yield _encoder.encode(self.last_run)
        if (last := self.last_decision).number:
            yield _encoder.encode(_Decided(last.number, last.link))
        for entry in self._entries.values():
            if entry.outcome:
                yield _encoder.encode(_Ended(entry.run, entry.at, entry.outcome, entry.reason, entry.code))
                continue
            taken = _Taken(
                entry.run,
                entry.at,
                entry.protocol,
                entry.subject,
                entry.body,
                entry.principal,
                entry.scheduled,
            )
            yield _encoder.encode(taken)
            if entry.has_begun:
                yield _encoder.encode(_Begun(entry.run))

    def _live_bytes(self) -> int:
        return sum(len(entry.body) + len(entry.reason) + 100 for entry in self._entries.values())

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _written(path: Path, records: bytes) -> Journal:
    """Replace a file with these records and return it open. Blocking."""
    replace_file(path, [records])
    journal = Journal(path)
    journal.open()
    return journal


_QUESTIONS = (NODE_PING, NODE_FACTS, NODE_STATUS)

REFUSALS_A_MINUTE = 30
"""The maximum number of refusals per minute that a node stores, even if it receives a thousand requests."""

SAVE_AFTER_S = 1.0
"""How long the position of a decision waits before it is flushed to disk."""

_REMEMBERED = 1000
_REASON_LIMIT = 500
_NAME_LIMIT = 200


class _Asked(Struct):
    action: str
    principal: Principal
    scope: str = ""
    is_scheduled: bool = False
    decided: str = ""


class DecisionLog:
    """
    The decisions of one agent about requests, for the audit trail.

    A decision is an event about the agent, sent through the spool like all events. The broker also stores it in the audit
    stream, where no operator can remove it. Decisions have their own numbers, and each contains the link of the previous
    decision. The audit stream has only some of the node's events, so the chain of all events (`bus.chain`) would show gaps
    there.

    Questions (ping, facts, status) and repeated answers are not decisions. Above a limit, refusals are only counted, and the
    next decision contains their number. So a client with many refused requests cannot fill the spool.
    """

    def __init__(
        self, path: Path, request_log: RequestLog, events: AgentEventPublisher, clock: Clock
    ) -> None:
        """
        Args:
            path: The file with the position of the last decision.
            request_log: Contains the same position, which survives a kill there, but may not survive a power loss.
            events: Publishes the decisions.
            clock: Returns the current time.
        """
        self._file = StateFile(path, DecisionPlace)
        self._request_log = request_log
        self._events = events
        self._clock = clock
        self._last = DecisionPlace()
        self._asked: dict[str, _Asked] = {}
        self._refusals: deque[float] = deque(maxlen=REFUSALS_A_MINUTE)
        self._left_out = 0
        self._is_new = asyncio.Event()

    def open(self) -> None:
        """Read the last position of an earlier process. Blocking."""
        self._last = self._file.load() or DecisionPlace()
        self._file.mark_saved(self._last)

    async def run(self) -> None:
        """
        Save the position of the last decision a second after each change, until cancelled.

        This flushes the disk, so several decisions share it. If the host loses power before that, a number is used twice.
        """
        while True:
            await self._is_new.wait()
            await asyncio.sleep(SAVE_AFTER_S)
            self._is_new.clear()
            await self.save()

    async def save(self) -> None:
        """Save the position of the last decision."""
        await self._file.save(self._last)

    def asked(self, run: str, incoming: IncomingRequest, principal: Principal) -> None:
        """Remember a new request. If its author is not verified, the name in the request is used."""
        if incoming.protocol in _QUESTIONS:
            return
        self._remember(run, _describe(incoming, principal))

    def unauthorized(self, run: str, incoming: IncomingRequest, refusal: Refusal) -> None:
        """
        Record that a request was refused because of its signer's role. Its run id may be that of another request, which
        continues.
        """
        author = Principal(key=_signer(incoming))
        self._decide(run, _describe(incoming, author), AnswerState.REFUSED, str(refusal), refusal.code)

    def recalled(self, entry: RequestLogEntry) -> None:
        """Remember a request that an earlier process accepted and recorded."""
        principal = entry.principal
        asked = _Asked(action=_action(entry.protocol), principal=principal, is_scheduled=entry.scheduled)
        self._remember(entry.run, asked)

    def _remember(self, run: str, asked: _Asked) -> None:
        self._asked[run] = asked
        if len(self._asked) > _REMEMBERED:
            del self._asked[next(iter(self._asked))]

    def decided(self, run: str, state: str, *, reason: str = "", code: str = "") -> None:
        """Record that the node answers a request, or changes its answer."""
        asked = self._asked.get(run)
        if asked is None or asked.decided == state:
            return
        asked.decided = state
        self._decide(run, asked, state, reason, code)

    def _decide(self, run: str, asked: _Asked, state: str, reason: str, code: str) -> None:
        if state == AnswerState.REFUSED and self._is_flood():
            self._left_out += 1
            return
        last = max(self._last, self._request_log.last_decision, key=lambda one: one.number)
        author = asked.principal
        flags = {
            "verified": author.is_verified,
            "plan_only": author.is_plan_only,
            "scheduled": asked.is_scheduled,
        }
        texts = {
            "action": asked.action,
            "scope": asked.scope,
            "state": str(state),
            "code": code,
            "requester": author.name[:_NAME_LIMIT],
            "key": author.key,
            "left_out": str(self._left_out or ""),
        }
        details = {"number": last.number + 1, "previous": last.link, "run": run}
        details |= {name: "yes" for name, is_so in flags.items() if is_so}
        details |= {name: value for name, value in texts.items() if value}
        words = f"{asked.action} {state}"
        message = f"{words}: {reason[:_REASON_LIMIT]}" if reason else words
        self._left_out = 0
        self._last = DecisionPlace(last.number + 1, self._events.decided(message, details))
        self._request_log.note_decision(self._last)
        self._is_new.set()

    def _is_flood(self) -> bool:
        now = self._clock.monotonic()
        if len(self._refusals) == REFUSALS_A_MINUTE and now - self._refusals[0] < 60:
            return True
        self._refusals.append(now)
        return False


def _action(protocol: str) -> str:
    return protocol.removeprefix(f"{PROTOCOL}.").removesuffix(".request")


def _describe(incoming: IncomingRequest, principal: Principal) -> _Asked:
    return _Asked(
        action=_action(incoming.protocol),
        principal=principal,
        scope=incoming.scope,
        is_scheduled=incoming.scheduled,
    )


def _signer(incoming: IncomingRequest) -> str:
    """Return the key that signed a request; "" if none is proven."""
    try:
        return read_claims(incoming.headers.get(SIGNATURE_HEADER, "")).key
    except SignatureError:
        return ""
