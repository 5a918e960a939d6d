"""Actions of the dashboard over HTTP: who may act, from which page, and in whose name."""

from __future__ import annotations

import hashlib
import socket

import msgspec
import pytest

from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.subjects import request_subject
from ccm_agent.model.records.rollout_records import Phase, RolloutPlan, RolloutState, Wave
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.wire import MANIFEST_APPLY
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.dashboard.access import DashboardUser, Right
from ccm_ctl.dashboard.middleware import FORGERY_HEADER
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.starts import announce
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import History
from tests.contract.dashboard.test_server import Site, served
from tests.support.controller import NOW, fleet_on
from tests.support.signed_desk import Crew
from tests.support.signing import OWN

RUN = "2zFXabcdefghijklmnopqrstuvw"
TOKEN = "0123456789abcdef0123456789abcdef"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()
PATH = f"/api/runs/{RUN}/pause"


async def start_rollout(site: Site) -> RolloutStore:
    """A rollout of op to web1 and db1 that is running."""
    fleet = fleet_on(MemoryBus(site.broker, "op"))
    record = RunRecord(run=RUN, action="apply", name="site", time=NOW, nodes=2)
    await History(fleet).begin(record, ["web1", "db1"], [], OWN)
    plan = RolloutPlan(waves=(Wave(name="all", nodes=2, slots=1),))
    store = RolloutStore(fleet)
    await store.write(RolloutState(run=RUN, plan=plan, asked=1), 0, base=OWN)
    return store


async def phase_of(store: RolloutStore) -> tuple[str, str, str]:
    state, _ = await store.need(RUN)
    return str(state.phase), state.by, state.reason


def genuine(site: Site) -> dict[str, str]:
    """The headers that a page of the dashboard sends."""
    return {"Origin": site.address, FORGERY_HEADER: site.action}


async def test_a_rollout_is_paused_and_resumed_in_the_name_of_the_user() -> None:
    async with served(**{DIGEST: DashboardUser(name="ann", right=Right.ACT)}) as site:
        store = await start_rollout(site)
        await site.sign_in(TOKEN)
        status, _ = await site.ask("POST", PATH, headers=genuine(site), body={"why": "error rate"})
        paused = await phase_of(store)
        resumed, _ = await site.ask("POST", f"/api/runs/{RUN}/resume", headers=genuine(site), body={})
        state, _ = await store.need(RUN)

    assert (status, paused) == (200, ("paused", "ann (dashboard of op)", "error rate"))
    assert (resumed, state.phase, state.by, state.is_detached) == (
        200,
        Phase.RUNNING,
        "ann (dashboard of op)",
        True,
    )


@pytest.mark.parametrize("names", [[], ["anna", "ben"]])
async def test_a_rollout_names_the_servers_that_will_drive_it(names: list[str]) -> None:
    async with served(**{DIGEST: DashboardUser(name="ann", right=Right.ACT)}) as site:
        await start_rollout(site)
        for name in names:
            server = msgspec.structs.replace(fleet_on(MemoryBus(site.broker, name)), operator=name)
            await announce(server)
        await site.sign_in(TOKEN)
        _, said = await site.ask("GET", f"/api/runs/{RUN}")

    assert said["rollout"]["servers"] == [f"{name} on {socket.gethostname()}" for name in names]


async def test_a_rollout_continues_during_another_one_only_if_the_user_agrees() -> None:
    other = f"{RUN[:-1]}x"
    async with served() as site:
        store = await start_rollout(site)
        record = RunRecord(run=other, action="exec", name="other", requester="op", time=NOW, nodes=1)
        await History(fleet_on(MemoryBus(site.broker, "op"))).begin(record, ["db1"], [], OWN)
        plan = RolloutPlan(waves=(Wave(name="all", nodes=1, slots=1),))
        await store.write(RolloutState(run=other, plan=plan, is_detached=True), 0, base=OWN)
        await site.sign_in()
        await site.ask("POST", PATH, headers=genuine(site), body={})
        path = f"/api/runs/{RUN}/resume"

        refused, said = await site.ask("POST", path, headers=genuine(site), body={})
        paused = await phase_of(store)
        agreed, _ = await site.ask("POST", path, headers=genuine(site), body={"alongside": True})
        running = await phase_of(store)

    assert (refused, said["code"], paused[0]) == (409, "rollout.concurrent", "paused")
    assert said["error"].startswith(
        f"db1: another rollout, run {other[:8]} (exec other by op), is in progress on this node"
    )
    assert (agreed, running[0]) == (200, "running")


