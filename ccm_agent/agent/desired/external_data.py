"""
The external data of an agent: whether it is other than before.

A key is watched by pokes and read again on each connection; a file and a URL have no pokes, so they are looked at now and then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from urllib.parse import unquote

from ccm_agent.agent.cache.document_cache import FETCH_S
from ccm_agent.agent.desired.source import SourcePorts
from ccm_agent.model.errors import CcmError
from ccm_agent.model.ports import KeyValue, KeyValueEntry, Transfer
from ccm_agent.model.secret import mask_url

log = logging.getLogger(__name__)

DOCUMENT_LIMIT_BYTES = 16 << 20
"""Of a document that is fetched; as hiera takes it."""


_Stood = tuple[int, datetime | None]
"""What a key holds: revision and time, because a rebuilt broker counts from 1 again."""

UNKNOWN: _Stood = (-1, None)
"""Of a key that could not be read yet: nothing is this."""


class ExternalData:
    """
    Watches one URL of hiera data.

    Attributes:
        digest: Of a file or a URL, as last seen; "" of a key, whose revision stands in each run's start, and of none.
    """

    def __init__(
        self,
        url: str,
        ports: SourcePorts,
        bucket: Callable[[str], KeyValue],
        on_change: Callable[[], None],
    ) -> None:
        """
        Nothing is looked at yet.

        Args:
            url: Of the document; "" watches nothing.
            ports: Files and the web.
            bucket: A bucket by name.
            on_change: Told when the data is other than before; it only queues.
        """
        self.digest = ""
        self._url = url
        self._ports = ports
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        self._poked = self._told = 0
        self._stood: _Stood | None = None
        self._has_looked = False
        self._etag = self._last_modified = ""
        name, _, self._key = url.removeprefix("kv://").partition("/")
        self._bucket = bucket(name) if url.startswith("kv://") and name and self._key else None

    @property
    def is_key(self) -> bool:
        """It is a key of a bucket."""
        return self._bucket is not None

    async def listen(self) -> Callable[[], Awaitable[None]]:
        """Be poked from here on, until the returned function is called."""
        if self._bucket is None:
            return nothing
        return await self._bucket.pokes(self._key, self._on_poke)

    def look_again(self) -> None:
        """It may be other now."""
        self._wake.set()

    async def run(self) -> None:
        """Look whenever there is a reason to, for ever."""
        await self._begin()
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.look()

    async def look(self) -> None:
        """Look now; while it cannot be had, nothing has changed."""
        async with self._lock:
            try:
                async with asyncio.timeout(FETCH_S):
                    has_changed = await self._look()
            except (CcmError, TimeoutError) as err:
                log.info("data cannot be looked at", extra={"url": mask_url(self._url), "reason": str(err)})
                return
        if has_changed:
            log.info("data has changed", extra={"url": mask_url(self._url)})
            self._on_change()

    async def _begin(self) -> None:
        """See which revision a key has now; without a broker whatever is found later is another one."""
        if self._bucket is None:
            return
        async with self._lock:
            try:
                async with asyncio.timeout(FETCH_S):
                    entry = await self._bucket.get(self._key)
                self._stood = _stood(entry)
            except (CcmError, TimeoutError):
                self._stood = UNKNOWN

    async def _look(self) -> bool:
        if self._bucket is not None:
            return await self._look_at_key(self._bucket)
        scheme, mark, rest = self._url.partition("://")
        if scheme in ("http", "https"):
            return await self._look_at_web()
        path = "/" + unquote(rest).partition("/")[2] if mark and scheme == "file" else self._url
        if not path.startswith("/"):
            return False
        (found,) = await self._ports.files.look([path], digest={path: [DOCUMENT_LIMIT_BYTES]})
        return self._saw(found.sha256)

    async def _look_at_key(self, bucket: KeyValue) -> bool:
        at_least, self._poked = self._poked, 0
        entry = await bucket.get(self._key, at_least)
        before, self._stood = self._stood, _stood(entry)
        # a poke counts though the revision was seen before: a run that began earlier may have read an older one
        has_changed = before not in (None, self._stood) or at_least > self._told
        if has_changed:
            self._told = max(self._stood[0], at_least)
        return has_changed

    async def _look_at_web(self) -> bool:
        transfer = Transfer(
            url=self._url,
            etag=self._etag,
            last_modified=self._last_modified,
            limit_bytes=DOCUMENT_LIMIT_BYTES,
        )
        done = await self._ports.download.fetch(transfer)
        if done.is_unchanged:
            return False
        self._etag, self._last_modified = done.etag, done.last_modified
        return self._saw(done.sha256)

    def _saw(self, digest: str) -> bool:
        is_first, before = not self._has_looked, self.digest
        self.digest, self._has_looked = digest, True
        return before != digest and not is_first

    def _on_poke(self, _key: str, revision: int) -> None:
        self._poked = max(self._poked, revision)
        self._wake.set()


def _stood(entry: KeyValueEntry | None) -> _Stood:
    return (entry.revision, entry.created) if entry else (0, None)


async def nothing() -> None:
    """There is nothing to end."""
