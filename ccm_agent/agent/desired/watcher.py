"""
Detects whether data that manifests read has changed since the last run.

A notification contains the written revision, and the start of a session contains the revisions that the run has read. So
a notification of a change that the node has already read does not cause a request. After each connection, each document is read
once. Files and URLs have no notifications, so they are read at regular intervals.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from urllib.parse import unquote

from ccm_agent.agent.cache.document_cache import FETCH_S
from ccm_agent.agent.desired.origins import SourcePorts
from ccm_agent.bus.subjects import parse_kv_url
from ccm_agent.model.errors import BusError, CcmError
from ccm_agent.model.ports import KeyReader, KeyValueEntry, Transfer
from ccm_agent.model.secret import mask_url

log = logging.getLogger(__name__)

REPORTED_LIMIT = 100
"""The revisions of at most this many documents are reported; a node's record has a size limit."""


class DocumentWatcher:
    """
    Watches the unpinned documents of one assignment, which are keys of buckets.

    A document has changed if its revision differs from the one that the last run read. See ADR 28 for `ExternalData`.
    """

    def __init__(self, bucket: Callable[[str], KeyReader], on_change: Callable[[], None]) -> None:
        """
        Args:
            bucket: Returns a bucket, given its name.
            on_change: Called when a document may have changed; it must not block.
        """
        self._bucket = bucket
        self._on_change = on_change
        self._stops: dict[str, Callable[[], Awaitable[None]]] = {}
        self._read: dict[str, int] = {}
        self._tried: dict[str, int] = {}
        self._absent: set[str] = set()
        self._news: dict[str, int] = {}
        self._must_look = False
        self._doubtful: set[str] = set()

    @property
    def tried(self) -> dict[str, int]:
        """
        The revisions, by URL, that the last run read; if it failed before it read them, those that it was supposed to read.
        """
        return dict(sorted(self._tried.items())[:REPORTED_LIMIT])

    def recheck(self) -> None:
        """Find changes that were missed while disconnected. Called after each connection."""
        if self._stops:
            self._must_look = True
            self._on_change()

    async def is_behind(self) -> bool:
        """Whether a document is known to have changed since the last run read it."""
        doubtful, self._doubtful = self._doubtful, set()
        if self._must_look:
            self._must_look = False
            doubtful = set(self._stops)
        for url in sorted(doubtful & self._stops.keys()):
            await self._look(url)
        return bool(self._news)

    def start_run(self) -> None:
        """Record that a run is about to read the documents; it may miss later changes."""
        self._tried = self._read | self._news
        self._news.clear()

    def record_revisions(self, revisions: Mapping[str, int]) -> None:
        """Record that the run has read documents, by URL, at these revisions."""
        self._read = {url: revision for url, revision in revisions.items() if parse_kv_url(url)}
        self._tried = dict(self._read)
        self._news = {url: one for url, one in self._news.items() if self._read.get(url) != one}

    async def follow(self, urls: Iterable[str]) -> None:
        """
        Subscribe to changes of these documents and of those that the last run read, and end other subscriptions.

        Args:
            urls: The assignment's documents. The last run may also have read documents from the configuration.
        """
        wanted = {url for url in (*urls, *self._read) if parse_kv_url(url)}
        for url in [one for one in self._stops if one not in wanted]:
            await self._stops.pop(url)()
        for url in sorted(wanted - self._stops.keys()):
            bucket, key = parse_kv_url(url) or ("", "")
            try:
                self._stops[url] = await self._bucket(bucket).watch_changes(
                    key, partial(self._on_notification, url)
                )
            except BusError as err:
                # Without notifications, a change is found at the next interval.
                log.warning("changes of data cannot be watched", extra={"url": url, "reason": str(err)})
                continue
            if url in self._read:
                await self._look(url)

    async def close(self) -> None:
        """End all notifications."""
        self._read = {}
        await self.follow(())

    async def _look(self, url: str) -> None:
        bucket, key = parse_kv_url(url) or ("", "")
        try:
            entry = await self._bucket(bucket).get(key)
        except BusError as err:
            log.info("data cannot be checked", extra={"url": url, "reason": str(err)})
            return
        revision = entry.revision if entry else 0
        if entry is None:
            self._absent.add(url)
        if revision != self._read.get(url, 0):
            self._came(url, revision)

    def _on_notification(self, url: str, _key: str, revision: int) -> None:
        # After an absence, any revision is new, because revisions of a recreated bucket start at 1.
        if revision > self._read.get(url, 0) or url in self._absent:
            self._absent.discard(url)
            self._came(url, revision)
        elif revision < self._read.get(url, 0):
            # The bucket was created again, or an old notification was replayed. A read costs less than a run.
            self._doubtful.add(url)
            self._on_change()

    def _came(self, url: str, revision: int) -> None:
        self._news[url] = revision
        self._on_change()


