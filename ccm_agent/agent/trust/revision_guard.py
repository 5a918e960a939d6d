"""
Documents that this node takes: each belongs to its key, and its number grows.

A document names the key that it belongs to, and a number that grows. Otherwise, a user who can write one key could copy another
node's document there, or bring an old one back. The highest number seen of each key is kept on disk, so that a restart does not
make an old document new again. Who signed a document is checked in `authentication`.

A node that was never given a document takes none with a lower number than the snapshot says. Without a recent timestamp it takes
none at all: a broker that was put back to a backup could give it documents of that time.
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
        numbers: By `bucket/key`; hiera's sources change it in place.
    """

    def __init__(
        self, path: Path, authenticator: Authenticator, snapshot: SnapshotReader | None = None
    ) -> None:
        """
        Args:
            path: Where the numbers are kept; the numbers of deletions are kept beside it.
            authenticator: Whose documents count.
            snapshot: The lowest numbers of documents that were never seen; None: they may have any.
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
        """Read what an earlier process knew; a file that cannot be read counts as empty, and is logged. Blocking."""
        self.numbers.update(self._numbers_file.load() or {})
        self._deletions.update(self._deletions_file.load() or {})
        self._digests.update(self._digests_file.load() or {})
        self._digests_file.mark_saved(dict(self._digests))
        self._numbers_file.mark_saved(dict(self.numbers))
        self._deletions_file.mark_saved(dict(self._deletions))

    async def prepare(self, bucket: str, keys: Iterable[str]) -> None:
        """
        Learn which numbers documents may have that were never seen; `check` compares them.

        Raises:
            ProtocolError: It cannot be known now, so they must not be taken.
            BusError: The broker is away.
        """
        if self._snapshot is not None:
            names = [f"{bucket}/{key}" for key in keys]
            self._lowest.update(
                await self._snapshot.lowest([name for name in names if name not in self.numbers])
            )

    def check(self, bucket: str, entry: KeyValueEntry) -> Stamped:
        """
        The document of an entry; its number is remembered once `seen` is called.

        Raises:
            ProtocolError: It is none, belongs elsewhere, or is older than one that was seen. A SignatureError where
                signatures are demanded and this one does not count.
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
        """Remember the bytes of a document; ProtocolError for others than before while nothing new is taken."""
        name, digest = f"{bucket}/{entry.key}", hashlib.sha256(entry.value).hexdigest()
        if self._digests.get(name) != digest:
            self._authenticator.refuse_new(name)
            self._digests[name] = digest

    def check_pinned(self, bucket: str, entry: KeyValueEntry) -> None:
        """
        Check a document as it was at a revision.

        Raises:
            ProtocolError: Signatures are demanded, and this one does not count, or nothing new is taken now.
        """
        self.author(bucket, entry)
        self._authenticator.refuse_new(f"{bucket}/{entry.key}")

    def author(self, bucket: str, entry: KeyValueEntry) -> Principal:
        """
        Who signed a document; an unverified principal in unsigned operation.

        Raises:
            SignatureError: Signatures are demanded, and this one does not count.
        """
        return self._authenticator.document(bucket, entry)

    @property
    def refuses_plain(self) -> bool:
        """A document that is not signed is refused now, so a plain one is, too."""
        return not self._authenticator.takes_unsigned

    def suspects_copy(self, bucket: str, key: str) -> bool:
        """
        Whether a plain document under a key may be a copy that a node caused: a stamped one was seen there before.

        Where signatures are demanded, they decide alone: for as long as unsigned documents are allowed, plain ones are, too.
        """
        return not self._authenticator.is_demanded and bool(self.numbers.get(f"{bucket}/{key}"))

    def check_absence(self, bucket: str, key: str, newest: KeyValueEntry | None) -> None:
        """
        See that a document which is not there was deleted.

        Args:
            bucket: Its bucket.
            key: Its key.
            newest: What is stored under the key, an entry with an empty value; None: nothing at all.

        Raises: ProtocolError: A document was obeyed before, and nothing proves that an operator deleted it: the bucket may have
            been purged or made again. What was obeyed last stays in force.
        """
        name = f"{bucket}/{key}"
        seen = self.numbers.get(name, 0)
        if not seen or self._deletions.get(name, 0) >= seen:
            return
        if newest is None or newest.value:
            raise ProtocolError(
                f"{name}: it disappeared without being deleted; the last known one stays in effect until `ccmctl` "
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
        """The lowest number that a document may have now."""
        return max(
            self.numbers.get(name, 0),
            self._deletions.get(name, 0),
            self._authenticator.floors.get(name, 0),
            self._lowest.get(name, 0),
        )

    async def seen(self, document: Stamped) -> None:
        """Remember a document's number; from now on an older one is refused."""
        self.numbers[f"{document.bucket}/{document.key}"] = document.number
        await self.save()

    async def save(self) -> None:
        """Write the numbers to disk, if any has changed."""
        # the deletions first: a number without its deletion would bring a deleted document back
        if not self._deletions_file.is_saved(self._deletions):
            is_saved = await self._deletions_file.save(dict(self._deletions))
            if not is_saved:
                return
        if not self._numbers_file.is_saved(self.numbers):
            await self._numbers_file.save(dict(self.numbers))
        if not self._digests_file.is_saved(self._digests):
            await self._digests_file.save(dict(self._digests))


class SnapshotReader:
    """Reads the pieces of the snapshot that hold the keys of one node."""

    def __init__(self, bucket: KeyReader, authenticator: Authenticator) -> None:
        """
        Args:
            bucket: `CCM_TRUST`.
            authenticator: Knows the newest timestamp.
        """
        self._bucket = bucket
        self._authenticator = authenticator
        self._pieces: dict[str, dict[str, int]] = {}

    async def lowest(self, names: Collection[str]) -> dict[str, int]:
        """
        The lowest numbers that some documents may have; 0 for one that is not in the snapshot. Nothing in a fleet whose signers
        list has no maximum age, and so no timestamps.

        Args:
            names: `bucket/key` of documents that were never seen.

        Raises:
            ProtocolError: There is no recent timestamp, or a piece is not the one that it names.
            BusError: The broker is away.
        """
        if not names or not self._authenticator.has_timestamps:
            return {}
        try:
            return await self._read(names)
        except ProtocolError:
            # it may have been renewed a moment ago
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
            # those of earlier timestamps are of no use
            self._pieces = {one: self._pieces[one] for one in digests if one in self._pieces}
            self._pieces[digest] = piece
        return self._pieces[digest]
