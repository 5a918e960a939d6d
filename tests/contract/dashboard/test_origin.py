"""Where a line about a resource comes from, over HTTP: its run, signatures, manifest, data and diff."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START, SessionStart
from ccm_agent.testing.memory_bus import MemoryBus
from tests.contract.dashboard.test_server import RUN, served
from tests.contract.dashboard.test_undo import add_nodes, apply
from tests.support.authorship import Root
from tests.support.controller import NOW, event, fleet_on
from tests.support.signing import Keyring

ORIGIN = "origin?resource=file%23/etc/motd"


async def test_signatures_of_the_request_and_of_the_node_are_named() -> None:
    keys, root = Keyring(lambda: int(NOW.timestamp() * 1000)), Root()
    root.key = keys.root
    anna = keys.operator("anna", apply=(">",))
    trust = keys.trust()
    async with served(adapt=lambda fleet: replace(fleet, trust=trust)) as site:
        nodes = await add_nodes(site, [event("/etc/motd", 2), event("/etc/issue", 3)], root)
        run = await apply(site, nodes, fleet_on(MemoryBus(site.broker, "anna", anna), trust))
        unsigned = await apply(site, nodes)
        await site.sign_in()
        status, said = await site.ask("GET", f"/api/runs/{run}/nodes/app1/{ORIGIN}")
        _, other = await site.ask("GET", f"/api/runs/{unsigned}/nodes/app1/{ORIGIN}")

    assert (status, said["signer"], said["unverified"], said["verdict"]) == (200, "anna", "", "verified")
    assert (said["requester"], said["cause"], said["manifest"]) == ("anna", "request", "motd")
    assert [one["resource"] for one in said["events"]] == ["file#/etc/motd"]
    assert (other["signer"], other["unverified"]) == ("", "it is not signed")


async def test_without_signatures_nothing_is_called_verified() -> None:
    async with served() as site:
        nodes = await add_nodes(site, [event("/etc/motd", 2)])
        run = await apply(site, nodes)
        await site.sign_in()
        _, said = await site.ask("GET", f"/api/runs/{run}/nodes/app1/{ORIGIN}")

    assert (said["signer"], said["unverified"], said["verdict"], said["is_on_record"]) == ("", "", None, True)


async def test_manifest_and_data_are_those_of_the_session_without_passwords() -> None:
    start = SessionStart(
        protocol=SESSION_START,
        event_id=new_id(),
        timestamp=NOW,
        node="web1",
        run=RUN,
        number=1,
        manifest="site",
        digest="ab" * 32,
        data_revisions={"kv://CCM_DATA/common": 7, "https://me:hidden@example.net/x": 1},
        cause="interval",
        origin="web",
    )
    async with served() as site:
        bus = MemoryBus(site.broker, "web1")
        subject = event_subject(SESSION_START, "web1", RUN)
        await bus.events.publish(subject, new_id(), msgspec.json.encode(start))
        await site.publish(2)
        await site.sign_in()
        status, said = await site.ask("GET", f"/api/runs/{RUN}/nodes/web1/origin?resource=file%23/etc/2")

    assert (status, said["cause"], said["origin"], said["is_on_record"]) == (200, "assignment", "web", False)
    assert (said["manifest"], said["digest"]) == ("site", "ab" * 32)
    assert said["data"]["kv://CCM_DATA/common"] == 7
    assert "hidden" not in str(said)
    assert [one["resource"] for one in said["events"]] == ["file#/etc/2"]


async def test_a_node_without_events_in_the_run_is_refused() -> None:
    async with served() as site:
        nodes = await add_nodes(site, [event("/etc/motd", 2)])
        run = await apply(site, nodes)
        await site.sign_in()
        known, _ = await site.ask("GET", f"/api/runs/{run}/nodes/app2/{ORIGIN}")
        absent, said = await site.ask("GET", f"/api/runs/{run}/nodes/web1/{ORIGIN}")
        wrong, _ = await site.ask("GET", f"/api/runs/{run}/nodes/A*/{ORIGIN}")

    assert (known, absent, wrong) == (200, 404, 400)
    assert said["error"] == f"{run[:8]}: the stream no longer has events of this node"
