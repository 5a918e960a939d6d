"""
The buckets that one agent reads data from: each opened once, each with what it kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from ccm_agent.agent.cache.cached_bucket import CachedBucket
from ccm_agent.agent.cache.revision_guard import RevisionGuard
from ccm_agent.model.ports import KeyValue


class CachedBuckets:
    """Opens buckets for hiera; the last good documents stand while the broker is away."""

    def __init__(
        self,
        bucket: Callable[[str], KeyValue],
        revision_guard: RevisionGuard,
        folder: Path,
        on_refused: Callable[[str, str], None],
        *,
        demand_stamps: bool | None,
    ) -> None:
        """
        Nothing is opened yet; see `CachedBucket` for the arguments.

        Args:
            bucket: A bucket of the broker by name.
        """
        self._bucket = bucket
        self._revision_guard = revision_guard
        self._folder = folder
        self._on_refused = on_refused
        self._demand_stamps = demand_stamps
        self._open: dict[str, CachedBucket] = {}

    async def open(self, name: str) -> CachedBucket:
        """A bucket by name."""
        if name not in self._open:
            self._open[name] = CachedBucket(
                self._bucket(name),
                name,
                self._revision_guard,
                self._folder,
                self._on_refused,
                demand_stamps=self._demand_stamps,
            )
        return self._open[name]

    async def fetch_pinned(self, url: str, pins: dict[str, int]) -> None:
        """
        See that a document as it was is on this disk, if it is one that is pinned.

        Raises:
            BusError: It cannot be had.
        """
        name, _, key = url.removeprefix("kv://").partition("/")
        if url.startswith("kv://") and key and pins.get(name):
            await (await self.open(name)).as_of(key, pins[name])

    async def forget_pins(self, name: str, used: Collection[int]) -> None:
        """Use nothing that is kept of a bucket's past, but for these revisions."""
        (await self.open(name)).forget_pins(used)

    @property
    def has_unused(self) -> bool:
        """Something may be on disk that is used no more."""
        return any(each.has_unused for each in self._open.values())

    async def drop_unused(self) -> None:
        """Take from the disk what is used no more."""
        for each in list(self._open.values()):
            await each.drop_unused()