DOCUMENT_LIMIT_BYTES = 16 << 20
"""The size limit of a fetched document, as in Hiera."""


_Stood = tuple[int, datetime | None]
"""The state of a key: revision and time, because revisions of a rebuilt broker start at 1 again."""

UNKNOWN: _Stood = (-1, None)
"""The state of a key that could not be read yet. It never equals a real state."""


class ExternalData:
    """
    Watches the one document that overrides the data of all configured manifests: a file, a URL or a key.

    It has changed if it differs from the version that was last seen. The last run is not compared, because the manifests read
    it at different times and a file has no revision.

    Attributes:
        digest: The last digest of a file or a URL; "" if there is no document or if it is a key. Each run's start contains
            the key's revision.
    """

    def __init__(
        self,
        url: str,
        ports: SourcePorts,
        bucket: Callable[[str], KeyReader],
        on_change: Callable[[], None],
    ) -> None:
        """
        Args:
            url: The URL of the document; "" watches nothing.
            ports: Access to files and the web.
            bucket: Returns a bucket, given its name.
            on_change: Called when the data has changed; it must not block.
        """
        self.digest = ""
        self._url = url
        self._ports = ports
        self._on_change = on_change
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        self._at_least = self._told = 0
        self._stood: _Stood | None = None
        self._has_looked = False
        self._etag = self._last_modified = ""
        name, self._key = parse_kv_url(url) or ("", "")
        self._bucket = bucket(name) if name else None

    @property
    def is_key(self) -> bool:
        """Whether the document is a key of a bucket."""
        return self._bucket is not None

    async def listen(self) -> Callable[[], Awaitable[None]]:
        """Subscribe to changes of a key, until the returned function is called."""
        if self._bucket is None:
            return nothing
        return await self._bucket.watch_changes(self._key, self._on_notification)

    def recheck(self) -> None:
        """Find a change that was missed while disconnected. Called after each connection."""
        self._wake.set()

    async def run(self) -> None:
        """Read the data whenever it may have changed, until cancelled."""
        await self._read_first()
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.look()

    async def look(self) -> None:
        """Read the data now. If it cannot be read, it is treated as unchanged."""
        async with self._lock:
            try:
                async with asyncio.timeout(FETCH_S):
                    has_changed = await self._look()
            except (CcmError, TimeoutError) as err:
                log.info("data cannot be checked", extra={"url": mask_url(self._url), "reason": str(err)})
                return
        if has_changed:
            log.info("data has changed", extra={"url": mask_url(self._url)})
            self._on_change()

    async def _read_first(self) -> None:
        """Read the current revision of a key. Without a broker, the first revision read later is treated as a change."""
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
        (found,) = await self._ports.files.inspect([path], digest={path: [DOCUMENT_LIMIT_BYTES]})
        return self._saw(found.sha256)

    async def _look_at_key(self, bucket: KeyReader) -> bool:
        at_least, self._at_least = self._at_least, 0
        entry = await bucket.get(self._key, at_least)
        before, self._stood = self._stood, _stood(entry)
        # A notification is a change even if the revision was seen before: a run that began earlier may have read an older
        # one.
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

    def _on_notification(self, _key: str, revision: int) -> None:
        self._at_least = max(self._at_least, revision)
        self._wake.set()


def _stood(entry: KeyValueEntry | None) -> _Stood:
    return (entry.revision, entry.created) if entry else (0, None)


async def nothing() -> None:
    """Do nothing: there is nothing to end."""
