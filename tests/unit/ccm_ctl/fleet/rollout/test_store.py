"""The stored state of rollouts: compare-and-set, and documents that are not what they should be."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.subjects import ROLLOUTS, encode_token
from ccm_agent.model.errors import ProtocolError, RevisionError, RunError
from ccm_agent.model.ids import new_id
from ccm_agent.model.records.rollout_records import Phase, RolloutPlan, RolloutState, Wave
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.rollout.state import pause
from ccm_ctl.fleet.rollout.store import RolloutStore
from tests.support.controller import fleet_on
from tests.support.signing import OWN

PLAN = RolloutPlan(waves=(Wave(name="wave 1", nodes=2, slots=1),))


def a_store() -> tuple[RolloutStore, MemoryBus]:
    bus = MemoryBus(MemoryBroker(), "op")
    return RolloutStore(fleet_on(bus)), bus


async def test_a_state_is_read_as_it_was_written() -> None:
    store, _ = a_store()
    state = RolloutState(run=new_id(), plan=PLAN, asked=1, forgiven={"failed": 1})

    await store.write(state, 0, base=OWN)

    stored, _ = await store.need(state.run)
    assert replace(stored, time=None) == replace(state, serial=1)


async def test_a_driver_with_an_old_view_cannot_write() -> None:
    store, _ = a_store()
    state = RolloutState(run=new_id(), plan=PLAN)
    revision = await store.write(state, 0, base=OWN)
    await store.change(state.run, lambda found: pause(found, "ana", "lunch"), base=OWN)

    with pytest.raises(RevisionError):
        await store.write(replace(state, asked=1), revision, base=OWN)

    assert (await store.need(state.run))[0].phase is Phase.PAUSED


async def test_a_run_without_waves_is_not_a_rollout() -> None:
    store, _ = a_store()

    with pytest.raises(RunError, match="not a rollout"):
        await store.need(new_id())


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"run": "x", "plan": {"waves": []}}',
        pytest.param(msgspec.json.encode(RolloutState(run=new_id(), plan=PLAN)), id="another run"),
        b'{"run": "RUN", "plan": {"waves": []}}',
        b'{"run": "RUN", "plan": {"waves": [{"name": "a", "nodes": 0, "slots": 1}]}}',
        b'{"run": "RUN", "plan": {"waves": [{"name": "a", "nodes": 1, "slots": -1}]}}',
        b'{"run": "RUN", "asked": -1, "plan": {"waves": [{"name": "a", "nodes": 1, "slots": 1}]}}',
        b'{"run": "RUN", "deadline_s": 1e300, "plan": {"waves": [{"name": "a", "nodes": 1, "slots": 1}]}}',
        b'{"run": "RUN", "plan": {"splay_s": -1, "waves": [{"name": "a", "nodes": 1, "slots": 1}]}}',
        b'{"run": "RUN", "plan": {"waves": [{"name": "a", "nodes": 1, "slots": 1, "bake_s": 1e18}]}}',
        b'{"run": "RUN", "asked": 1e30, "plan": {"waves": [{"name": "a", "nodes": 1, "slots": 1}]}}',
    ],
)
async def test_a_document_that_is_not_a_state_is_named_and_left_out_of_lists(body: bytes) -> None:
    store, _ = a_store()
    run = new_id()
    await store._bucket.put(f"{ROLLOUTS}.{run}", body.replace(b"RUN", run.encode()))

    with pytest.raises(ProtocolError, match=f"{ROLLOUTS}.{run}"):
        await store.read(run)
    assert await store.open_rollouts() == []


def test_no_operator_has_the_key_of_rollouts() -> None:
    assert all(encode_token(name) != ROLLOUTS for name in ("rollout", "=rollout", "", "=", "r" * 300))
