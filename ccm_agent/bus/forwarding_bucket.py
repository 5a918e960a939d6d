"""
A bucket that forwards reads to another bucket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ccm_agent.model.ports import KeyReader, KeyValueEntry


class ForwardingReader:
    """A `KeyReader` that passes each call to another one; a subclass overrides the reads that it changes."""

    def __init__(self, inner: KeyReader) -> None:
        self._inner = inner

    async def get(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        """See `KeyReader.get`."""
        return await self._inner.get(key, at_least)

    async def newest(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        """See `KeyReader.newest`."""
        return await self._inner.newest(key, at_least)

    async def as_of(self, key: str, revision: int) -> KeyValueEntry | None:
        """See `KeyReader.as_of`."""
        return await self._inner.as_of(key, revision)

    async def matching(
        self,
        patterns: Sequence[str],
        *,
        obeyed: bool = False,
        at_least: int = 0,
        deletions: bool = False,
    ) -> list[KeyValueEntry]:
        """See `KeyReader.matching`."""
        return await self._inner.matching(patterns, obeyed=obeyed, at_least=at_least, deletions=deletions)

    async def watch_changes(
        self, pattern: str, on_change: Callable[[str, int], None]
    ) -> Callable[[], Awaitable[None]]:
        """See `KeyReader.watch_changes`."""
        return await self._inner.watch_changes(pattern, on_change)