async def test_a_rollout_is_aborted() -> None:
    async with served() as site:
        store = await start_rollout(site)
        await site.sign_in()
        status, said = await site.ask(
            "POST", f"/api/runs/{RUN}/abort", headers=genuine(site), body={"why": "wrong"}
        )
        again, _ = await site.ask("POST", f"/api/runs/{RUN}/abort", headers=genuine(site), body={})
        state = await phase_of(store)

    assert (status, said, again) == (200, {"phase": "aborted"}, 409)
    assert state == ("aborted", "op (dashboard)", "wrong")


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"Origin": "OWN"}, id="no token of the session"),
        pytest.param({FORGERY_HEADER: "MINE"}, id="no origin"),
        pytest.param({"Origin": "http://evil.example", FORGERY_HEADER: "MINE"}, id="another origin"),
        pytest.param({"Origin": "OWN", FORGERY_HEADER: "OTHER"}, id="the token of another session"),
        pytest.param(
            {"Origin": "OWN", FORGERY_HEADER: "MINE", "Sec-Fetch-Site": "cross-site"}, id="another site"
        ),
    ],
)
async def test_a_forged_action_does_nothing(headers: dict[str, str]) -> None:
    async with served() as site:
        store = await start_rollout(site)
        _, other = await site.sign_in()
        await site.sign_in()
        words = {"OWN": site.address, "MINE": site.action, "OTHER": other["action"]}
        sent = {name: words.get(value, value) for name, value in headers.items()}
        status, _ = await site.ask("POST", PATH, headers=sent, body={})

        assert (status, (await phase_of(store))[0]) == (403, "running")


async def test_a_user_who_may_only_look_does_nothing() -> None:
    async with served(**{DIGEST: DashboardUser(name="bob", right=Right.READ)}) as site:
        store = await start_rollout(site)
        await site.sign_in(TOKEN)
        status, said = await site.ask("POST", PATH, headers=genuine(site), body={})

        assert (status, said["error"]) == (
            403,
            "this user can only view; actions require --allow-actions and the right `act`",
        )
        assert (await phase_of(store))[0] == "running"


async def test_an_unknown_action_is_refused() -> None:
    async with served() as site:
        await start_rollout(site)
        await site.sign_in()
        status, _ = await site.ask("POST", f"/api/runs/{RUN}/delete", headers=genuine(site), body={})

    assert status == 400


@pytest.mark.parametrize(
    ("kind", "status", "phase"),
    [("anna", 200, "paused"), ("a signer without the right", 409, "running")],
)
async def test_the_dashboard_of_an_operator_without_the_right_orders_nothing(
    kind: str, status: int, phase: str
) -> None:
    crew = Crew()

    def fleet_of(broker: MemoryBroker, name: str, signatory: Signatory) -> Fleet:
        return fleet_on(MemoryBus(broker, name, signatory), crew.trust)

    def adapt(fleet: Fleet) -> Fleet:
        broker = fleet.nodes._broker  # type: ignore[attr-defined]
        return fleet_of(broker, "anna" if kind == "anna" else "lou", crew.of(kind))

    async with served(adapt=adapt) as site:
        anna = fleet_of(site.broker, "anna", crew.of("anna"))
        subject = request_subject(MANIFEST_APPLY, "fact.role.web")
        request = {"protocol": MANIFEST_APPLY, "name": "site"}
        record = RunRecord(
            run=RUN, action="apply", name="site", time=NOW, nodes=1, subjects=[subject], request=request
        )
        await History(anna).begin(record, ["web1"], [], OWN)
        plan = RolloutPlan(waves=(Wave(name="all", nodes=1, slots=1),))
        store = RolloutStore(anna)
        await store.write(RolloutState(run=RUN, plan=plan, asked=1), 0, base=OWN)
        await site.sign_in()
        answered, said = await site.ask("POST", PATH, headers=genuine(site), body={})

        assert (answered, (await phase_of(store))[0]) == (status, phase), said
        if kind != "anna":
            assert "lou may not apply on fact.role.web, so lou cannot pause this rollout" in said["error"]
