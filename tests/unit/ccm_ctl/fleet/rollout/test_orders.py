"""What an order about a rollout does, by who gives it; `nats/test_rollout_orders.py` has the driver."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.signatures.verified import Unverified
from ccm_agent.bus.subjects import ROLLOUTS, key_subject, request_subject
from ccm_agent.model.errors import RunError
from ccm_agent.model.ids import new_id
from ccm_agent.model.records.rollout_records import OrderKind, Phase, RolloutPlan, RolloutState, Wave
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.wire import MANIFEST_APPLY
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.orders import Orders
from ccm_ctl.fleet.rollout.store import RolloutStore, StoredRollout, require_verified
from ccm_ctl.fleet.runs.history import History
from tests.support.controller import NOW, fleet_on
from tests.support.signing import OWN, Keyring

RUN = new_id(NOW)
WEB = "fact.role.web"
PLAN = RolloutPlan(waves=(Wave(name="all", nodes=2, slots=1),))
REQUEST = {"protocol": MANIFEST_APPLY, "name": "site"}


class Scene:
    """A rollout of ann on role=web: ann and bob may drive it, sue may only stop its run, pat may only plan there."""

    def __init__(self, *, allow_unsigned_until: int = 0) -> None:
        keys = Keyring(lambda: int(NOW.timestamp() * 1000))
        self.operators = {
            "ann": keys.operator("ann", apply=(WEB,)),
            "bob": keys.operator("bob", apply=(WEB,)),
            "sue": keys.operator("sue", exec=(WEB,)),
            "pat": keys.operator("pat", plan=(WEB,)),
            "eve": keys.operator("eve", apply=("fact.role.db",)),
            "mallory": Keyring(keys.at_ms).operator("mallory", apply=(WEB,)),
        }
        self.broker = MemoryBroker()
        self.trust = keys.trust(allow_unsigned_until=allow_unsigned_until)

    def fleet(self, name: str) -> Fleet:
        """The ports of an operator, who signs only what the code signs."""
        fleet = fleet_on(MemoryBus(self.broker, name), self.trust)
        return replace(fleet, signatory=self.operators.get(name))

    async def begin(self) -> None:
        """Ann records the run, and stores its rollout."""
        fleet = self.fleet("ann")
        subjects = [request_subject(MANIFEST_APPLY, WEB)]
        record = RunRecord(
            run=RUN, action="apply", name="site", time=NOW, nodes=2, subjects=subjects, request=REQUEST
        )
        await History(fleet).begin(record, ["web1", "web2"], [], OWN)
        await RolloutStore(fleet).write(RolloutState(run=RUN, plan=PLAN), 0, base=OWN)

    async def spoil(self) -> None:
        """Eve stores a state that she signed herself."""
        found, key = await self.stored(), f"{ROLLOUTS}.{RUN}"
        body = msgspec.json.encode(replace(found.judged.value, reason="eve was here"))
        signature = self.operators["eve"].record(key_subject("CCM_RUNS", key), body, OWN)
        await self.fleet("eve").runs.update(key, body, found.revision, signature=signature)

    async def give(self, name: str, kind: OrderKind, *, is_detached: bool = False) -> RolloutState:
        fleet = self.fleet(name)
        recorded = await History(fleet).load(RUN)
        return await Orders(fleet, recorded).give(kind, detaches=lambda _: is_detached)

    async def stored(self) -> StoredRollout:
        return await RolloutStore(self.fleet("ann")).require(RUN)


@pytest.fixture
async def scene() -> Scene:
    scene = Scene()
    await scene.begin()
    return scene


async def test_an_operator_who_may_drive_the_rollout_stores_the_state(scene: Scene) -> None:
    for name, kind, phase in (
        ("bob", OrderKind.PAUSE, Phase.PAUSED),
        ("ann", OrderKind.RESUME, Phase.RUNNING),
        ("bob", OrderKind.ABORT, Phase.ABORTED),
    ):
        await scene.give(name, kind)

        judged = (await scene.stored()).judged
        assert (judged.value.phase, judged.signer) == (phase, name)


async def test_an_order_is_carried_out_once(scene: Scene) -> None:
    assert (await scene.give("bob", OrderKind.PAUSE)).halts == 1


@pytest.mark.parametrize(
    ("kind", "phase"), [(OrderKind.PAUSE, Phase.PAUSED), (OrderKind.ABORT, Phase.ABORTED)]
)
async def test_an_operator_who_may_only_stop_the_run_leaves_the_state_to_the_driver(
    scene: Scene, kind: OrderKind, phase: Phase
) -> None:
    await scene.give("sue", kind)

    found = await scene.stored()
    assert (found.state.phase, found.judged.value.phase, found.judged.signer) == (phase, Phase.RUNNING, "ann")


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("sue", OrderKind.RESUME, "sue may not apply"),
        ("sue", OrderKind.PROMOTE, "sue may not apply"),
        ("pat", OrderKind.PAUSE, "pat may not apply"),
        ("eve", OrderKind.PAUSE, "eve may not apply"),
        ("eve", OrderKind.ABORT, "eve may not apply"),
        ("mallory", OrderKind.ABORT, "mallory is not in the signers list"),
        ("nobody", OrderKind.ABORT, "nobody is not in the signers list"),
    ],
)
async def test_an_operator_without_the_right_changes_nothing(
    scene: Scene, name: str, kind: OrderKind, reason: str
) -> None:
    with pytest.raises(RunError, match=reason):
        await scene.give(name, kind)

    found = await scene.stored()
    assert (found.judged.value.phase, found.judged.signer, found.orders) == (Phase.RUNNING, "ann", [])


async def test_a_rollout_is_handed_to_the_servers_only_on_request_and_not_after_its_end(
    scene: Scene,
) -> None:
    handed = []
    for kind, is_detached in (
        (OrderKind.PAUSE, False),
        (OrderKind.RESUME, False),
        (OrderKind.RESUME, True),
    ):
        handed.append((await scene.give("ann", kind, is_detached=is_detached)).is_detached)
    ended = Scene()
    await ended.begin()
    handed.append((await ended.give("ann", OrderKind.ABORT, is_detached=True)).is_detached)

    assert handed == [False, False, True, False]


async def test_a_state_that_another_operator_replaced_is_restored_by_a_resume_and_not_by_an_abort(
    scene: Scene,
) -> None:
    await scene.spoil()
    assert isinstance((await scene.stored()).judged, Unverified)

    aborted = await scene.give("ann", OrderKind.ABORT)

    found = await scene.stored()
    assert (aborted.phase, found.judged.value.reason) == (Phase.ABORTED, "eve was here")

    other = Scene()
    await other.begin()
    await other.spoil()
    resumed = await other.give("bob", OrderKind.RESUME)

    judged = (await other.stored()).judged
    assert (resumed.phase, judged.signer, judged.reason) == (Phase.RUNNING, "bob", "")


async def test_a_state_that_is_not_verified_is_shown_as_paused_and_is_no_base(scene: Scene) -> None:
    genuine = await scene.stored()
    assert (genuine.state.phase, require_verified(genuine)) == (Phase.RUNNING, genuine.judged)

    await scene.spoil()

    spoiled = await scene.stored()
    assert spoiled.state.phase is Phase.PAUSED
    assert spoiled.state.reason.startswith("its state is unverified: eve signed it, but may not apply")
    with pytest.raises(RunError, match="its state is unverified"):
        require_verified(spoiled)


async def test_a_removed_state_is_restored_by_an_operator_who_signs() -> None:
    scene = Scene(allow_unsigned_until=int(NOW.timestamp() * 1000) + 60_000)
    await scene.begin()
    await scene.fleet("eve").runs.delete(f"{ROLLOUTS}.{RUN}")

    with pytest.raises(RunError, match="not a rollout"):
        await scene.give("nobody", OrderKind.RESUME)
    resumed = await scene.give("bob", OrderKind.RESUME)

    assert (resumed.phase, (await scene.stored()).judged.signer) == (Phase.RUNNING, "bob")
