"""
The documents that one assignment reads as they are now: whether one is other than in its last run.

A poke names the revision that was written; what a run has read stands in its start. So a node that is poked asks nothing of the
broker to know, and is woken by documents that it reads alone. After each connection each is looked at once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from ccm_agent.bus.subjects import check_key
from ccm_agent.model.errors import BusError, CcmError
from ccm_agent.model.ports import KeyValue

log = logging.getLogger(__name__)

REPORTED_LIMIT = 100
"""The revisions of at most this many documents are reported; a node's record has a size limit."""

_BUCKET = re.compile(r"[A-Za-z0-9_-]+")


class DocumentWatcher:
    """What is known of the documents of one assignment."""

    def __init__(self, bucket: Callable[[str], KeyValue], on_change: Callable[[], None]) -> None:
        """
        Nothing is followed yet.

        Args:
            bucket: A bucket by name.
            on_change: Told that there may be something to do; it only queues.
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
        """The revisions, by URL, that the last run read; where it failed before it had read them, those that it was to read."""
        return dict(sorted(self._tried.items())[:REPORTED_LIMIT])

    def look_again(self) -> None:
        """The connection was made: whatever was missed is to be found."""
        if self._stops:
            self._must_look = True
            self._on_change()

    async def is_behind(self) -> bool:
        """A document is other than it was read, as far as is known."""
        doubtful, self._doubtful = self._doubtful, set()
        if self._must_look:
            self._must_look = False
            doubtful = set(self._stops)
        for url in sorted(doubtful & self._stops.keys()):
            await self._look(url)
        return bool(self._news)

    def begin(self) -> None:
        """A run is about to read what stands now; what comes from here on may be missed by it."""
        self._tried = self._read | self._news
        self._news.clear()

    def took(self, revisions: Mapping[str, int]) -> None:
        """The run has read documents, by URL, at these revisions."""
        self._read = {url: revision for url, revision in revisions.items() if _place(url)}
        self._tried = dict(self._read)
        self._news = {url: one for url, one in self._news.items() if self._read.get(url) != one}

    async def follow(self, urls: Iterable[str]) -> None:
        """
        Be poked for what these name and what was read, and for nothing else.

        Args:
            urls: As the assignment has them. What the configuration names besides is known once it was read.
        """
        wanted = {url for url in (*urls, *self._read) if _place(url)}
        for url in [one for one in self._stops if one not in wanted]:
            await self._stops.pop(url)()
        for url in sorted(wanted - self._stops.keys()):
            bucket, key = _place(url) or ("", "")
            try:
                self._stops[url] = await self._bucket(bucket).pokes(key, partial(self._on_poke, url))
            except BusError as err:
                # without pokes a change waits for the next interval
                log.warning("changes of data cannot be listened to", extra={"url": url, "reason": str(err)})
                continue
            if url in self._read:
                await self._look(url)

    async def close(self) -> None:
        """Follow nothing any more."""
        self._read = {}
        await self.follow(())

    async def _look(self, url: str) -> None:
        bucket, key = _place(url) or ("", "")
        try:
            entry = await self._bucket(bucket).get(key)
        except BusError as err:
            log.info("data cannot be looked at", extra={"url": url, "reason": str(err)})
            return
        revision = entry.revision if entry else 0
        if entry is None:
            self._absent.add(url)
        if revision != self._read.get(url, 0):
            self._came(url, revision)

    def _on_poke(self, url: str, _key: str, revision: int) -> None:
        # what comes after nothing is new whatever its revision is: a bucket that was made again counts from 1
        if revision > self._read.get(url, 0) or url in self._absent:
            self._absent.discard(url)
            self._came(url, revision)
        elif revision < self._read.get(url, 0):
            # a bucket that was made again, or an old poke that was replayed: a read tells them apart, and costs less than a run
            self._doubtful.add(url)
            self._on_change()

    def _came(self, url: str, revision: int) -> None:
        self._news[url] = revision
        self._on_change()


def _place(url: str) -> tuple[str, str] | None:
    """Bucket and key of a document; None of one that is elsewhere."""
    bucket, _, key = url.removeprefix("kv://").partition("/")
    if not url.startswith("kv://") or not _BUCKET.fullmatch(bucket) or not key:
        return None
    try:
        return bucket, check_key(key)
    except CcmError:
        return None
