"""What a node keeps of plans."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_SUMMARY, SessionSummary
from ccm_agent.storage.plan_store import KEPT, PlanRecord, PlanStore, SavedPlan
from ccm_agent.testing.clock import FakeClock
from tests.support.agent import resource_event

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def plan(run: str = "", saved: datetime = NOON, **fields: object) -> SavedPlan:
    """What a plan of one file found; the fields change its event."""
    record = PlanRecord()
    state = {"ensure": "present", "timestamp": str(new_id()), "metadata": {"mode": "0644", "mtime": new_id()}}
    record.add(resource_event("/a", **{"status": state, **fields}))
    record.add(resource_event("/b"))
    summary = SessionSummary(protocol=SESSION_SUMMARY, event_id="", timestamp=saved, digest="d" * 64)
    summary.data_revisions = {"kv://CCM_DATA/common": 3}
    return record.finish(run or new_id(saved), summary, ["kv://CCM_DATA/common"], saved)


def test_two_plans_of_the_same_state_find_the_same_whatever_the_time() -> None:
    first, second = plan(), plan(saved=NOON + timedelta(hours=1))

    assert first.moved(second) == []
    assert first.found == second.found


@pytest.mark.parametrize(
    "fields",
    [
        {"status": {"ensure": "present", "metadata": {"mode": "0600"}}},
        {"properties": {"name": "/a", "mode": "0600"}},
        {"changed": True},
        {"noop_message": "Would have created the file"},
        {"failed": True, "error": ["no"]},
    ],
)
def test_a_resource_that_is_not_as_it_was_is_named(fields: dict[str, object]) -> None:
    first, second = plan(), plan(**fields)

    assert first.moved(second) == ["file#/a"]
    assert first.found != second.found


def test_other_data_and_other_resources_are_named() -> None:
    first, second = plan(), plan()
    second.data_revisions = {"kv://CCM_DATA/common": 4}
    del second.resources["file#/b"]

    assert first.moved(second) == ["file#/b", "kv://CCM_DATA/common"]


async def test_a_plan_is_kept_for_its_owner_alone_and_for_a_day(tmp_path: Path) -> None:
    clock = FakeClock(NOON)
    store = PlanStore(tmp_path / "plans", clock)
    kept = plan()

    assert await store.keep(kept)

    assert (tmp_path / "plans" / f"{kept.run}.json").stat().st_mode & 0o777 == 0o600
    assert await store.find(kept.run) == kept
    await clock.advance(86_401)
    assert await store.find(kept.run) is None


async def test_the_newest_plans_are_kept(tmp_path: Path) -> None:
    store = PlanStore(tmp_path, FakeClock(NOON))
    plans = [plan(saved=NOON + timedelta(seconds=number)) for number in range(KEPT + 2)]

    for one in plans:
        await store.keep(one)

    found = [await store.find(one.run) is not None for one in plans]
    assert found == [False, False] + [True] * KEPT


@pytest.mark.parametrize("run", ["", "../signers", "/etc/passwd", "x" * 27 + "/"])
async def test_only_the_id_of_a_run_names_a_file(tmp_path: Path, run: str) -> None:
    store = PlanStore(tmp_path / "plans", FakeClock(NOON))

    assert await store.find(run) is None
    assert not await store.keep(plan(run="../evil"))
    assert os.listdir(tmp_path) == []
