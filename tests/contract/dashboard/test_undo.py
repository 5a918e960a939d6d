"""The undo of a run over HTTP: only after its preview, only where it was previewed, and only with the right to undo."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.records.undo import CHANGED_SINCE
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest
from ccm_agent.testing.memory_bus import MemoryBus
from ccm_ctl.dashboard import undo_pages
from ccm_ctl.dashboard.access import DashboardUser, Right
from ccm_ctl.dashboard.middleware import FORGERY_HEADER
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.follow import ignore_news
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.run_request import prepare_own
from ccm_ctl.fleet.runs.run_session import follow_run, new_run
from ccm_ctl.render.resource_diffs import group_diffs
from tests.contract.dashboard.test_server import Site, served
from tests.support.authorship import Root
from tests.support.controller import NOW, FakeNode, event, fleet_on, planned_change, reached
from tests.support.signing import Keyring

TOKEN = "0123456789abcdef0123456789abcdef"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()
ANN = DashboardUser(name="ann", right=Right.ACT)
UNKNOWN = "2zFXabcdefghijklmnopqrstuvw"


def genuine(site: Site) -> dict[str, str]:
    """The headers that a page of the dashboard sends."""
    return {"Origin": site.address, FORGERY_HEADER: site.action}


async def add_nodes(site: Site, does: list[TransactionEvent], root: Root | None = None) -> list[FakeNode]:
    """Two nodes with agents that can undo runs; with a root key they sign."""
    nodes = [
        FakeNode(name, {"role": "app"}, does, record={"undo": True}, root=root) for name in ("app1", "app2")
    ]
    for node in nodes:
        await node.begin(site.broker)
    return nodes


async def apply(site: Site, nodes: list[FakeNode], by: Fleet | None = None) -> str:
    """Apply a manifest on the nodes, until they have ended; the run."""
    fleet = by or fleet_on(MemoryBus(site.broker, "op"))
    _, resolved = await resolve(fleet, TargetSpec(targets=("role=app",)))
    request = ManifestRequest(protocol=MANIFEST_APPLY, name="motd", manifest="{}", digest="0" * 64)
    launch = prepare_own(fleet, request, resolved, "apply", "motd")
    run = new_run(fleet, launch)
    await follow_run(fleet, launch, run, None, on_begin=lambda: None, on_turn=ignore_news)
    await History(fleet).finish(run)
    for node in nodes:
        node.heard.clear()
    return run.run


async def post(site: Site, path: str, **body: Any) -> tuple[int, Any]:
    return await site.ask("POST", f"/api/runs/{path}", headers=genuine(site), body=body)


async def preview(site: Site, run: str, **body: Any) -> tuple[str, dict[str, Any]]:
    """Ask for a preview, and wait for its end; its run, and what it found."""
    status, plan = await post(site, f"{run}/undo/plan", **body)
    assert status == 200, plan
    return plan["run"], await read_until(site, run, plan["run"], lambda said: bool(said["is_done"]))


async def read_until(
    site: Site, run: str, plan: str, is_wanted: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Read a preview until it says what is wanted."""
    async with asyncio.timeout(10):
        while True:
            status, said = await site.ask("GET", f"/api/runs/{run}/undo/{plan}")
            assert status == 200, said
            if is_wanted(said):
                return said


def requests(nodes: list[FakeNode]) -> list[tuple[str, str, str]]:
    """What the nodes were asked: name, plan or apply, and the run to undo."""
    return [(node.name, one["protocol"].split(".")[-2], one["undo"]) for node in nodes for one in node.heard]


async def test_an_undo_starts_after_its_preview_and_names_the_user() -> None:
    left = event(
        "/etc/issue", 3, changed=False, skipped=True, code=CHANGED_SINCE, error=["changed since the run"]
    )
    async with served(**{DIGEST: ANN}) as site:
        nodes = await add_nodes(site, [planned_change("/etc/motd", 2), left])
        run = await apply(site, nodes)
        await site.sign_in(TOKEN)
        _, page = await site.ask("GET", f"/api/runs/{run}")
        plan, found = await preview(site, run)
        asked = requests(nodes)
        status, said = await post(site, f"{run}/undo", plan=plan)
        async with asyncio.timeout(10):
            await reached(lambda: len(requests(nodes)) == 4)
        _, undo = await site.ask("GET", f"/api/runs/{said['run']}")

    assert page["undoable"] == ["app1", "app2"]
    assert asked == [("app1", "plan", run), ("app2", "plan", run)]
    assert (found["would_change"], found["problems"]) == (True, [])
    assert found["not_undone"] == [
        {"resource": "file#/etc/issue", "why": "changed since the run", "nodes": ["app1", "app2"]}
    ]
    assert [(one["resource"], one["nodes"]) for one in found["without_diff"]] == [
        ("file#/etc/motd", ["app1", "app2"])
    ]
    assert (status, said["nodes"]) == (200, 2)
    assert sorted(requests(nodes)[1::2]) == [("app1", "apply", run), ("app2", "apply", run)]
    assert (undo["action"], undo["undo"], undo["user"]) == ("undo", run, "ann")


