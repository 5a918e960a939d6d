"""What a node says that it still has to refresh."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ccm_agent.model.wire import NodeRecord
from ccm_agent.sessions.pending_refreshes import SHOWN, PendingRefreshes
from ccm_agent.sessions.refresh_log import StoredResource, TriggerChange
from ccm_agent.sessions.refresh_store import RefreshStore
from ccm_agent.testing.clock import NOON


class Stage:
    def __init__(self, folder: Path) -> None:
        self.store = RefreshStore(folder / "refresh")
        self.record = NodeRecord(node="web1")
        self.changes = 0
        self.pending = PendingRefreshes(self.store, self.record, self._changed)

    async def left(self, scope: str, *resources: str) -> None:
        """An earlier process left something to be refreshed."""
        waiting = [StoredResource(one, (one,)) for one in resources]
        change = TriggerChange(
            id=scope, trigger=StoredResource("file#/a", ("a",)), since=NOON, waiting=waiting
        )
        await asyncio.to_thread(self.store.log(scope).add, change)

    def _changed(self) -> None:
        self.changes += 1


async def test_record_names_pending_refreshes_and_their_scope(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    await at.left("assignment web", "exec#reload", "service#app")
    await at.left("request x.yaml", "exec#other")

    await asyncio.to_thread(at.pending.open)

    assert at.pending.of("assignment web") == ["exec#reload", "service#app"]
    assert at.pending.of("assignment db") == []
    assert set(at.record.refresh_pending) == {
        "exec#reload (assignment web)",
        "service#app (assignment web)",
        "exec#other (request x.yaml)",
    }
    assert (at.pending.is_empty, at.changes) == (False, 0)


async def test_change_is_reported_once(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    await at.pending.refresh()
    await at.left("assignment web", "exec#reload")

    await at.pending.refresh()
    await at.pending.refresh()

    assert (at.record.refresh_pending, at.changes) == (["exec#reload (assignment web)"], 1)


async def test_scope_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    for scope in ("assignment web", "assignment db", "assignment mail", "source a"):
        await at.left(scope, "exec#reload")
    await asyncio.to_thread(at.pending.open)

    await at.pending.keep_only("assignment ", {"assignment web", "assignment db"})
    await at.pending.forget("assignment db")

    assert sorted(at.record.refresh_pending) == ["exec#reload (assignment web)", "exec#reload (source a)"]


async def test_record_is_bounded(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    await at.left("assignment web", *(f"exec#{number}" for number in range(SHOWN * 5)))

    await asyncio.to_thread(at.pending.open)

    assert len(at.record.refresh_pending) == len(at.pending.of("assignment web")) == SHOWN


async def test_damaged_record_is_reported_as_unknown(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    await at.left("assignment web", "exec#reload")
    path = at.store.log("assignment web").path
    await asyncio.to_thread(path.write_bytes, b"rubbish\n")

    await asyncio.to_thread(at.pending.open)

    assert at.record.refresh_pending == [
        "unknown, because the record is damaged: 1 of 1 lines cannot be read"
    ]
