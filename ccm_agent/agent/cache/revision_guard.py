"""
Documents that this node obeys name themselves: the key that they belong to, and a number that grows.

Who can write one key could otherwise copy another node's document there, or bring an old one back. The highest number
seen of each key is kept on disk, so that a restart does not make an old document new again.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec

from ccm_agent.agent.cache.state_file import load_state, save_state
from ccm_agent.agent.requests.authentication import Authenticator
from ccm_agent.model.errors import FileError, ProtocolError
from ccm_agent.model.policy import Principal
from ccm_agent.model.ports import Entry
from ccm_agent.model.untrusted_json import decode_foreign
from ccm_agent.model.wire import Stamped

log = logging.getLogger(__name__)


class RevisionGuard:
    """
    The numbers seen so far.

    Attributes:
        numbers: By `bucket/key`; hiera's sources change it in place.
    """

    def __init__(self, path: Path, authenticator: Authenticator) -> None:
        """
        Nothing is read yet.

        Args:
            path: Where the numbers are kept; the numbers of deletions are kept beside it.
            authenticator: Whose documents count.
        """
        self.numbers: dict[str, int] = {}
        self._deletions: dict[str, int] = {}
        self._path = path
        self._deletions_path = path.with_name("deletions.json")
        self._kept: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._authenticator = authenticator
        self._lock = asyncio.Lock()

    def open(self) -> None:
        """Read what an earlier process knew; a file that cannot be read counts as empty, and is said so. Blocking."""
        self.numbers.update(load_state(self._path, dict[str, int]) or {})
        self._deletions.update(load_state(self._deletions_path, dict[str, int]) or {})
        self._kept = (dict(self.numbers), dict(self._deletions))

    def check(self, bucket: str, entry: Entry) -> Stamped:
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
                f"{bucket}/{entry.key}: not a document of ours: {err}; write it with `ccmctl`"
            ) from err
        if (document.bucket, document.key) != (bucket, entry.key):
            raise ProtocolError(
                f"{bucket}/{entry.key}: the document belongs to {document.bucket}/{document.key} and was copied here"
            )
        newest = self._newest(f"{bucket}/{entry.key}")
        if document.number < newest:
            raise ProtocolError(
                f"{bucket}/{entry.key}: number {document.number} is older than {newest}, which was seen before"
            )
        return document

    def author(self, bucket: str, entry: Entry) -> Principal:
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

    def check_absence(self, bucket: str, key: str, newest: Entry | None) -> None:
        """
        See that a document which is not there was deleted.

        Args:
            bucket: Its bucket.
            key: Its key.
            newest: What is stored under the key, an entry with an empty value; None: nothing at all.

        Raises:
            ProtocolError: A document was obeyed before, and nothing proves that an operator deleted it: the bucket may have been
                purged or made again. What was obeyed last stands.
        """
        name = f"{bucket}/{key}"
        seen = self.numbers.get(name, 0)
        if not seen or self._deletions.get(name, 0) >= seen:
            return
        if newest is None or newest.value:
            raise ProtocolError(
                f"{name}: it was there, and it is gone without having been deleted; the last known one stands until "
                "`ccmctl` writes or deletes it"
            )
        number = self._authenticator.deletion(bucket, newest)
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
        )

    async def seen(self, document: Stamped) -> None:
        """Remember a document's number; from now on an older one is refused."""
        self.numbers[f"{document.bucket}/{document.key}"] = document.number
        await self.keep()

    async def keep(self) -> None:
        """Write the numbers to disk, if any has changed."""
        # one after the other: two that write at once would leave neither's file
        async with self._lock:
            now = (dict(self.numbers), dict(self._deletions))
            if now == self._kept:
                return
            try:
                if now[1] != self._kept[1]:
                    await save_state(self._deletions_path, now[1])
                await save_state(self._path, now[0])
                self._kept = now
            except FileError as err:
                log.warning("the numbers of documents are not kept on disk", extra={"reason": str(err)})