async def test_a_preview_waits_for_changes_that_arrive_after_the_results_of_the_nodes() -> None:
    late: list[StoredEvent] = []

    def hold_second(events: list[StoredEvent]) -> list[StoredEvent]:
        late.append(events[1])
        return [events[0], *events[2:]]

    async with served(**{DIGEST: ANN}) as site:
        nodes = await add_nodes(site, [planned_change("/etc/motd", 2)])
        run = await apply(site, nodes)
        for node in nodes:
            node.delivered = hold_second
        await site.sign_in(TOKEN)
        _, plan = await post(site, f"{run}/undo/plan")
        before = await read_until(site, run, plan["run"], lambda said: said["counts"] == {"changed": 2})
        refused, _ = await post(site, f"{run}/undo", plan=plan["run"])
        for one in late:
            await MemoryBus(site.broker, "op").events.publish(one.subject, new_id(), one.body, {})
        after = await read_until(site, run, plan["run"], lambda said: bool(said["is_done"]))

    assert (before["is_done"], before["without_diff"], refused) == (False, [], 409)
    assert [one["nodes"] for one in after["without_diff"]] == [["app1", "app2"]]


async def test_a_preview_is_not_done_if_changes_arrive_while_its_diffs_are_grouped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late: list[StoredEvent] = []
    grouping, may_go_on = threading.Event(), threading.Event()

    def hold_changes(events: list[StoredEvent]) -> list[StoredEvent]:
        late.extend(events[1:])
        return events[:1]

    def group_slowly(events: list[Any]) -> Any:
        grouping.set()
        may_go_on.wait(10)
        return group_diffs(events)

    async with served(**{DIGEST: ANN}) as site:
        nodes = await add_nodes(site, [planned_change("/etc/motd", 2)])
        run = await apply(site, nodes)
        for node in nodes:
            node.delivered = hold_changes
        await site.sign_in(TOKEN)
        monkeypatch.setattr(undo_pages, "group_diffs", group_slowly)
        _, plan = await post(site, f"{run}/undo/plan")
        asking = asyncio.create_task(site.ask("GET", f"/api/runs/{run}/undo/{plan['run']}"))
        await asyncio.to_thread(grouping.wait, 10)
        for one in late:
            await MemoryBus(site.broker, "op").events.publish(one.subject, new_id(), one.body, {})
        await asyncio.sleep(0.5)  # the server follows the run to its end
        may_go_on.set()
        _, before = await asking
        after = await read_until(site, run, plan["run"], lambda said: bool(said["is_done"]))

    assert (len(late), before["is_done"], before["without_diff"]) == (4, False, [])
    assert before["counts"] == {"changed": 2}, "the run ended meanwhile"
    assert [one["nodes"] for one in after["without_diff"]] == [["app1", "app2"]]


async def test_the_message_of_an_undo_is_in_its_request_and_record() -> None:
    async with served() as site:
        nodes = await add_nodes(site, [event("/etc/motd", 2)])
        run = await apply(site, nodes)
        await site.sign_in()
        plan, _ = await preview(site, run)
        too_long, refused = await post(site, f"{run}/undo", plan=plan, message="m" * 1001)
        previewed = [one.get("message") for node in nodes for one in node.heard]
        status, said = await post(site, f"{run}/undo", plan=plan, message=" the wrong banner ")
        async with asyncio.timeout(10):
            await reached(lambda: len(requests(nodes)) == 4)
        _, undo = await site.ask("GET", f"/api/runs/{said['run']}")

    assert (too_long, refused["error"]) == (400, "message: 1001 characters; at most 1000 are allowed")
    assert previewed == [None, None]
    assert (status, undo["message"]) == (200, "the wrong banner")
    assert [one.get("message") for node in nodes for one in node.heard[1:]] == ["the wrong banner"] * 2


async def test_an_undo_of_one_node_goes_to_this_node_alone() -> None:
    async with served() as site:
        nodes = await add_nodes(site, [event("/etc/motd", 2)])
        run = await apply(site, nodes)
        await site.sign_in()
        plan, _ = await preview(site, run, node="app2")
        more, refused = await post(site, f"{run}/undo", plan=plan)
        status, _ = await post(site, f"{run}/undo", plan=plan, node="app2")
        elsewhere, _ = await post(site, f"{run}/undo/plan", node="app2,role=app")

    assert (more, refused["error"]) == (
        409,
        f"{run[:8]}: the preview was for fewer nodes than the undo; make a new preview",
    )
    assert (status, elsewhere) == (200, 400)
    assert {one[0] for one in requests(nodes)} == {"app2"}


