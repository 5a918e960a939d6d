"""The pending refreshes of one agent's runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from ccm_agent.model.wire import (
    NodeRecord,
)
from ccm_agent.sessions.refresh_store import RefreshStore, ScopeRefreshes

SHOWN = 20
"""The maximum number of pending refreshes in the node's record."""


class PendingRefreshes:
    """
    The pending refreshes of one agent, shown in its record.

    Args:
        store: Stores them; None: they are not stored, so there are none.
        record: The node's record, which contains them.
        on_change: Called when they have changed in the record.
    """

    def __init__(self, store: RefreshStore | None, record: NodeRecord, on_change: Callable[[], None]) -> None:
        self._store = store
        self._record = record
        self._on_change = on_change
        self._found: dict[str, ScopeRefreshes] = {}

    def open(self) -> None:
        """Read the files of earlier processes. Blocking."""
        self._take(self._store.read() if self._store is not None else [])

    def of(self, scope: str) -> list[str]:
        """Return the names of the pending refreshes in a scope."""
        found = self._found.get(scope)
        return _names(found)[:SHOWN] if found is not None else []

    async def refresh(self) -> None:
        """Read them again, because a run has ended or a scope was removed."""
        if self._store is None:
            return
        before = self._record.refresh_pending
        self._take(await asyncio.to_thread(self._store.read))
        if self._record.refresh_pending != before:
            self._on_change()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was pending at the last read."""
        return not self._found

    async def forget(self, scope: str) -> None:
        """Remove the pending refreshes of a deleted scope."""
        if self._store is not None and scope in self._found:
            await asyncio.to_thread(self._store.forget, scope)
            await self.refresh()

    async def keep_only(self, kind: str, scopes: Collection[str]) -> None:
        """Remove the pending refreshes of all scopes with this prefix, except for these."""
        if self._store is not None and any(one.startswith(kind) and one not in scopes for one in self._found):
            await asyncio.to_thread(self._store.forget_others, kind, scopes)
            await self.refresh()

    def _take(self, found: list[ScopeRefreshes]) -> None:
        self._found = {one.scope: one for one in found}
        self._record.refresh_pending = [
            f"{name} ({one.scope})" if one.scope else name for one in found for name in _names(one)
        ][:SHOWN]


def _names(found: ScopeRefreshes) -> list[str]:
    """Return the pending refreshes without duplicates, with a note if they are not completely known."""
    names = list(dict.fromkeys(one.sentence for one in found.pending))
    return [*names, f"unknown, because the record is damaged: {found.trouble}"] if found.trouble else names
