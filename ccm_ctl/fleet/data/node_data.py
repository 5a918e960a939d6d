"""
CCM_DATA as operators use it. Documents that only one node may read are stored separately, but appear like all others.

See `ccm_agent.bus.node_data` for the storage locations.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from ccm_agent.bus.node_data import (
    TOO_OLD_TEXT,
    NodeData,
    as_document,
    read_index_entry,
    slot_key,
    slots_of,
)
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.signatures.signed_bucket import SignableBucket, SignedBucket
from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.bus.signatures.verified import Authored, Base, Unverified, Verified
from ccm_agent.bus.subjects import owner_of
from ccm_agent.hiera.sources import read_stamp
from ccm_agent.model.errors import (
    BusError,
    BusSetupError,
    BusUnavailableError,
    RevisionError,
    RevisionGoneError,
)
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ports import KeyValue, KeyValueEntry
from ccm_agent.model.records.stamped import Stamped, TextPlace
from ccm_agent.model.wire import NodeRecord

DATA = "CCM_DATA"

Judge = Callable[
    [Sequence[KeyValueEntry]], Awaitable[list[Verified[KeyValueEntry] | Unverified[KeyValueEntry]]]
]

REUSE_AFTER = timedelta(minutes=10)
"""
A slot without an index entry is reused only after this time.

