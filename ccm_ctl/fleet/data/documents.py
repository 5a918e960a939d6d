"""
Documents for agents: assigned facts and Hiera data. Each contains its own key and a number that only increases.

An agent refuses a document with another key or a lower number, so a replayed old revision has no effect. A plain document, which
was stored with the `nats` program, is read without these checks.

The number is at least the time of writing in milliseconds. A new document therefore has a higher number than those that nodes
remember, even if the broker was recreated or restored from a backup. The version that operators see is separate.

The signature of each document is checked when it is read (`verified_reader`). Only the numbers of verified documents are used. A
new document is computed from a verified one, or from the operator's input.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.signatory import NOTE_DETAIL
from ccm_agent.bus.signatures.signing import SignatureError, read_claims
from ccm_agent.bus.signatures.verified import Authored, Unverified, Verified
from ccm_agent.bus.subjects import owner_of
from ccm_agent.model.errors import ProtocolError, RevisionError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.records.stamped import Stamped
from ccm_ctl.fleet.trust.stored_snapshot import StoredSnapshot
from ccm_ctl.fleet.trust.verified_reader import number_of, open_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from ccm_agent.bus.signatures.verified import Base
    from ccm_agent.model.ports import KeyValueEntry
    from ccm_ctl.fleet.ports import DocumentBucket, Fleet
    from ccm_ctl.fleet.trust.verified_reader import Judged, VerifiedReader

_TRIES = 10

NUMBERS_LIMIT = 200
"""The maximum number of document numbers in a node's credentials."""

NUMBER_LIMIT = 1 << 53
"""
The limit for numbers. Not every JSON parser represents higher numbers exactly. The time in the year 9999 is far below this limit.
"""


WAY_OUT = "write it again from your own files or arguments: `data put`, `facts set --replace`, `assign` or `group set`"
"""The advice for a document that is not verified. New content is never computed from such a document."""

LOST_TEXT = "# lost: CCM_NODE_DATA does not contain it; store it again with `ccmctl data put`\n"
"""Shown for a node's own document if its text is missing."""


class StoredDocument(Struct, frozen=True, kw_only=True):
    """
    A document as stored.

    Attributes:
        key: Its key.
        body: Its content. None: there is no document.
        number: Its number. 0: the document is plain or absent.
        count: The version that operators see. 0: the document is plain or absent.
        revision: The bucket's revision. 0: there is no document.
        written_by, time: Author and time in the document. Without an author, the broker's time.
        message: The author's reason, or "".
        is_plain: Whether it has no stamp.
        is_foreign: Whether its stamp contains another key. Agents refuse such a document.
        proof: The result of checking its signature. None: there is no document, or its signature was not checked.
    """

    key: str
    body: Any = None
    number: int = 0
    count: int = 0
    revision: int = 0
    written_by: str = ""
    time: datetime | None = None
    message: str = ""
    is_plain: bool = False
    is_foreign: bool = False
    proof: Verified[None] | Unverified[None] | None = None

    @property
    def unverified(self) -> str:
        """The reason why its signature is not valid. "": it is valid or was not checked."""
        return self.proof.reason if self.proof is not None else ""

    @property
    def is_outdated(self) -> bool:
        """Whether its signature is valid but a newer revision exists that the broker does not show."""
        return isinstance(self.proof, Unverified) and self.proof.is_outdated

    def verified(self, way_out: str) -> Verified[None]:
        """
        Return the proof of its signature, as the base of a new document.

        Args:
            way_out: The advice for the error message.

        Raises:
            SignatureError: The document is not verified.
        """
        if isinstance(self.proof, Verified):
            return self.proof
        raise SignatureError(
            f"{self.key}: revision {self.revision} is not verified: {self.unverified or 'its signature was not checked'}; "
            f"{way_out}"
        )


