"""A node undoes a run that it has on record, and refuses others; on a bus in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.bundle import PartialManifest
from ccm_agent.model.ids import new_id
from ccm_agent.model.records.undo import UndoEntry, UndoRecord
from ccm_agent.model.wire import MANIFEST_APPLY, MANIFEST_PLAN, ManifestRequest
from ccm_agent.storage.undo_store import UndoStore
from tests.support.agent import NODE
from tests.unit.agent.test_checkpoint import Node, node

ENTRY = UndoEntry(type="file", name="/etc/motd", properties={"ensure": "absent"})


async def keep_run(at: Node, folder: Path) -> str:
    """A run on record, as an earlier process has left it."""
    store = UndoStore(folder / "undo", at.clock, keep_s=86_400, limit_bytes=1000)
    await asyncio.to_thread(store.open)
    run = new_id(at.clock.now())
    await store.before(run, ENTRY)
    await store.after(run, ENTRY, has_changed=True)
    await store.close(run)
    return run


async def ask(at: Node, protocol: str = MANIFEST_APPLY, **fields: Any) -> dict[str, Any]:
    """Ask for an undo; the summary."""
    run = await at.controller.ask(ManifestRequest(protocol=protocol, name="undo", **fields))
    return await at.controller.summary(run, NODE)


@pytest.mark.parametrize(("protocol", "noop"), [(MANIFEST_APPLY, False), (MANIFEST_PLAN, True)])
async def test_the_engine_gets_the_earlier_states_instead_of_a_manifest(
    tmp_path: Path, protocol: str, noop: bool
) -> None:
    at = await node(tmp_path)
    run = await keep_run(at, tmp_path)
    async with at.agent():
        summary = await ask(at, protocol, undo=run)

    (source, options) = at.engine.applied[0]
    assert summary["state"] == "stable"
    assert source.undo == UndoRecord(run=run, folder=str(tmp_path / "undo" / "content"), entries=[ENTRY])
    assert (source.text, options.noop, options.undo_log is not None) == (None, noop, True)


async def test_a_run_that_is_not_on_record_fails_and_says_how_long_records_are_kept(tmp_path: Path) -> None:
    at = await node(tmp_path)
    async with at.agent():
        summary = await ask(at, undo=new_id(at.clock.now()))

    assert (summary["state"], summary["code"], at.engine.applied) == ("failed", "run.undo", [])
    assert "`undo_keep` is 7d, `undo_max_mib` is 256" in summary["reason"]


@pytest.mark.parametrize(
    "fields",
    [{"manifest": "changed /a"}, {"part": PartialManifest(manifest="changed /a")}, {"plan": "x"}],
)
async def test_a_request_that_names_a_manifest_as_well_is_refused(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    at = await node(tmp_path)
    run = await keep_run(at, tmp_path)
    async with at.agent():
        summary = await ask(at, undo=run, **fields)

    assert (summary["state"], at.engine.applied) == ("failed", [])


async def test_a_node_that_keeps_nothing_gives_the_engine_no_log(tmp_path: Path) -> None:
    at = await node(tmp_path)
    async with at.agent(undo_keep_s=0):
        await ask(at, manifest="changed /a")

    assert at.engine.applied[0][1].undo_log is None
