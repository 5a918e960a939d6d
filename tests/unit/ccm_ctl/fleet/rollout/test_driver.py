"""The driver of a rollout on a broker whose answers get lost: nodes that are on record as asked are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.signatures.verified import Base
from ccm_agent.bus.subjects import ROLLOUTS, request_subject, scopes_of
from ccm_agent.model.errors import BusDeniedError, BusUnavailableError, RunError
from ccm_agent.model.ids import new_id
from ccm_agent.model.ports import IncomingRequest
from ccm_agent.model.records.rollout_records import Lease, Phase, RolloutPlan, RolloutState, Wave
from ccm_agent.model.records.run_records import RunRecord, RunState
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest, NodeState
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.rollout.driver import Driving, LeaseLostError, RolloutDriver
from ccm_ctl.fleet.rollout.state import abort
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import Recorded
from ccm_ctl.fleet.runs.node_run import News
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.run_session import follow_rollout
from tests.support.controller import NOW, fleet_on
from tests.support.signing import OWN

NODES = ["n1", "n2", "off1"]
RECORDED = Recorded(
    record=RunRecord(run="", action="apply", name="site"),
    state=RunState(run=""),
    nodes=NODES,
    offline=["off1"],
    ends={},
)


class LossyStore(RolloutStore):
    """
    A store of which some answers get lost.

    Attributes:
        loses: The next write is stored, and its answer does not come.
    """

    loses = False

    async def write(self, state: RolloutState, revision: int, *, base: Sequence[Base]) -> int:
        """See `RolloutStore.write`."""
        stored = await super().write(state, revision, base=base)
        if self.loses:
            self.loses = False
            raise BusUnavailableError("the broker did not answer")
        return stored


class Scene:
    """A rollout of two nodes, one after the other; a third one is offline."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.fleet = fleet_on(MemoryBus(self.broker, "op"))
        self.store = LossyStore(self.fleet)
        self.heard: list[str] = []
        self.subjects: list[str] = []
        self.back: list[str] = []
        self.id = new_id()

    async def driver(self, *, is_sent_to_scopes: bool = False) -> RolloutDriver:
        """A driver of the stored rollout, which is stored now if it is not; nodes write down what they are asked."""
        found = await self.store.read(self.id)
        if found is None:
            for node in NODES:
                bus = MemoryBus(self.broker, node)
                await bus.requests.subscribe(scopes_of(node, {}), partial(self._hear, node))
            plan = RolloutPlan(waves=(Wave(name="wave 1", nodes=2, slots=1),))
            state = RolloutState(run=self.id, plan=plan)
            found = state, await self.store.write(state, 0, base=OWN)

        async def find_back(nodes: Sequence[str]) -> list[str]:
            return [node for node in self.back if node in nodes]

        now = asyncio.get_running_loop().time()
        planned = NODES[found[0].asked : 2]
        self.run = Run(self.id, NODES, ["off1"], now, asked=True, planned=planned)
        driving = Driving(
            fleet=self.fleet,
            store=self.store,
            request=ManifestRequest(protocol=MANIFEST_APPLY, name="site"),
            base=OWN,
            scopes=["all"],
            order=NODES[:2],
            find_back=find_back,
            is_sent_to_scopes=is_sent_to_scopes,
        )
        return RolloutDriver(driving, self.run, *found)

    async def begun_and_cut_off(self) -> RolloutDriver:
        """A driver whose first step is stored, and that did not get the answer."""
        driver = await self.driver()
        await driver.begin()
        self.store.loses = True
        with pytest.raises(BusUnavailableError):
            await driver.turn()
        return driver

    def _hear(self, node: str, request: IncomingRequest) -> None:
        self.heard.append(node)
        self.subjects.append(request.subject)

    async def settle(self) -> list[str]:
        """Let what was sent arrive; the nodes that were asked until now, in order."""
        for _ in range(10):
            await asyncio.sleep(0)
        return self.heard


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr("ccm_ctl.fleet.rollout.driver.READ_S", 0.0)
    return Scene()


async def test_node_is_asked_whose_turn_was_stored_and_the_answer_to_that_was_lost(scene: Scene) -> None:
    driver = await scene.begun_and_cut_off()
    before = list(await scene.settle())
    await driver.turn()

    assert (before, await scene.settle()) == ([], ["n1"])
    assert scene.run.nodes["n1"].state is NodeState.EXPECTED


async def test_node_that_came_back_is_asked_though_the_answer_to_that_write_was_lost(scene: Scene) -> None:
    driver = await scene.driver()
    await driver.begin()
    for name in ("n1", "n2"):
        await driver.turn()
        scene.run.ended(name, NodeState.CHANGED, "", "", 0)
    scene.back = ["off1"]
    scene.store.loses = True

    with pytest.raises(BusUnavailableError):
        await driver.turn()
    await driver.turn()

    assert await scene.settle() == ["n1", "n2", "off1"]