class _RemovalNote(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The author of a removal and the reason."""

    written_by: str = ""
    message: str = ""


class Documents:
    """The documents of one bucket. Changes are written in the operator's name."""

    def __init__(self, fleet: Fleet, bucket: DocumentBucket, name: str) -> None:
        self._fleet = fleet
        self._bucket = bucket
        self._name = name
        self._now_ms = 0
        self._made: VerifiedReader | None = None
        self._snapshot: StoredSnapshot | None = None

    async def read(self, key: str) -> StoredDocument:
        """Return the document with a key. Without a document, the result has no body."""
        entry = await self._bucket.get(key)
        if entry is None:
            return StoredDocument(key=key)
        return judged_document((await self._reader()).document(self._name, entry))

    async def read_all(self, prefix: str = "") -> list[StoredDocument]:
        """Return all documents whose key starts with a prefix, sorted by key."""
        entries = await self._bucket.entries(prefix)
        reader = await self._reader()
        return [judged_document(reader.document(self._name, entry)) for entry in entries]

    async def read_newest(self, key: str) -> StoredDocument:
        """
        Return the document with a key. See `read`. A document is also unverified if the fleet's snapshot contains a newer number.

        Raises:
            SignatureError: The snapshot contains a number for the document, but the broker has no such document.
        """
        kept, gap = await self._read_kept(key)
        if not kept and gap:
            raise SignatureError(f"{key}: {gap}; {WAY_OUT}")
        return kept[-1] if kept and kept[-1].body is not None else StoredDocument(key=key)

    async def read_matching(self, patterns: Sequence[str]) -> list[StoredDocument]:
        """Return all documents whose key matches a pattern, sorted by key."""
        entries = await self._bucket.matching(patterns)
        reader = await self._reader()
        return [judged_document(reader.document(self._name, entry)) for entry in entries]

    async def change(
        self,
        key: str,
        change: Callable[[Any], Any],
        *,
        base: Sequence[Base] = (),
        revision: int | None = None,
        above: Sequence[StoredDocument] = (),
        message: str = "",
    ) -> tuple[StoredDocument, StoredDocument]:
        """
        Write a document. Does nothing if the content stays the same.

        Args:
            key: The key.
            change: Computes the new body from the old one (None if there is none). It may be called again.
            base: The verified data or operator input from which the new body is made. Empty: it is made from the old body, which
                must be verified.
            revision: Write only if this revision is the newest. None: the newest revision is read and replaced.
            above: The new number and count are also higher than those of these documents.
            message: The reason for the change.

        Returns:
            The old document and the new one. Without a change, both are the same.

        Raises:
            RevisionError: The revision is not the newest, or other operators keep writing the document.
            SignatureError: The new body would be made from a document that is not verified.
        """
        for _ in range(_TRIES):
            kept, gap = await self._read_kept(key)
            old = kept[-1] if kept and kept[-1].body is not None else StoredDocument(key=key)
            if revision is not None and old.revision != revision:
                raise RevisionError(
                    f"{key}: the newest revision is {old.revision}, not {revision}; check it first"
                )
            bases = base or self._base_of(key, kept, gap)
            body = change(old.body)
            if body == old.body and not old.unverified:
                return old, old
            try:
                return old, await self._write(old, body, bases, [*kept, *above], message)
            except RevisionError:
                continue
        raise RevisionError(f"{key}: another operator keeps writing it; try again")

    def _base_of(self, key: str, kept: Sequence[StoredDocument], gap: str) -> Sequence[Base]:
        """Return the newest document as the base of a new one, or the operator's arguments for a purged or new key."""
        if not kept and gap:
            raise SignatureError(f"{key}: {gap}; {WAY_OUT}")
        return [kept[-1].verified(WAY_OUT)] if kept else [Authored.from_arguments()]

    async def _write(
        self,
        old: StoredDocument,
        body: Any,
        base: Sequence[Base],
        before: Sequence[StoredDocument],
        message: str,
    ) -> StoredDocument:
        """Replace an old body. Raises RevisionError if the document is no longer the newest."""
        number, count = await self._next(before)
        stamped = Stamped(
            bucket=self._name,
            key=old.key,
            number=number,
            count=count,
            body=body,
            written_by=self._fleet.operator,
            time=self._fleet.clock.now(),
            message=message,
        )
        revision = await self._bucket.write(old.key, msgspec.json.encode(stamped), old.revision, base)
        return StoredDocument(
            key=old.key,
            body=body,
            number=stamped.number,
            count=stamped.count,
            revision=revision,
            written_by=stamped.written_by,
            time=stamped.time,
            message=message,
        )

    async def remove(self, key: str, message: str = "") -> None:
        """
        Delete a document. The deletion has a number, as a document does. Later documents have higher numbers.

        Args:
            key: The key.
            message: The reason, which the history shows with the operator's name.
        """
        kept, _ = await self._read_kept(key)
        number, _ = await self._next(kept)
        note = _RemovalNote(written_by=self._fleet.operator, message=message)
        await self._bucket.remove(
            key, [Authored.removal()], number=number, note=msgspec.json.encode(note).decode()
        )

    async def _read_kept(self, key: str) -> tuple[list[StoredDocument], str]:
        """Return the stored revisions of a key, oldest first, and the reason if newer ones are missing. A removal has no body."""
        entries = await self._bucket.history(key)
        if self._snapshot is None:
            self._snapshot = StoredSnapshot(self._fleet, await self._reader())
        judged, gap = await self._snapshot.judge_history(self._name, key, entries)
        return [judged_document(one) for one in judged], gap

    async def _next(self, before: Sequence[StoredDocument]) -> tuple[int, int]:
        """
        Return the number and count of the next revision. Agents remember the number, so both are higher than those of all
        verified revisions.

        A purge removes the history and leaves only a marker. In this case the marker's revision is used, because the bucket's
        revision is never lower than a document's count.

        Raises:
            ProtocolError: In unsigned operation, a document has the highest possible number.
        """
        known = [one for one in before if isinstance(one.proof, Verified)]
        marked = max((one.revision for one in known), default=0)
        last = max((one.number for one in known), default=0) or marked
        count = max((one.count for one in known if one.count or one.body is not None), default=marked)
        number = max(last + 1, await self._moment())
        if number >= NUMBER_LIMIT:
            raise ProtocolError(
                f"{before[-1].key}: the stored number cannot be increased, so ccmctl did not write the document; "
                "purge the key with the nats tool, and remove documents.json from the state folder of nodes that then refuse it"
            )
        return number, count + 1

    async def _reader(self) -> VerifiedReader:
        if self._made is None:
            self._made = await open_reader(self._fleet)
        return self._made

    async def _moment(self) -> int:
        """
        Return the time in milliseconds, from this machine or the broker, whichever is earlier.

        With only one clock that is far in the future, agents would get a number that the other clock does not reach for years.
        """
        if not self._now_ms:
            now = min(self._fleet.clock.now(), await self._bucket.now())
            self._now_ms = int(now.timestamp() * 1000)
        return self._now_ms


async def numbers_for(fleet: Fleet, node: str) -> dict[str, int]:
    """
    Return the numbers of documents that a new node will read, by `bucket/key`. With them, the node refuses older documents.

    Only verified documents are included. With a forged number, the node would refuse all documents with that key.
    """
    found: dict[str, int] = {}
    reader = await open_reader(fleet)
    sources = (
        ("CCM_FACTS", fleet.facts, [node]),
        ("CCM_ASSIGNMENTS", fleet.assignments, ["all.*", "fact.>", f"node.{node}.*"]),
        ("CCM_DATA", fleet.data, [">"]),
    )
    for name, bucket, patterns in sources:
        for entry in await bucket.matching(patterns):
            if name == "CCM_DATA" and owner_of(entry.key) not in ("", node):
                continue  # the node cannot read them
            number = number_of(entry)
            is_counted = number and isinstance(reader.document(name, entry), Verified)
            if is_counted and len(found) < NUMBERS_LIMIT:
                found[f"{name}/{entry.key}"] = number
    return found


def judged_document(judged: Judged) -> StoredDocument:
    """Decode a document or a deletion, with the result of checking its signature."""
    entry = judged.value
    document = decode_document(entry) if entry.value else decode_removal(entry)
    return msgspec.structs.replace(document, proof=judged.derive(lambda _: None))


def decode_removal(entry: KeyValueEntry) -> StoredDocument:
    """Decode a deletion. Author and message are missing if it has no note, or if its signature is not for this note."""
    note = _RemovalNote()
    try:
        is_signed = not entry.signature or (
            read_claims(entry.signature).details.get(NOTE_DETAIL)
            == hashlib.sha256(entry.note.encode()).hexdigest()
        )
        if entry.note and is_signed:
            note = decode_foreign(entry.note.encode(), _RemovalNote)
    except (SignatureError, msgspec.MsgspecError):
        pass
    return StoredDocument(
        key=entry.key,
        number=number_of(entry),
        revision=entry.revision,
        time=entry.created,
        written_by=note.written_by,
        message=note.message,
    )


def decode_document(entry: KeyValueEntry) -> StoredDocument:
    """Decode an entry: a stamped or a plain document."""
    try:
        stamped = decode_foreign(entry.value, Stamped)
    except msgspec.MsgspecError:
        return StoredDocument(
            key=entry.key,
            body=entry.value.decode("utf-8", "replace"),
            revision=entry.revision,
            time=entry.created,
            is_plain=True,
        )
    return StoredDocument(
        key=entry.key,
        body=LOST_TEXT if stamped.text else stamped.body,
        number=stamped.number,
        count=stamped.count or stamped.number,
        revision=entry.revision,
        written_by=stamped.written_by,
        time=stamped.time or entry.created,
        message=stamped.message,
        is_foreign=stamped.key != entry.key,
    )
