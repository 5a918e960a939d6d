"""
Orders about rollouts on a broker with security: they count for those who may send the request, and for nobody else.

The broker lets every operator with `--apply` write the state of every rollout. Each attack stands beside the same steps by an
operator with the right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.layout import RUNS
from ccm_agent.bus.subjects import ROLLOUTS, encode_token, key_subject
from ccm_agent.model.records.rollout_records import OrderKind, Phase, RolloutOrder, RolloutState
from ccm_ctl.app import Broker, ConnectionOptions, bus_settings, connected
from ccm_ctl.fleet.rollout.store import RolloutStore
from tests.support.fleet import FILES, Controller, Done, a_file, manifest
from tests.support.secured import Secured, secured_fleet
from tests.support.signing import OWN

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]

NODES = ("web1", "web2")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """web1 and web2 (role=web); bob and ann apply there, eve to role=db only, and sue runs commands on role=web."""
    with secured_fleet(tmp_path_factory.mktemp("orders")) as one:
        creds = one.give("node", "web2")
        one.fleet.add("web2", nats={"url": one.fleet.environ["NATS_URL"], "creds": str(creds)})
        assert one.as_("bob", "facts", "set", "web2", "role=web").code == 0
        one.give("operator", "ann", "--apply", "role=web")
        one.give("operator", "eve", "--apply", "role=db")
        one.give("operator", "sue", "--exec", "role=web")
        one.fleet.wait_for(
            lambda: one.as_("sue", "exec", "-t", "role=web", "--yes", "true").code == 0,
            "the nodes to know the operators",
        )
        yield one


def as_operator(secured: Secured, name: str) -> AbstractAsyncContextManager[Broker]:
    environ = {**secured.fleet.environ, "CCM_CREDS": str(secured.directory / f"{name}.creds")}
    return connected(bus_settings(ConnectionOptions(), environ))


class Canary:
    """A rollout of bob with web1 as the canary, which waits an hour before web2."""

    def __init__(self, secured: Secured, name: str) -> None:
        self.secured, self.name = secured, name
        path = secured.fleet.write(f"{name}.yaml", manifest(a_file(name)))
        words = ["apply", path, "-t", "role=web", "--canary", "1", "--bake", "1h", "--yes", "--json"]
        self.driver: Controller = secured.fleet.begin("--creds", str(secured.directory / "bob.creds"), *words)
        self.wait(lambda: self.phase == "baking", "the canary to end")
        self.run = self.driver.so_far.run

    def wait(self, happened: Callable[[], object], what: str) -> None:
        self.secured.fleet.wait_for(happened, f"{what}; {self.driver.so_far.err}")

    @property
    def phase(self) -> str:
        """The newest phase that the driver printed."""
        found = self.driver.so_far.named("rollout")
        return str(found[-1]["phase"]) if found else ""

    def order(self, operator: str, *words: str) -> Done:
        return self.secured.as_(operator, "run", *words, self.run)

    @property
    def nodes(self) -> list[str]:
        """The nodes that have applied it."""
        return [node for node in NODES if (self.secured.fleet.agents[node].files / self.name).exists()]

    def state(self) -> RolloutState:
        async def read() -> RolloutState:
            async with as_operator(self.secured, "bob") as broker:
                return (await RolloutStore(broker.fleet).need(self.run))[0]

        return asyncio.run(read())

    def forge(self, operator: str, change: Callable[[RolloutState], RolloutState]) -> None:
        """An operator writes another state, signed with that operator's key, as a program of ours would."""

        async def write() -> None:
            async with as_operator(self.secured, operator) as broker:
                key = f"{ROLLOUTS}.{self.run}"
                entry = await broker.fleet.runs.get(key)
                signatory = broker.fleet.signatory
                assert entry is not None
                assert signatory is not None
                body = msgspec.json.encode(change(msgspec.json.decode(entry.value, type=RolloutState)))
                signature = signatory.record(key_subject(RUNS, key), body, OWN)
                await broker.fleet.runs.store_signed(key, body, entry.revision, signature)

        asyncio.run(write())

    def remove(self, operator: str) -> None:
        """An operator removes the state."""

        async def delete() -> None:
            async with as_operator(self.secured, operator) as broker:
                await broker.fleet.runs.delete(f"{ROLLOUTS}.{self.run}")

        asyncio.run(delete())

    def has_state(self) -> bool:
        async def look() -> bool:
            async with as_operator(self.secured, "bob") as broker:
                return await RolloutStore(broker.fleet).look(self.run) is not None

        return asyncio.run(look())

    def put_order(self, operator: str, kind: OrderKind) -> None:
        """An operator writes an order by hand, signed; `ccmctl` would refuse."""

        async def write() -> None:
            async with as_operator(self.secured, operator) as broker:
                await RolloutStore(broker.fleet).put_order(RolloutOrder(run=self.run, order=kind), base=OWN)

        asyncio.run(write())