Another operator may have stored a text there without having written the index entry, or a lagging replica may not show it yet.
"""

SLOTS_LIMIT = 1000
"""
The maximum number of slots per document: one for each stored revision (at most 64), and more for a busy period of ten minutes.
"""

HISTORIES_AT_ONCE = 32
"""
The maximum number of histories read at the same time. Each node may have its own document, and each history takes a round trip.
"""

_TEXTS_AT_ONCE = 500
"""The maximum number of texts read with one request. The broker rejects requests about more than roughly a thousand subjects."""


class IndexBucket(SignableBucket, Protocol):
    """A bucket whose older revisions can be removed."""

    async def purge_before(self, key: str, revision: int) -> None:
        """
        Remove the stored revisions of a key before a given revision.

        Raises:
            BusDeniedError: The operator lacks `--admin`.
        """
        ...


class OperatorData(NodeData):
    """Hiera data. Documents that only one node may read appear like all others."""

    def __init__(
        self, index: IndexBucket, texts: SignableBucket, nodes: KeyValue, signatory: Signatory | None
    ) -> None:
        """
        Store the buckets.

        Args:
            index: CCM_DATA as stored.
            texts: CCM_NODE_DATA.
            nodes: CCM_NODES. The records in it show whether a node can read such documents.
            signatory: Signs documents. None: the credentials contain no key.
        """
        super().__init__(index, texts)
        self._entries = index
        self._signed = SignedBucket(index, DATA, signatory)
        self._slots = texts
        self._nodes = nodes

    async def write(self, key: str, value: bytes, revision: int, base: Sequence[Base]) -> int:
        """See `DocumentBucket.write`. A document is stored separately if its node can read it there."""
        if not await self.is_kept_apart(key):
            return await self._signed.write(key, value, revision, base)
        used = _used_slots(await self._entries.history(key))
        place = await self._store_text(key, value, self._signed.signature(key, value, base), used)
        return await self._signed.write(key, _index_entry(key, value, place), revision, base)

    async def remove(self, key: str, base: Sequence[Base], *, number: int = 0, note: str = "") -> None:
        """See `DocumentBucket.remove`."""
        await self._signed.remove(key, base, number=number, note=note)

    async def is_kept_apart(self, key: str) -> bool:
        """
        Whether a new document is stored where only its node can read it.

        False if its key does not contain a node name, or if the node reports that its version or credentials do not allow it.
        """
        owner = owner_of(key)
        if not owner:
            return False
        entry = await self._nodes.get(f"node.{owner}")
        if entry is None:
            return True
        try:
            return decode_foreign(entry.value, NodeRecord).own_data
        except msgspec.MsgspecError:
            return True

    async def keys(self, prefix: str = "") -> list[str]:
        """See `KeyHistory.keys`."""
        return await self._entries.keys(prefix)

    async def entries(self, prefix: str = "") -> list[KeyValueEntry]:
        """See `KeyHistory.entries`."""
        entries = await self._entries.entries(prefix)
        places = {
            entry.key: found.text for entry in entries if (found := read_index_entry(entry)) and found.text
        }
        wanted = [slot_key(key, place.slot) for key, place in places.items()]
        texts = await self._read_texts(wanted)
        return [
            _shown(entry, places[entry.key], texts) if entry.key in places else entry for entry in entries
        ]

    async def history(self, key: str) -> list[KeyValueEntry]:
        """See `KeyHistory.history`. Includes the revisions that were moved out of CCM_DATA."""
        history = await self._entries.history(key)
        if not any(read_index_entry(entry) for entry in history):
            return history
        texts = {each.key: each for each in await self._slots.matching([f"{slots_of(key)}.*"])}
        by_revision = {entry.revision: entry for entry in history}
        shown = {}
        for place in _places(history):
            entry = by_revision.get(place.at) or msgspec.structs.replace(history[0], revision=place.at)
            shown[place.at] = _shown(entry, place, texts)
        shown |= {entry.revision: entry for entry in history if read_index_entry(entry) is None}
        return [shown[revision] for revision in sorted(shown)]

    async def revision(self) -> int:
        """See `KeyHistory.revision`."""
        return await self._entries.revision()

    async def now(self) -> datetime:
        """See `KeyHistory.now`."""
        return await self._entries.now()

    async def exposed(self, prefix: str = "") -> dict[str, int]:
        """
        Count the revisions under `node/NAME` that every node can read, by document.

        Args:
            prefix: Only keys with this prefix are counted.
        """
        found = await self._entries.matching([">"], deletions=True)
        keys = [entry.key for entry in found if owner_of(entry.key) and entry.key.startswith(prefix)]
        slots = asyncio.Semaphore(HISTORIES_AT_ONCE)

        async def count_exposed(key: str) -> int:
            async with slots:
                return len(_exposed(await self._entries.history(key)))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = {key: group.create_task(count_exposed(key), name=f"exposed:{key}") for key in keys}
        except ExceptionGroup as failed:  # all are alike, so the first one is reported
            raise failed.exceptions[0] from None
        return {key: task.result() for key, task in tasks.items() if task.result()}

    async def protect(self, key: str, judge: Judge) -> None:
        """
        Move all revisions of a document to CCM_NODE_DATA, where only its node can read them.

        The document keeps its text, author and number, and pinned revisions stay readable. Revisions that are not verified are
        removed, because no node accepts them.

        Args:
            key: The key.
            judge: Verifies the revisions of the document, oldest first.

        Raises:
            SignatureError: The newest revision is not verified.
            BusDeniedError: The operator lacks `--admin`.
            RevisionError: The document was changed in the meantime.
        """
        # removes nothing, but fails early if this operator lacks the right
        await self._entries.purge_before(key, 1)
        history = await self._entries.history(key)
        exposed = _exposed(history)
        if not exposed:
            return
        judged = await judge(history)
        newest = judged[-1]
        if isinstance(newest, Unverified):
            raise SignatureError(
                f"{key}: revision {newest.value.revision} is not verified: {newest.reason}; "
                f"write the document again with `ccmctl data put {key} FILE`"
            )
        verified = [one for one in judged if isinstance(one, Verified)]
        moved = {place.at for place in _places([one.value for one in verified])}
        genuine = [one.value for one in verified if one.value in exposed]
        if genuine and all(entry.revision in moved for entry in genuine):
            # an earlier call was interrupted before its purge
            last = max(one.value.revision for one in verified if _moves(one.value))
        else:
            last = await self._move(key, newest, verified)
        await self._entries.purge_before(key, last)

    async def _move(
        self, key: str, newest: Verified[KeyValueEntry], verified: Sequence[Verified[KeyValueEntry]]
    ) -> int:
        """Write an index entry with the places of all verified revisions, and return its revision."""
        places = {place.at: place for place in _places([one.value for one in verified])}
        for one in verified:
            entry = one.value
            if entry.revision in places:
                continue
            place = TextPlace()
            if entry.value:
                used = {each.slot for each in places.values() if each.revision}
                place = await self._store_text(key, entry.value, entry.signature, used)
            places[entry.revision] = msgspec.structs.replace(place, at=entry.revision)
        last = newest.value
        earlier = [places[revision] for revision in sorted(places)]
        now = msgspec.structs.replace(places[last.revision], at=0)
        body = _index_entry(key, last.value, now, earlier)
        revision = await self._signed.write(key, body, last.revision if last.value else 0, verified)
        # the document was deleted and remains deleted; its earlier text stays readable for pinned assignments
        if not last.value:
            await self._signed.remove(key, [Authored.removal()])
        return revision

    async def _store_text(self, key: str, value: bytes, signature: str, used: Iterable[int]) -> TextPlace:
        """Store a document in a slot that no other revision needs."""
        taken = set(used)
        try:
            oldest = await self._slots.now() - REUSE_AFTER
        except (BusSetupError, BusUnavailableError) as err:
            raise type(err)(
                f"{err}; after an upgrade, run `ccmctl init`, or with accounts `ccmctl init --security`, and copy "
                "nats-security.conf to the servers"
            ) from err
        for slot in itertools.islice((each for each in itertools.count() if each not in taken), SLOTS_LIMIT):
            there = await self._slots.newest(slot_key(key, slot))
            if there is not None and there.created > oldest:
                continue
            try:
                revision = await self._slots.store_signed(
                    slot_key(key, slot), value, there.revision if there else 0, signature
                )
            except RevisionError:
                continue
            return TextPlace(slot=slot, revision=revision)
        raise BusError(
            f"{key}: more than {SLOTS_LIMIT} revisions were written within minutes; try again in {REUSE_AFTER}"
        )

    async def _read_texts(self, keys: Sequence[str]) -> dict[str, KeyValueEntry]:
        found: list[KeyValueEntry] = []
        for begin in range(0, len(keys), _TEXTS_AT_ONCE):
            found += await self._slots.matching(keys[begin : begin + _TEXTS_AT_ONCE])
        return {entry.key: entry for entry in found}

    async def _at(self, entry: KeyValueEntry, place: TextPlace) -> KeyValueEntry:
        """See `NodeData._at`. If the text is lost, returns the index entry, so that the document can be stored again."""
        try:
            return await super()._at(entry, place)
        except RevisionGoneError:
            return entry


def _places(history: Sequence[KeyValueEntry]) -> list[TextPlace]:
    """Return the places of the texts of a document's revisions, each with its revision."""
    found: list[TextPlace] = []
    for entry in history:
        index = read_index_entry(entry)
        if index is not None and index.text is not None:
            found += [*index.earlier, msgspec.structs.replace(index.text, at=entry.revision)]
    return found


