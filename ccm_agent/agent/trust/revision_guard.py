"""
Decides which documents this node accepts: each must belong to its key, and its number must increase.

A document contains its key and an increasing number. Otherwise, a user who can write one key could copy another node's document
there, or restore an old document. The highest number seen for each key is stored on disk, so an old document is also refused
after a restart. The signer of a document is checked in `authentication`.

For documents that a node has never seen, the snapshot contains the lowest allowed numbers. Without a recent timestamp, the node
accepts no such documents: a broker that was restored from a backup could deliver outdated ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from ccm_agent.agent.trust.authentication import Authenticator
from ccm_agent.bus.signatures.snapshot import piece_key, place_of, read_piece
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ports import KeyReader, KeyValueEntry
from ccm_agent.model.records.policy import Principal
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.storage.state_file import StateFile


class RevisionGuard:
    """
    The numbers seen so far.

    Attributes:
        numbers: The numbers by `bucket/key`; Hiera's sources change the mapping in place.
    """

    def __init__(
        self, path: Path, authenticator: Authenticator, snapshot: SnapshotReader | None = None
    ) -> None:
        """
        Args:
            path: The file of the numbers; the numbers of deletions are stored next to it.
            authenticator: Verifies the authors of documents.
            snapshot: Returns the lowest numbers of documents that were never seen; None: any number is allowed.
        """
        self._snapshot = snapshot
        self._lowest: dict[str, int] = {}
        self.numbers: dict[str, int] = {}
        self._deletions: dict[str, int] = {}
        self._digests: dict[str, str] = {}
        self._numbers_file = StateFile(path, dict[str, int])
        self._deletions_file = StateFile(path.with_name("deletions.json"), dict[str, int])
        self._digests_file = StateFile(path.with_name("digests.json"), dict[str, str])
        self._authenticator = authenticator

    def open(self) -> None:
        """Read the file of an earlier process; a file that cannot be read is logged and treated as empty. Blocking."""
        self.numbers.update(self._numbers_file.load() or {})
        self._deletions.update(self._deletions_file.load() or {})
        self._digests.update(self._digests_file.load() or {})
        self._digests_file.mark_saved(dict(self._digests))
        self._numbers_file.mark_saved(dict(self.numbers))
        self._deletions_file.mark_saved(dict(self._deletions))

    async def prepare(self, bucket: str, keys: Iterable[str]) -> None:
        """
        Read the lowest allowed numbers of documents that were never seen; `check` compares them.

        Raises:
            ProtocolError: The numbers are currently unknown, so the documents must not be accepted.
            BusError: The broker is unavailable.
        """
        if self._snapshot is not None:
            names = [f"{bucket}/{key}" for key in keys]
            self._lowest.update(
                await self._snapshot.lowest([name for name in names if name not in self.numbers])
            )

    def check(self, bucket: str, entry: KeyValueEntry) -> Stamped:
        """
        Return the document in an entry; its number is remembered once `seen` is called.

        Raises:
            ProtocolError: The entry is not a document, belongs under another key, or is older than one that was seen;
                SignatureError if signatures are required and this one is invalid.
        """
        self.author(bucket, entry)
        try:
            document = decode_foreign(entry.value, Stamped)
        except msgspec.DecodeError as err:
            raise ProtocolError(
                f"{bucket}/{entry.key}: not a document that `ccmctl` wrote: {err}; write it with `ccmctl`"
            ) from err
        if (document.bucket, document.key) != (bucket, entry.key):
            raise ProtocolError(
                f"{bucket}/{entry.key}: the document belongs to {document.bucket}/{document.key} and was copied here"
            )
        self._authenticator.check_number(f"{bucket}/{entry.key}", document.number)
        newest = self._newest(f"{bucket}/{entry.key}")
        if document.number < newest:
            name = f"{bucket}/{entry.key}"
            why = (
                "which was seen before"
                if name in self.numbers
                else "which the snapshot of the fleet requires"
            )
            raise ProtocolError(f"{name}: number {document.number} is older than {newest}, {why}")
        self._take(bucket, entry)
        return document

    def _take(self, bucket: str, entry: KeyValueEntry) -> None:
        """Remember the bytes of a document. Raises ProtocolError for different bytes while new documents are refused."""
        name, digest = f"{bucket}/{entry.key}", hashlib.sha256(entry.value).hexdigest()
        if self._digests.get(name) != digest:
            self._authenticator.refuse_new(name)
            self._digests[name] = digest

    def check_pinned(self, bucket: str, entry: KeyValueEntry) -> None:
        """
        Check a document as it was at a revision.

        Raises:
            ProtocolError: Signatures are required and this one is invalid, or new documents are currently refused.
        """
        self.author(bucket, entry)
        self._authenticator.refuse_new(f"{bucket}/{entry.key}")

    def author(self, bucket: str, entry: KeyValueEntry) -> Principal:
        """
        Return the signer of a document; an unverified principal in unsigned operation.

        Raises:
            SignatureError: Signatures are required, and this one is invalid.
        """
        return self._authenticator.document(bucket, entry)

    @property
    def refuses_plain(self) -> bool:
        """Whether unsigned documents, including plain ones, are refused now."""
        return not self._authenticator.takes_unsigned

    def suspects_copy(self, bucket: str, key: str) -> bool:
        """
        Return whether a plain document under a key may be a copy caused by a node, because a stamped one was seen there before.

        If signatures are required, only they decide: while unsigned documents are allowed, plain ones are allowed too.
        """
        return not self._authenticator.is_demanded and bool(self.numbers.get(f"{bucket}/{key}"))

    def check_absence(self, bucket: str, key: str, newest: KeyValueEntry | None) -> None:
        """
        Check that a missing document was deleted.

        Args:
            bucket: The document's bucket.
            key: The document's key.
            newest: The entry stored under the key, with an empty value; None if there is no entry.

        Raises: ProtocolError: A document was accepted before, and there is no proof that an operator deleted it: the bucket may
        have been purged or created again. The last accepted document stays in effect.
        """
        name = f"{bucket}/{key}"
        seen = self.numbers.get(name, 0)
        if not seen or self._deletions.get(name, 0) >= seen:
            return
        if newest is None or newest.value:
            raise ProtocolError(
                f"{name}: it disappeared without being deleted; the last known version stays in effect until `ccmctl` "
                "writes or deletes it"
            )
        self._authenticator.refuse_new(name)
        number = self._authenticator.deletion(bucket, newest)
        self._authenticator.check_number(name, number)
        if number and number < seen:
            raise ProtocolError(
                f"{name}: the deletion {number} is older than the document {seen}, which was seen before"
            )
        self._deletions[name] = max(number, seen)

    def _newest(self, name: str) -> int:
        """Return the lowest number that a document may have now."""
        return max(
            self.numbers.get(name, 0),
            self._deletions.get(name, 0),
            self._authenticator.floors.get(name, 0),
            self._lowest.get(name, 0),
        )

    async def seen(self, document: Stamped) -> None:
        """Remember a document's number; older documents are refused from now on."""
        self.numbers[f"{document.bucket}/{document.key}"] = document.number
        await self.save()

    async def save(self) -> None:
        """Write the numbers to disk, if any has changed."""
        # Save the deletions first: a number without its deletion would restore a deleted document.
        if not self._deletions_file.is_saved(self._deletions):
            is_saved = await self._deletions_file.save(dict(self._deletions))
            if not is_saved:
                return
        if not self._numbers_file.is_saved(self.numbers):
            await self._numbers_file.save(dict(self.numbers))
        if not self._digests_file.is_saved(self._digests):
            await self._digests_file.save(dict(self._digests))


