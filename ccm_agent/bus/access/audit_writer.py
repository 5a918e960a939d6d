"""
Append entries to an operator's audit trail while a command runs.

Entries are written in the background, one after the other, so that a request is not delayed. Several processes of one operator
share a chain: an entry is stored only if it follows its author's newest entry. Otherwise it is created again.

If an entry cannot be written, the command continues. The holder of the key can omit entries anyway, and an audit stream without
a leader must not prevent operators from repairing a fleet. The error is reported at the end of the command.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.access.audit import AUDIT_STREAM, operator_subject
from ccm_agent.bus.access.audit_entry import AUDIT_ENTRY, AuditEntry, SignedAction, entry_link
from ccm_agent.bus.chain import NONE
from ccm_agent.bus.connection.broker_errors import NoRespondersError
from ccm_agent.bus.events import MESSAGE_ID
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureError, SignatureKind, verify_content
from ccm_agent.bus.streams import EXPECTED_SEQUENCE, read_newest, store
from ccm_agent.model.errors import BusError, BusUnavailableError, RevisionError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ids import new_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.signatures.signing import SigningKey
    from ccm_agent.bus.streams import Stored

CLOSE_S = 5.0
"""How long a command waits at its end for unwritten entries."""

WAITING_LIMIT = 10_000
_TRIES = 20
_REPEATS_LIMIT = 1000


class _Waiting(Struct, frozen=True):
    """A signature that waits for its entry: its description, its time, and the id of its message in each attempt."""

    signed: SignedAction
    time_ms: int
    message_id: str


class AuditWriter:
    """
    The trail of one operator.

    Attributes:
        lost: The number of entries that were not written.
        trouble: The reason why the last of them was not written; "" if all were written.
    """

    def __init__(
        self, author: str, key: SigningKey, now_ms: Callable[[], int], own_keys: frozenset[str] = frozenset()
    ) -> None:
        """
        Args:
            author: The operator's name.
            key: The key that signs entries.
            now_ms: Returns the time in milliseconds since 1970.
            own_keys: Other public keys of this operator, whose entries the chain continues.
        """
        self.lost = 0
        self.trouble = ""
        self._author = author
        self._key = key
        self._now_ms = now_ms
        self._keys = own_keys | {key.public_key}
        self._subject = operator_subject(author)
        self._waiting: deque[_Waiting] = deque()
        self._is_waiting = asyncio.Event()
        self._newest: tuple[int, int, str] | None = None
        self._is_off = False
        self._repeats: dict[tuple[str, str, str], None] = {}

    def take(self, signed: SignedAction) -> None:
        """Queue an entry for a signature. A request that is repeated to nodes without an answer gets only one entry."""
        if signed.run and signed.kind == SignatureKind.REQUEST:
            same = signed.subject, signed.run, signed.kind
            if same in self._repeats:
                return
            self._repeats[same] = None
            if len(self._repeats) > _REPEATS_LIMIT:
                del self._repeats[next(iter(self._repeats))]
        if len(self._waiting) >= WAITING_LIMIT:
            self._lose(1, "too many entries are queued")
            return
        self._waiting.append(_Waiting(signed, self._now_ms(), new_id()))
        self._is_waiting.set()

    @contextlib.asynccontextmanager
    async def writing(self, connection: Connection) -> AsyncIterator[None]:
        """Write entries while the context is open, and write the remaining ones at its end."""
        task = asyncio.create_task(self._run(connection), name="audit")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await self._close(connection)

    async def _run(self, connection: Connection) -> None:
        while True:
            await self._is_waiting.wait()
            await self._write_all(connection)

    async def _close(self, connection: Connection) -> None:
        """Write the remaining entries. After CLOSE_S, discard the rest."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._write_all(connection)
        except TimeoutError:
            self._lose(len(self._waiting), f"the broker did not store them within {CLOSE_S:g} s")
            self._waiting.clear()

    async def _write_all(self, connection: Connection) -> None:
        while self._waiting:
            if not self._is_off:
                await self._try_to_write(connection, self._waiting[0])
            # Remove it only now: if the task was cancelled before, `close` writes it.
            self._waiting.popleft()
        self._is_waiting.clear()

    async def _try_to_write(self, connection: Connection, waiting: _Waiting) -> None:
        try:
            await self._write(connection, waiting)
        except NoRespondersError:
            self._is_off = True  # this fleet has no audit stream, which `ccmctl doctor` reports
        except BusError as err:
            self._newest = None
            self._lose(1, str(err))

    async def _write(self, connection: Connection, waiting: _Waiting) -> None:
        for left in reversed(range(_TRIES)):
            if self._newest is None:
                self._newest = await self._read_newest(connection)
            try:
                await self._append(connection, self._newest, waiting)
            except (RevisionError, BusUnavailableError) as err:
                # Another process stored an entry first, or the acknowledgement was lost.
                self._newest = None
                if not left or isinstance(err, NoRespondersError):
                    raise
            else:
                return

    async def _append(self, connection: Connection, newest: tuple[int, int, str], waiting: _Waiting) -> None:
        sequence, number, link = newest
        signed = waiting.signed
        entry = AuditEntry(
            protocol=AUDIT_ENTRY,
            author=self._author,
            number=number + 1,
            previous=link,
            time=datetime.fromtimestamp(waiting.time_ms / 1000, UTC),
            kind=signed.kind,
            subject=signed.subject,
            digest=signed.digest,
            run=signed.run,
            details=signed.details,
        )
        body = msgspec.json.encode(entry)
        signature = self._key.sign(SignatureKind.AUDIT, self._subject, body, issued_ms=waiting.time_ms)
        headers = {
            SIGNATURE_HEADER: signature,
            EXPECTED_SEQUENCE: str(sequence),
            # An entry is not stored twice if its acknowledgement was lost.
            MESSAGE_ID: waiting.message_id,
        }
        ack = await store(connection, self._subject, body, headers)
        stored = ack.sequence, entry.number, entry_link(self._subject, body)
        self._newest = None if ack.duplicate else stored

    async def _read_newest(self, connection: Connection) -> tuple[int, int, str]:
        """Return sequence, number and link of the newest entry. If it is not ours, a new chain begins after it."""
        found = await read_newest(connection, AUDIT_STREAM, [self._subject])
        if not found:
            return 0, 0, NONE
        entry = self._verified(found[0])
        if entry is None:
            return found[0].sequence, 0, NONE
        return found[0].sequence, entry.number, entry_link(self._subject, found[0].body)

    def _verified(self, stored: Stored) -> AuditEntry | None:
        header = stored.headers.get(SIGNATURE_HEADER, "")
        try:
            claims = verify_content(header, SignatureKind.AUDIT, self._subject, stored.body)
            entry = decode_foreign(stored.body, AuditEntry)
        except (SignatureError, msgspec.MsgspecError):
            return None
        return entry if claims.key in self._keys and entry.author == self._author else None

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        self.trouble = why