async def test_next_driver_asks_a_node_that_came_back_and_may_not_have_been_asked(scene: Scene) -> None:
    driver = await scene.driver()
    await driver.begin()
    for name in ("n1", "n2"):
        await driver.turn()
        scene.run.ended(name, NodeState.CHANGED, "", "", 0)
    scene.back = ["off1"]
    await driver.turn()
    await driver.leave()

    other = await scene.driver()
    for name in ("n1", "n2"):
        scene.run.ended(name, NodeState.CHANGED, "", "", 0)
    await other.begin()
    await other.turn()

    assert await scene.settle() == ["n1", "n2", "off1", "off1"]
    assert scene.run.nodes["off1"].state is NodeState.EXPECTED


async def test_nobody_is_asked_when_the_rollout_was_aborted_while_the_broker_was_away(scene: Scene) -> None:
    driver = await scene.begun_and_cut_off()

    await RolloutStore(scene.fleet).change(scene.id, lambda state: abort(state, "ana", "lunch"), base=OWN)
    await driver.turn()

    assert await scene.settle() == []
    assert driver.state.phase is Phase.ABORTED
    assert driver.is_over


async def test_aborted_rollout_has_no_driver_on_record(scene: Scene) -> None:
    driver = await scene.driver()
    await driver.begin()

    await RolloutStore(scene.fleet).change(scene.id, lambda state: abort(state, "ana", ""), base=OWN)

    entry = await scene.fleet.runs.get(f"{ROLLOUTS}.{scene.id}")
    assert entry is not None
    assert msgspec.json.decode(entry.value, type=RolloutState).lease is None


async def test_rollout_is_driven_on_after_the_broker_went_away_in_a_step(scene: Scene) -> None:
    driver = await scene.driver()
    turns = 0

    async def on_turn(_news: list[News]) -> None:
        nonlocal turns
        turns += 1
        scene.store.loses = turns == 1
        for node in scene.heard:
            scene.run.ended(node, NodeState.CHANGED, "", "", asyncio.get_running_loop().time())

    async with asyncio.timeout(20):
        await follow_rollout(
            scene.fleet, RECORDED, scene.run, driver, None, on_begin=lambda: None, on_turn=on_turn
        )

    assert (scene.heard, driver.state.phase) == (["n1", "n2"], Phase.DONE)


@pytest.mark.parametrize(
    ("is_sent_to_scopes", "scope"), [(False, "node.n1"), (True, "all")], ids=["to the node", "to the scope"]
)
async def test_request_goes_to_the_node_alone_or_to_the_scopes_of_the_run(
    scene: Scene, is_sent_to_scopes: bool, scope: str
) -> None:
    driver = await scene.driver(is_sent_to_scopes=is_sent_to_scopes)
    await driver.begin()
    await driver.turn()
    await scene.settle()

    assert set(scene.subjects) == {request_subject(MANIFEST_APPLY, scope)}


@pytest.mark.parametrize("is_allowed", [False, True], ids=["denied", "allowed"])
async def test_a_rollout_is_paused_with_the_reason_if_the_broker_refuses_its_request(
    scene: Scene, is_allowed: bool
) -> None:
    driver = await scene.driver()
    await driver.begin()
    for scope in () if is_allowed else ("node.n1", "all"):
        scene.broker.deny("op", request_subject(MANIFEST_APPLY, scope))

    refusal = ""
    try:
        await driver.turn()
    except BusDeniedError as err:
        refusal = str(err)
    await driver.leave()
    stored = await scene.store.require(scene.id)

    wanted = (Phase.RUNNING, "") if is_allowed else (Phase.PAUSED, refusal)
    assert (stored.state.phase, stored.state.reason) == wanted
    assert bool(refusal) is not is_allowed
    assert await scene.settle() == (["n1"] if is_allowed else [])


def held_by_another() -> Lease:
    return Lease(operator="ana", host="vm", process="p", until=NOW + timedelta(seconds=20))


async def test_driver_does_not_begin_while_another_one_drives(scene: Scene) -> None:
    driver = await scene.driver()
    free, driver.state = driver.state, replace(driver.state, lease=held_by_another())

    with pytest.raises(RunError, match="ana drives this rollout on vm"):
        await driver.begin()
    before = (await scene.store.require(scene.id)).judged.value.lease
    driver.state = free
    await driver.begin()

    after = (await scene.store.require(scene.id)).judged.value.lease
    assert (before, after is not None and after.operator) == (None, "op")


async def test_driver_that_lost_its_lease_asks_no_further_node(scene: Scene) -> None:
    driver = await scene.driver()
    await driver.begin()
    await driver.turn()
    assert await scene.settle() == ["n1"]

    await RolloutStore(scene.fleet).change(
        scene.id, lambda state: replace(state, lease=held_by_another()), base=OWN
    )
    scene.run.ended("n1", NodeState.CHANGED, "", "", 0)
    with pytest.raises(LeaseLostError, match="ana on vm is driving this rollout"):
        await driver.turn()

    assert await scene.settle() == ["n1"]