@pytest.fixture
def canary(secured: Secured, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Canary]:
    one = Canary(secured, tmp_path.name.replace("_", "-"))
    yield one
    secured.as_("bob", "run", "abort", one.run)
    one.driver.kill()


def promoted(state: RolloutState) -> RolloutState:
    return replace(state, is_promoted=True, phase=Phase.RUNNING, bake_until=None, serial=state.serial + 1)


def test_an_operator_without_the_right_promotes_nothing_and_one_with_it_does(canary: Canary) -> None:
    before = canary.state()

    refused = canary.order("eve", "promote")
    after = canary.state()
    control = canary.order("ann", "promote")

    canary.wait(lambda: canary.phase == "done", "the rollout to end")
    assert refused.code == 1
    assert (
        "eve may not apply on fact.role.web, so eve cannot promote this rollout; nothing has changed"
        in refused.err
    )
    assert (after.phase, after.is_promoted, after.orders) == (before.phase, False, before.orders)
    assert control.code == 0, control.err
    assert canary.nodes == list(NODES)
    assert "order: promote by ann" in canary.driver.so_far.err


@pytest.mark.parametrize("action", ["pause", "abort", "resume"])
def test_an_operator_without_the_right_cannot(canary: Canary, action: str) -> None:
    refused = canary.order("eve", action)

    assert refused.code == 1
    assert f"so eve cannot {action} this rollout; nothing has changed" in refused.err
    assert canary.state().phase is Phase.BAKING


def test_a_state_that_an_operator_wrote_without_the_right_is_restored(canary: Canary) -> None:
    canary.forge("eve", promoted)

    canary.wait(lambda: "which is restored" in canary.driver.so_far.err, "the driver to restore the state")
    canary.wait(lambda: canary.state().phase is Phase.BAKING, "the state to be restored")
    forged = canary.nodes
    canary.forge("ann", promoted)
    canary.wait(lambda: canary.phase == "done", "the rollout to end")

    assert "eve signed it, but may not apply on fact.role.web" in canary.driver.so_far.err
    assert (forged, canary.nodes) == (["web1"], list(NODES))


def test_an_order_that_an_operator_wrote_without_the_right_is_ignored_and_named(canary: Canary) -> None:
    canary.put_order("eve", OrderKind.PROMOTE)

    canary.wait(
        lambda: "promote by eve is ignored" in canary.driver.so_far.err, "the driver to see the order"
    )
    ignored, phase = canary.nodes, canary.state().phase
    shown = canary.secured.as_("ann", "run", "show", canary.run)
    [told] = canary.secured.as_("ann", "run", "show", canary.run, "--json").named("run")
    creds = str(canary.secured.directory / "ann.creds")
    watch = canary.secured.fleet.begin("--creds", creds, "run", "watch", canary.run)
    canary.wait(lambda: "promote by eve is ignored" in watch.so_far.err, "a watcher to see the order")
    canary.put_order("ann", OrderKind.PROMOTE)
    canary.wait(lambda: canary.phase == "done", "the rollout to end")
    [done] = canary.secured.as_("ann", "run", "show", canary.run, "--json").named("run")

    assert (ignored, phase) == (["web1"], Phase.BAKING)
    assert "promote by eve is ignored: eve may not apply on fact.role.web" in shown.out
    assert [(one["by"], one["ignored"]) for one in told["orders"]] == [
        ("eve", "eve may not apply on fact.role.web")
    ]
    assert {one["by"]: bool(one["ignored"]) for one in done["orders"]} == {"eve": True, "ann": False}
    assert canary.nodes == list(NODES)