@pytest.mark.parametrize(
    ("plan", "status"),
    [
        pytest.param("", 400, id="no preview"),
        pytest.param("RUN", 400, id="the run itself"),
        pytest.param(UNKNOWN, 409, id="an unknown run"),
        pytest.param("OTHER", 400, id="the preview of another run"),
        pytest.param("../x", 400, id="not an id"),
    ],
)
async def test_without_its_own_preview_nothing_is_undone(plan: str, status: int) -> None:
    async with served() as site:
        nodes = await add_nodes(site, [event("/etc/motd", 2)])
        run, other = await apply(site, nodes), await apply(site, nodes)
        await site.sign_in()
        previewed, _ = await preview(site, other)
        ids = {"RUN": run, "OTHER": previewed}
        answered, _ = await post(site, f"{run}/undo", plan=ids.get(plan, plan))

    assert answered == status
    assert requests(nodes) == [("app1", "plan", other), ("app2", "plan", other)]


async def test_where_the_preview_found_nothing_nothing_is_undone() -> None:
    async with served() as site:
        nodes = await add_nodes(site, [event("/etc/motd", 2)])
        run = await apply(site, nodes)
        for node in nodes:
            node.does = ()
        await site.sign_in()
        plan, found = await preview(site, run)
        status, said = await post(site, f"{run}/undo", plan=plan)

    assert not found["would_change"]
    assert (status, said["error"]) == (409, f"{run[:8]}: there is nothing to undo on these nodes now")
    assert [one[1] for one in requests(nodes)] == ["plan", "plan"]


async def test_a_user_who_may_only_look_starts_neither_a_preview_nor_an_undo() -> None:
    async with served(**{DIGEST: DashboardUser(name="bob", right=Right.READ)}) as site:
        nodes = await add_nodes(site, [event("/etc/motd", 2)])
        run = await apply(site, nodes)
        await site.sign_in(TOKEN)
        answers = [await post(site, f"{run}/{path}") for path in ("undo/plan", "undo")]
        page, _ = await site.ask("GET", f"/api/runs/{run}")

    sentence = "this user can only view; actions require --allow-actions and the right `act`"
    assert [(status, said["error"]) for status, said in answers] == [(403, sentence)] * 2
    assert (page, requests(nodes)) == (200, [])


@pytest.mark.parametrize(
    ("right", "status"),
    [pytest.param((">",), 200, id="may apply"), pytest.param((), 403, id="may only plan")],
)
async def test_an_operator_without_the_right_to_apply_learns_it_before_the_preview(
    right: tuple[str, ...], status: int
) -> None:
    keys, root = Keyring(lambda: int(NOW.timestamp() * 1000)), Root()
    root.key = keys.root
    anna, op = keys.operator("anna", apply=(">",)), keys.operator("op", plan=(">",), apply=right)
    trust = keys.trust()
    async with served(adapt=lambda fleet: replace(fleet, trust=trust, signatory=op)) as site:
        nodes = await add_nodes(site, [event("/etc/motd", 2)], root)
        run = await apply(site, nodes, fleet_on(MemoryBus(site.broker, "anna", anna), trust))
        await site.sign_in()
        answered, said = await post(site, f"{run}/undo/plan")

    assert answered == status, said
    if status == 403:
        assert said["error"].startswith(f"undo of {run[:8]}: op may not send this request to ")
        assert requests(nodes) == []


async def test_a_run_that_has_not_ended_is_not_undone() -> None:
    async with served() as site:
        nodes = await add_nodes(site, [event("/etc/motd", 2)])
        fleet = fleet_on(MemoryBus(site.broker, "op"))
        _, resolved = await resolve(fleet, TargetSpec(targets=("role=app",)))
        request = ManifestRequest(protocol=MANIFEST_APPLY, name="motd", manifest="{}", digest="0" * 64)
        launch = prepare_own(fleet, request, resolved, "apply", "motd")
        await History(fleet).begin(launch.record, resolved.nodes, [], launch.base)
        await site.sign_in()
        run = launch.record.run
        status, said = await post(site, f"{run}/undo/plan")
        _, page = await site.ask("GET", f"/api/runs/{run}")

    assert (status, requests(nodes), page["undoable"]) == (409, [], [])
    assert f"{run[:8]}: app1, app2 have not ended; wait with `ccmctl run watch {run[:8]}`" in said["error"]
