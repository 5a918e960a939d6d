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

from ccm_agent.daemon.keeping import read_kept, write_kept
from ccm_agent.model.errors import FileError, ProtocolError
from ccm_agent.model.foreign import decode_foreign
from ccm_agent.model.ports import Entry
from ccm_agent.model.wire import Stamped

log = logging.getLogger(__name__)


class Stamps:
    """
    The numbers seen so far.

    Attributes:
        numbers: By `bucket/key`; hiera's sources change it in place.
    """

    def __init__(self, path: Path) -> None:
        """Nothing is read yet."""
        self.numbers: dict[str, int] = {}
        self._path = path
        self._kept: dict[str, int] = {}
        self._lock = asyncio.Lock()

    def open(self) -> None:
        """Read what an earlier process knew; a file that cannot be read counts as empty, and is said so. Blocking."""
        self.numbers.update(read_kept(self._path, dict[str, int]) or {})
        self._kept = dict(self.numbers)

    def check(self, bucket: str, entry: Entry) -> Stamped:
        """
        The document of an entry; its number is remembered once `seen` is called.

        Raises:
            ProtocolError: It is none, belongs elsewhere, or is older than one that was seen.
        """
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
        newest = self.numbers.get(f"{bucket}/{entry.key}", 0)
        if document.number < newest:
            raise ProtocolError(
                f"{bucket}/{entry.key}: number {document.number} is older than {newest}, which was seen before"
            )
        return document

    async def seen(self, document: Stamped) -> None:
        """Remember a document's number; from now on an older one is refused."""
        self.numbers[f"{document.bucket}/{document.key}"] = document.number
        await self.keep()

    async def keep(self) -> None:
        """Write the numbers to disk, if any has changed."""
        # one after the other: two that write at once would leave neither's file
        async with self._lock:
            if self.numbers == self._kept:
                return
            now = dict(self.numbers)
            try:
                await write_kept(self._path, now)
                self._kept = now
            except FileError as err:
                log.warning("the numbers of documents are not kept on disk", extra={"reason": str(err)})