def test_who_may_only_stop_the_run_aborts_the_rollout_of_it(canary: Canary) -> None:
    """sue may not write the state of rollouts; the driver obeys the order."""
    refused = canary.order("sue", "promote")
    aborted = canary.order("sue", "abort")

    canary.wait(lambda: canary.phase == "aborted", "the driver to obey")
    state = canary.state()
    assert (refused.code, aborted.code) == (1, 0), aborted.err
    assert (state.phase, state.by) == (Phase.ABORTED, "sue")
    assert canary.nodes == ["web1"]


def test_an_abort_holds_after_the_driver_died_whatever_state_is_put_back(canary: Canary) -> None:
    kept = canary.state()
    canary.driver.kill()
    aborted = canary.order("ann", "abort")

    canary.forge("eve", lambda state: replace(state, phase=Phase.RUNNING, lease=None, bake_until=None))
    by_eve = canary.order("bob", "resume")
    canary.forge("bob", lambda _: replace(kept, lease=None))
    by_replay = canary.order("bob", "resume")

    assert aborted.code == 0, aborted.err
    assert (by_eve.code, by_replay.code) == (1, 1)
    assert "this rollout is aborted and cannot be resumed" in by_replay.err
    assert canary.nodes == ["web1"]
    assert encode_token("ann") in canary.state().orders


@pytest.mark.parametrize("attack", ["replaced", "removed"])
def test_a_rollout_whose_driver_died_goes_on_from_the_copy_of_the_driver(canary: Canary, attack: str) -> None:
    """eve may not apply on role=web, and made it look as if all nodes had been asked, or removed the state."""
    canary.driver.kill()
    if attack == "replaced":
        canary.forge("eve", lambda state: replace(promoted(state), asked=2, phase=Phase.DONE, lease=None))
    else:
        canary.remove("eve")
    listed = canary.secured.as_("ann", "rollout", "list", "--json").named("rollout")

    by_eve = canary.order("eve", "promote")
    forged = canary.nodes
    control = canary.order("tester", "promote")

    phases = [one["phase"] for one in listed if one["run"] == canary.run]
    assert phases == (["paused"] if attack == "replaced" else [])
    assert (by_eve.code, forged) == (1, ["web1"])
    assert (control.code, canary.nodes) == (0, list(NODES)), control.err
    assert canary.state().phase is Phase.DONE


def test_a_driver_stores_a_state_again_that_another_operator_removed(canary: Canary) -> None:
    canary.remove("eve")

    canary.wait(lambda: "which is restored" in canary.driver.so_far.err, "the driver to see it")
    canary.wait(canary.has_state, "the driver to restore the state")
    removed = canary.nodes
    canary.order("ann", "promote")
    canary.wait(lambda: canary.phase == "done", "the rollout to end")

    assert (removed, canary.nodes) == (["web1"], list(NODES))


def test_a_resume_forgives_the_nodes_that_have_failed(secured: Secured) -> None:
    (secured.fleet.agents["web1"].files / "broken").touch()
    fails = ("exec", "check", {"command": f"sh -c 'test ! -e {FILES}/broken'"})
    path = secured.fleet.write("forgiven.yaml", manifest(fails, a_file("forgiven")))

    paused = secured.as_("bob", "apply", path, "-t", "role=web", "--batch", "2", "--yes", "--json")
    resumed = secured.as_("bob", "run", "resume", paused.run, "--json")

    assert (paused.code, paused.named("rollout")[-1]["phase"]) == (2, "paused"), paused.err
    assert (resumed.code, resumed.named("rollout")[-1]["phase"]) == (2, "done"), resumed.err
    assert resumed.states == {"web1": "failed", "web2": "changed"}