class SnapshotReader:
    """Reads the pieces of the snapshot for the keys of one node."""

    def __init__(self, bucket: KeyReader, authenticator: Authenticator) -> None:
        """
        Args:
            bucket: `CCM_TRUST`.
            authenticator: Contains the newest timestamp.
        """
        self._bucket = bucket
        self._authenticator = authenticator
        self._pieces: dict[str, dict[str, int]] = {}

    async def lowest(self, names: Collection[str]) -> dict[str, int]:
        """
        Return the lowest allowed numbers of some documents; 0 for a document that is not in the snapshot. The result is empty if
        the fleet's signers list has no maximum age, because there are no timestamps then.

        Args:
            names: `bucket/key` of documents that were never seen.

        Raises:
            ProtocolError: There is no recent timestamp, or a piece does not match it.
            BusError: The broker is unavailable.
        """
        if not names or not self._authenticator.has_timestamps:
            return {}
        try:
            return await self._read(names)
        except ProtocolError:
            # The timestamp may have just been renewed.
            self._authenticator.freshness.notified()
            await self._authenticator.read_timestamp(self._bucket)
            return await self._read(names)

    async def _read(self, names: Collection[str]) -> dict[str, int]:
        if why := self._authenticator.lacks_timestamp:
            raise ProtocolError(why)
        digests = self._authenticator.freshness.newest.pieces
        if not digests:
            return {}
        found: dict[str, int] = {}
        for name in names:
            place = place_of(name, len(digests))
            found[name] = (await self._piece(digests, place)).get(name, 0)
        return found

    async def _piece(self, digests: tuple[str, ...], place: int) -> dict[str, int]:
        digest = digests[place]
        if digest not in self._pieces:
            entry = await self._bucket.get(piece_key(place))
            piece = read_piece(entry.value if entry is not None else b"", digests, place)
            # Drop the pieces of earlier timestamps.
            self._pieces = {one: self._pieces[one] for one in digests if one in self._pieces}
            self._pieces[digest] = piece
        return self._pieces[digest]
