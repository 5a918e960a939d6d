"""
Documents that only one node may read: the documents in CCM_DATA with the key `node/NAME` or a key that begins with `node/NAME/`.

CCM_DATA contains an index entry under the document's key. CCM_NODE_DATA contains the document: the bytes and the signature that
would otherwise be in CCM_DATA. Revisions, pins, notifications, numbers and deletions are still those of CCM_DATA, which every
node reads. In CCM_NODE_DATA, the broker allows a node to read only the keys below its own name (`bus.access.permissions`). Such
a read has the key in its subject and returns only the newest message. Each revision that is still needed therefore has its own
key, called a slot. The index entry contains the slot and its revision. See ADR 83.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from ccm_agent.bus.access.credentials import forbids_publishing
from ccm_agent.bus.forwarding_bucket import ForwardingReader
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.layout import DATA, NODE_DATA
from ccm_agent.bus.subjects import OWNED, encode_token, key_subject, owner_of
from ccm_agent.model.errors import BusDeniedError, BusError, RevisionGoneError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ports import KeyHistory, KeyReader, KeyValue, KeyValueEntry
from ccm_agent.model.records.stamped import Stamped, TextPlace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ccm_agent.bus.connection.connection import Connection

_TOO_OLD = "this agent is too old to read documents that are stored for one node; upgrade it"
TOO_OLD_TEXT = f"{_TOO_OLD}: 1\n{_TOO_OLD}: 2\n"
"""
The body of an index entry.

An older agent must not read an index entry as an empty document. A duplicate key is an error in every version, and the error
names the key.
"""


class Index(KeyValue, KeyHistory, Protocol):
    """CCM_DATA as stored, with index entries among the documents."""


def slots_of(key: str) -> str:
    """Return the key prefix of a document's slots in CCM_NODE_DATA: a token for its node, and one for the document."""
    return f"{encode_token(owner_of(key))}.{encode_token(key)}"


def slot_key(key: str, slot: int) -> str:
    """Return the key of one slot of a document in CCM_NODE_DATA."""
    return f"{slots_of(key)}.{slot}"


def read_index_entry(entry: KeyValueEntry) -> Stamped | None:
    """Decode an index entry; None for an entry that contains the document itself."""
    if not owner_of(entry.key) or not entry.value.lstrip().startswith(b"{"):
        return None
    try:
        stamped = decode_foreign(entry.value, Stamped)
    except msgspec.MsgspecError:
        return None
    return stamped if stamped.text is not None else None


def as_document(entry: KeyValueEntry, text: KeyValueEntry) -> KeyValueEntry:
    """Return the document of an index entry, as it would be in CCM_DATA."""
    return KeyValueEntry(
        key=entry.key,
        value=text.value,
        revision=entry.revision,
        created=entry.created,
        signature=text.signature,
    )


def place_before(history: Sequence[KeyValueEntry], revision: int) -> TextPlace | None:
    """Return the location of a revision's text that was moved out of CCM_DATA; None if it is not recorded."""
    moved = [place for entry in history if (found := read_index_entry(entry)) for place in found.earlier]
    return max((place for place in moved if place.at <= revision), key=lambda place: place.at, default=None)


class NodeData(ForwardingReader):
    """
    CCM_DATA, in which reading the key of an index entry returns its document; see `KeyValue`.

    A notification about another node's document shows only that it has changed, and when.
    """

    def __init__(self, index: Index, texts: KeyValue) -> None:
        """
        Combine the two buckets.

        Args:
            index: CCM_DATA as stored.
            texts: CCM_NODE_DATA.
        """
        super().__init__(index)
        self._index = index
        self._texts = texts

    async def get(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        """See `KeyValue.get`. Raises RevisionGoneError if the text of the newest revision is lost."""
        entry = await self.newest(key, at_least)
        return entry if entry is not None and entry.value else None

    async def newest(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        """See `KeyValue.newest`."""
        entry = await self._index.newest(key, at_least)
        return await self._document(entry) if entry is not None else None

    async def as_of(self, key: str, revision: int) -> KeyValueEntry | None:
        """See `KeyValue.as_of`."""
        try:
            entry = await self._index.as_of(key, revision)
        except RevisionGoneError:
            if not owner_of(key):
                raise
            entry = await self._moved(key, revision)
            if entry is None:
                raise
        else:
            entry = await self._document(entry) if entry is not None else None
        return entry if entry is not None and entry.value else None

    async def _moved(self, key: str, revision: int) -> KeyValueEntry | None:
        history = await self._index.history(key)
        place = place_before(history, revision)
        if place is None:
            return None
        entry = msgspec.structs.replace(history[0], revision=place.at)
        return await self._at(entry, place)

    async def _document(self, entry: KeyValueEntry) -> KeyValueEntry:
        found = read_index_entry(entry)
        return entry if found is None or found.text is None else await self._at(entry, found.text)

    async def _at(self, entry: KeyValueEntry, place: TextPlace) -> KeyValueEntry:
        """
        Return the document of an index entry, from its slot.

        Raises:
            BusDeniedError: The broker does not allow this node to read it.
            RevisionGoneError: The slot has another revision, or is empty.
        """
        if not place.revision:
            return msgspec.structs.replace(entry, value=b"")
        key = entry.key
        try:
            text = await self._texts.newest(slot_key(key, place.slot), place.revision)
        except BusDeniedError as err:
            owner = owner_of(key)
            raise BusDeniedError(
                f"kv://{DATA}/{key}: only the node {owner} may read it; if this is {owner}, create new credentials with "
                f"`ccmctl node add {owner}`"
            ) from err
        if text is None or text.revision != place.revision or not text.value:
            raise RevisionGoneError(
                f"kv://{DATA}/{key}: revision {entry.revision} is not in {NODE_DATA}; store the document again with "
                "`ccmctl data put`"
            )
        return as_document(entry, text)


async def can_read_own(connection: Connection, node: str) -> bool | None:
    """
    Return whether the broker allows a node to read the documents that only it may read; None if that cannot be determined now.

    If the credentials list their permissions, no request is sent, because the broker would log a violation.
    """
    key = slot_key(f"{OWNED}{node}", 0)
    subject = f"$JS.API.DIRECT.GET.KV_{NODE_DATA}.{key_subject(NODE_DATA, key)}"
    path = connection.settings.creds
    if path:
        is_forbidden = await asyncio.to_thread(_is_forbidden, path, subject)
        if is_forbidden:
            return False
    try:
        await NatsKeyValue(connection, NODE_DATA).newest(key)
    except BusDeniedError:
        return False
    except BusError:
        return None
    return True


def _is_forbidden(path: str, subject: str) -> bool:
    try:
        return forbids_publishing(Path(path).read_text(encoding="utf-8"), subject)
    except (OSError, UnicodeDecodeError):
        return False  # the connection reports the problem with the file


def open_bucket(connection: Connection, name: str) -> KeyReader:
    """Return a bucket by name, for reading."""
    index = NatsKeyValue(connection, name)
    return index if name != DATA else NodeData(index, NatsKeyValue(connection, NODE_DATA))