def _moves(entry: KeyValueEntry) -> bool:
    """Whether the entry contains the places of all earlier revisions that were stored when it was written."""
    found = read_index_entry(entry)
    return found is not None and bool(found.earlier)


def _used_slots(history: Sequence[KeyValueEntry]) -> set[int]:
    return {place.slot for place in _places(history) if place.revision}


def _exposed(history: Sequence[KeyValueEntry]) -> list[KeyValueEntry]:
    """Return the revisions that are in CCM_DATA itself, where every node can read them."""
    return [entry for entry in history if entry.value and read_index_entry(entry) is None]


def _shown(entry: KeyValueEntry, place: TextPlace, texts: dict[str, KeyValueEntry]) -> KeyValueEntry:
    """Return the document of an index entry, or the entry itself if the text is lost."""
    if not place.revision:
        return msgspec.structs.replace(entry, value=b"")
    text = texts.get(slot_key(entry.key, place.slot))
    return entry if text is None or text.revision != place.revision else as_document(entry, text)


def _index_entry(key: str, value: bytes, place: TextPlace, earlier: Sequence[TextPlace] = ()) -> bytes:
    """Return the index entry of a document: its stamp without its text."""
    stamped = read_stamp(value)
    return msgspec.json.encode(
        Stamped(
            bucket=DATA,
            key=key,
            number=stamped.number if stamped else 0,
            count=stamped.count if stamped else 0,
            written_by=stamped.written_by if stamped else "",
            time=stamped.time if stamped else None,
            body=TOO_OLD_TEXT,
            text=place,
            earlier=list(earlier),
        )
    )
