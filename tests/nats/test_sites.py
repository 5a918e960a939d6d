"""A site behind a leaf node: what works while its line to the center is cut, and what the streams hold when it is healed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.access.accounts import STREAMS
from ccm_agent.bus.access.sites import ASKED, down, up
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.messages import Message
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.events import EVENTS_STREAM, NatsEvents
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.layout import ASSIGNMENTS, DATA, EVENT_BYTES, NODES
from ccm_agent.bus.streams import call, read_all, store
from ccm_agent.bus.subjects import event_subject, key_subject
from ccm_agent.model.errors import BusError, ProtocolError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import TRANSACTION_EVENT
from ccm_agent.model.wire import NodeRecord, Presence
from ccm_agent.testing.nats_server import NatsServer
from ccm_ctl.fleet.doctor.stream_checks import COPIES
from ccm_ctl.fleet.keys.keys import Keys
from ccm_ctl.fleet.keys.system_account import ask_servers, system_connection
from tests.support.fleet import Done, a_file, manifest
from tests.support.nats_server import WAIT_S, eventually
from tests.support.secured import Secured, secured_broker
from tests.support.sites import Hub, Line, Site, hub_fleet, seed, site_fleet, write_credentials

pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]

JOINED_S = 200.0
"""The center's server tries the source again after 10 s, 20 s and 40 s when it was restarted."""

DOWN = down("site1")

PAUSE_S = 0.02
"""Between two events of a node."""

CONSUMER = {"deliver_policy": "all", "ack_policy": "none"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_fleet(tmp_path) as one:
        yield one


def assigned(site: Site, word: str) -> None:
    """At the center, assign a file whose content is in Hiera data."""
    data = site.fleet.write("word.yaml", f"data: {{word: {word}}}\n")
    site.fleet.write("web/manifest.yaml", manifest(a_file("word", "{{ lookup('data.word') }}")))
    put = site.at_center("data", "put", "word", data)
    folder, pinned = str(site.directory / "web"), ("--data", "kv://CCM_DATA/word")
    done = site.at_center("assign", "web", folder, "--targets", "role=web", *pinned, "--yes")
    assert (put.code, done.code) == (0, 0), put.err + done.err


def test_a_site_converges_applies_and_reports_while_the_line_is_cut(site: Site) -> None:
    fleet = site.fleet
    creds = site.give("node", "web1")
    fleet.add("web1", nats={"url": site.broker.url, "creds": str(creds)})
    file = fleet.agents["web1"].files / "word"
    assert site.at_center("facts", "set", "web1", "role=web", "--new").code == 0
    assigned(site, "one")
    fleet.wait_for(lambda: file.exists() and file.read_text() == "one", "the assignment to arrive")

    site.line.cut()
    file.unlink()
    converged = fleet.ctl("run-now", "-t", "node=web1", "--yes")
    path = fleet.write("site.yaml", manifest(a_file("motd", "hello")))
    applied = fleet.ctl("apply", path, "--targets", "role=web", "--yes", "--json")
    nodes = fleet.ctl("nodes", "--json").named("node")
    fleet.wait_for(lambda: file.exists(), "the node to converge")
    assigned(site, "two")
    word = file.read_text()
    site.line.heal()

    fleet.wait_for(lambda: file.read_text() == "two", "the newer assignment to arrive")
    assert word == "one"
    assert converged.code == 0, converged.err
    assert (applied.code, applied.states) == (0, {"web1": "changed"}), applied.err
    assert [(one["node"], one["state"]) for one in nodes] == [("web1", "present")]
    run = applied.run
    fleet.wait_for(
        lambda: run in site.at_center("events", "--node", "web1", "--no-follow", "--json").out, run
    )
    fleet.agents["web1"].stop()
    asyncio.run(same_events(site))
    verified = site.at_center("events", "--verify", "--node", "web1")
    assert verified.code == 0, verified.out + verified.err


async def same_events(site: Site) -> None:
    """The center holds the events of the site, in the same order."""
    async with (
        site.admin(site.center) as center,
        site.admin(site.broker) as broker,
        asyncio.timeout(JOINED_S),
    ):
        there = await events_in(broker)
        while True:
            if await events_in(center) == there:
                return
            await asyncio.sleep(0.2)


async def events_in(connection: Connection) -> list[tuple[str, bytes, str]]:
    return [(one.subject, one.body, one.chain) for one in await NatsEvents(connection).read(">")]


def test_a_schedule_of_a_site_runs_while_the_line_is_cut(site: Site) -> None:
    fleet = site.fleet
    fleet.add("web1", nats={"url": site.broker.url, "creds": str(site.give("node", "web1"))})
    file = fleet.agents["web1"].files / "often"
    path = fleet.write("often.yaml", manifest(a_file("often")))

    site.line.cut()
    added = fleet.ctl("schedule", "add", "often", path, "--every", "1s", "-t", "node=web1", "--yes")

    assert (added.code, added.err) == (0, "")
    fleet.wait_for(lambda: file.exists(), "the schedule to run")


def test_each_step_can_be_repeated_and_another_broker_is_refused(site: Site) -> None:
    before = (site.keys / "site-site1" / "leaf.creds").read_text()

    at_center, at_site = site.init(site.center, "--json"), site.init(site.broker, "--json")
    elsewhere = site.fleet.ctl("init", "--site", "site2", environ={"NATS_URL": site.broker.url})

    for done in (at_center, at_site):
        assert done.code == 0, done.err
        assert {one["action"] for one in done.named("made")} == {"unchanged"}
    assert elsewhere.code != 0
    assert "--leaf" in elsewhere.err
    assert (site.keys / "site-site1" / "leaf.creds").read_text() == before
    assert not (site.keys / "site-site2.seed").exists()


@pytest.mark.parametrize("place", ["center", "site1"])
def test_a_revocation_takes_effect_on_a_broker_and_keeps_the_line(site: Site, place: str) -> None:
    fleet, server = site.fleet, site.center if place == "center" else site.broker
    at_center = {"NATS_URL": site.center.url}
    fleet.environ |= at_center
    given = {"eve": site.give("operator", "eve", "--admin"), "web9": site.give("node", "web9")}
    at = {"NATS_URL": server.url}

    before = [asyncio.run(accepts(site, server, *one)) for one in given.items()]
    revoked = [
        fleet.ctl(kind, "revoke", name, "--json", environ=at)
        for kind, name in (("operator", "eve"), ("node", "web9"))
    ]
    after = [asyncio.run(accepts(site, server, *one)) for one in given.items()]
    path = fleet.write("word.yaml", "data: {word: one}\n")
    put = fleet.ctl("data", "put", "word", path, environ=at_center)

    assert [one.named("made")[0]["servers"] for one in revoked] == [[place], [place]]
    assert (before, after) == ([True, True], [False, False])
    assert put.code == 0, put.err
    arrives(site, "word")


async def accepts(site: Site, server: NatsServer, name: str, creds: Path) -> bool:
    try:
        async with site.user(server, name, creds):
            return True
    except BusError:
        return False


def arrives(site: Site, word: str) -> None:
    """A document of the center reaches the site."""
    deadline = time.monotonic() + JOINED_S
    while word not in site.fleet.ctl("data", "list", environ={"NATS_URL": site.broker.url}).out:
        assert time.monotonic() < deadline, "the document did not reach the site"
        time.sleep(0.2)


def test_a_site_reconnects_while_the_center_still_holds_its_old_connection(site: Site) -> None:
    other = Line(site.line.target)
    site.line.freeze()
    try:
        other.heal()
        site.broker.kill()
        text = site.broker.settings.extra.replace(f":{site.line.port}", f":{other.port}")
        site.broker.settings = msgspec.structs.replace(site.broker.settings, extra=text)
        site.broker.start()
        path = site.fleet.write("word.yaml", "data: {word: one}\n")
        assert site.at_center("data", "put", "word", path).code == 0
        arrives(site, "word")
    finally:
        site.line.thaw()
        other.close()


@pytest.mark.parametrize(
    ("domain", "named"),
    [
        pytest.param("", "no JetStream domain", id="no domain"),
        pytest.param("oslo", "the JetStream domain oslo", id="the domain of another site"),
        pytest.param("center", "js_ack_fc_v2", id="no flag"),
    ],
)
def test_a_broker_that_lacks_a_setting_for_sites_is_refused_by_name(
    tmp_path: Path, domain: str, named: str
) -> None:
    with secured_broker(tmp_path, Secured) as one:
        assert one.fleet.ctl("init", "--site", "paris", "--leaf", "hub1").code == 0
        one.fleet.broker.stop()
        text = (one.keys / "nats-security.conf").read_text()
        one.fleet.broker.settings = msgspec.structs.replace(
            one.fleet.broker.settings, extra=text, domain=domain
        )
        one.fleet.broker.start()

        done = one.fleet.ctl("init", "--site", "paris")

    assert done.code != 0
    assert named in done.err


def test_two_sites_behind_a_hub_of_three_work_side_by_side_and_are_apart(tmp_path: Path) -> None:
    with hub_fleet(tmp_path, ["paris", "oslo"]) as hub:
        for node in ("web1", "web2"):
            hub.give("node", node)
        assert (
            hub.fleet.ctl("data", "put", "word", hub.fleet.write("w.yaml", "data: {word: one}\n")).code == 0
        )
        asyncio.run(meet(hub))
        asyncio.run(stay_apart(hub))


async def meet(hub: Hub) -> None:
    """Each site has the data of the center, and the center the events of both."""
    for node, place in (("web1", "paris"), ("web2", "oslo")):
        async with hub.user(place, node, hub.directory / f"{node}.creds") as one:
            subject = event_subject(TRANSACTION_EVENT, node, new_id())
            await eventually(lambda one=one, s=subject: NatsEvents(one).publish(s, new_id(), b"{}"))
    async with hub.user("center", "tester", hub.keys / "tester.creds") as center, asyncio.timeout(JOINED_S):
        while True:
            if {one.subject.rpartition(".")[2] for one in await NatsEvents(center).read(">")} == {
                "web1",
                "web2",
            }:
                break
            await asyncio.sleep(0.2)
    for place in ("paris", "oslo"):
        async with hub.user(place, "tester", hub.keys / "tester.creds") as one, asyncio.timeout(JOINED_S):
            while True:
                # a new mirror does not answer before it has the entries
                with contextlib.suppress(BusError):
                    if await NatsKeyValue(one, DATA).entries():
                        break
                await asyncio.sleep(0.2)


async def stay_apart(hub: Hub) -> None:
    """The holder of the broker of paris has a stream of its own delivered to paris, and nothing to oslo or from its stream."""
    evil = hub.directory / "evil.creds"
    write_credentials(evil, seed(hub.keys, "account"), "evil", "STANDARD", {})
    heard: dict[str, list[Message]] = {"paris": [], "oslo": []}
    async with (
        hub.user("center", "all", evil) as center,
        hub.user("paris", "evil", evil, down("paris")) as paris,
        hub.user("oslo", "evil", evil, down("oslo")) as oslo,
    ):
        before = await last_sequences(center), await last_sequences(oslo)
        names = [one["name"] for one in await consumers(center)]
        await paris.subscribe([f"{down('paris')}.heard", f"{down('oslo')}.heard"], heard["paris"].append)
        await oslo.subscribe([f"{down('oslo')}.heard"], heard["oslo"].append)
        for site in ("paris", "oslo"):
            question = {
                "stream_name": f"KV_{DATA}",
                "config": {**CONSUMER, "deliver_subject": f"{down(site)}.heard"},
            }
            create = f"$JS.center.API.CONSUMER.CREATE.KV_{DATA}"
            body = msgspec.json.encode(question)
            await eventually(lambda c=create, b=body: paris.request(c, b))
        for subject in (
            f"$JS.oslo.API.CONSUMER.CREATE.{EVENTS_STREAM}",
            f"$JS.oslo.API.STREAM.PURGE.{EVENTS_STREAM}",
            *(f"$JS.center.API.CONSUMER.DELETE.KV_{DATA}.{name}" for name in names),
        ):
            question = {
                "stream_name": EVENTS_STREAM,
                "config": {**CONSUMER, "deliver_subject": f"{up('paris')}.x"},
            }
            with contextlib.suppress(BusError):
                answer = await paris.request(subject, msgspec.json.encode(question), within_s=1)
                assert b"error" in answer.body
        async with asyncio.timeout(WAIT_S):
            while True:
                if heard["paris"]:
                    break
                await asyncio.sleep(0.05)
        after = await last_sequences(center), await last_sequences(oslo)
        left = {one["name"] for one in await consumers(center)}
        until_now = list(heard["oslo"])
        await eventually(lambda: oslo.request(create, body))
        async with asyncio.timeout(WAIT_S):
            while True:
                if heard["oslo"]:
                    break
                await asyncio.sleep(0.05)
    assert [one.subject for one in heard["paris"]] == ["$KV.CCM_DATA.word"], "the control"
    assert (until_now, [one.subject for one in heard["oslo"]]) == ([], ["$KV.CCM_DATA.word"])
    assert after == before
    assert set(names) <= left


async def consumers(connection: Connection) -> list[dict[str, Any]]:
    found = await call(connection, f"CONSUMER.LIST.KV_{DATA}", {"offset": 0})
    return list(found["consumers"] or [])


class Load:
    """Nodes of the site that publish events, and an operator at the center who writes, without a pause."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        self.is_over = False

    async def publish(self, connection: Connection, node: str) -> None:
        events, number = NatsEvents(connection), 0
        while not self.is_over:
            number += 1
            subject, message_id = event_subject(TRANSACTION_EVENT, node, new_id()), new_id()
            body = json.dumps({"number": number, "text": "x" * 400}).encode()
            await eventually(lambda s=subject, m=message_id, b=body: events.publish(s, m, b))
            self.sent[node] = number
            await asyncio.sleep(PAUSE_S)

    async def write(self, connection: Connection) -> None:
        bucket, number = NatsKeyValue(connection, ASSIGNMENTS), 0
        while not self.is_over:
            number += 1
            with contextlib.suppress(BusError):
                await bucket.put(f"node.web{number % 7}.a", json.dumps({"number": number}).encode())
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def loaded(site: Site, *nodes: str) -> AsyncIterator[Load]:
    load = Load()
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for node in nodes:
            creds = site.directory / f"{node}.creds"
            connection = await stack.enter_async_context(site.user(site.broker, node, creds))
            group.create_task(load.publish(connection, node))
        group.create_task(load.write(await stack.enter_async_context(site.admin(site.center))))
        try:
            yield load
        finally:
            load.is_over = True


async def joined(site: Site) -> None:
    """Both directions have caught up with what was stored when this was called."""
    async with (
        site.admin(site.center) as center,
        site.admin(site.broker) as broker,
        asyncio.timeout(JOINED_S),
    ):
        for stream, ahead, behind in (
            (EVENTS_STREAM, broker, center),
            (f"KV_{ASSIGNMENTS}", center, broker),
        ):
            wanted = await last_sequence(ahead, stream)
            while True:
                if await last_sequence(behind, stream) >= wanted:
                    break
                await asyncio.sleep(0.1)


async def last_sequence(connection: Connection, stream: str) -> int:
    info = await eventually(lambda: call(connection, f"STREAM.INFO.{stream}"))
    return int(info["state"]["last_seq"])


async def disturb(site: Site) -> None:
    """Cut the line at bad moments, and kill each broker."""
    line, chance = site.line, random.Random(27)
    for pause_s in (0.2, 2.0):
        await asyncio.to_thread(line.cut)
        await asyncio.sleep(pause_s)
        await asyncio.to_thread(line.heal)
        await joined(site)
    for _ in range(3):
        line.cut_after(chance.randint(2_000, 40_000))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(line.heal)
        await joined(site)
    await asyncio.to_thread(line.hold)
    await asyncio.sleep(3)
    await asyncio.to_thread(line.cut)
    await asyncio.to_thread(line.heal)
    await joined(site)
    for server in (site.broker, site.center):
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await joined(site)
    await asyncio.to_thread(line.cut)
    for server in (site.broker, site.center):
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
    await asyncio.to_thread(line.heal)
    await joined(site)


async def test_nothing_is_missing_or_doubled_however_the_line_is_cut(site: Site) -> None:
    for node in ("web1", "web2"):
        await asyncio.to_thread(site.give, "node", node)

    async with loaded(site, "web1", "web2") as load:
        await joined(site)
        await disturb(site)
    await joined(site)

    async with site.admin(site.center) as center, site.admin(site.broker) as broker:
        found: dict[str, list[int]] = {}
        for event in await NatsEvents(center).read(">"):
            found.setdefault(event.subject.rpartition(".")[2], []).append(json.loads(event.body)["number"])
        written, mirrored = [
            [(one.sequence, one.subject, one.body) async for one in read_all(each, f"KV_{ASSIGNMENTS}", ">")]
            for each in (center, broker)
        ]
        entries = await NatsKeyValue(broker, ASSIGNMENTS).entries()
    assert found == {node: list(range(1, number + 1)) for node, number in load.sent.items()}
    assert mirrored == written
    assert len(entries) == 7


async def test_the_holder_of_the_broker_of_a_site_writes_nothing_at_the_center(site: Site) -> None:
    path = site.fleet.write("word.yaml", "data: {word: one}\n")
    assert (await asyncio.to_thread(site.at_center, "data", "put", "word", path)).code == 0
    creds = site.everything("evil")
    heard: list[Message] = []

    async with site.admin(site.center) as center, site.user(site.broker, "evil", creds, DOWN) as evil:
        before = await last_sequences(center)
        create = f"$JS.center.API.CONSUMER.CREATE.KV_{DATA}"
        await evil.subscribe([f"{DOWN}.heard"], heard.append)
        for subject in (
            key_subject(ASSIGNMENTS, "all.evil"),
            key_subject(DATA, "evil"),
            event_subject(TRANSACTION_EVENT, "web9", new_id()),
            f"{DOWN}.heard",
        ):
            question = {"stream_name": f"KV_{DATA}", "config": {**CONSUMER, "deliver_subject": subject}}
            body = msgspec.json.encode(question)
            await eventually(lambda body=body: evil.request(create, body))
        for subject in (key_subject(ASSIGNMENTS, "all.evil"), "$JS.center.API.$KV.CCM_DATA.evil"):
            with contextlib.suppress(BusError):
                await evil.request(subject, b"{}", within_s=1)
        async with asyncio.timeout(WAIT_S):
            while True:
                if heard:
                    break
                await asyncio.sleep(0.05)
        after = await last_sequences(center)

    assert [json.loads(one.body)["written_by"] for one in heard] == ["tester"], "the control"
    assert after == before


async def test_neither_a_delivery_nor_a_reply_is_a_request_in_the_account_of_the_streams(site: Site) -> None:
    """Although a colluding operator stores a document that would be a request to create a consumer."""
    name, everything = f"KV_{DATA}", site.everything("evil")
    create, crossing = f"$JS.center.API.CONSUMER.CREATE.{name}", f"{ASKED}.CONSUMER.CREATE.{name}"
    body = consumer(name, key_subject(ASSIGNMENTS, "all.evil"))
    owner = site.directory / "owner.creds"
    write_credentials(owner, seed(site.keys, "site-site1"), "owner", "STANDARD", {})

    async with (
        site.user(site.center, "all", everything) as center,
        site.user(site.broker, "evil", everything, DOWN) as evil,
        site.user(site.center, "owner", owner) as own,
    ):
        await center.request(key_subject(DATA, "word"), body)
        await evil.publish(create, body, reply=crossing)
        await eventually(lambda: evil.request(create, consumer(name, crossing)))
        async with asyncio.timeout(WAIT_S):
            while True:
                made = (await call(own, f"CONSUMER.LIST.{name}", {"offset": 0}))["consumers"] or []
                waiting = {one["config"]["deliver_subject"]: one["num_pending"] for one in made}
                if len(made) == 2 and waiting[crossing] == 0:
                    break
                await asyncio.sleep(0.05)
        found = await consumers(center)
        await own.request(crossing, body)
        control = await consumers(center)
        refused = [
            b"maximum consumers" in (await evil.request(create, consumer(name, f"{DOWN}.x"))).body
            for _ in range(12)
        ]
    assert found == []
    assert len(control) == 1
    assert (refused[0], refused[-1]) == (False, True)


def consumer(stream: str, subject: str) -> bytes:
    """A request to create a consumer that delivers to a subject."""
    return msgspec.json.encode({"stream_name": stream, "config": {**CONSUMER, "deliver_subject": subject}})


async def last_sequences(connection: Connection) -> dict[str, int]:
    return {name: await last_sequence(connection, name) for name in STREAMS}


def sites_at_center(site: Site, state: str) -> Done:
    """What `node list` shows at the center, as soon as its site has this state."""
    deadline = time.monotonic() + JOINED_S
    while True:
        listed = site.at_center("node", "list", "--json")
        if [one["state"] for one in listed.named("site")] == [state]:
            return listed
        assert time.monotonic() < deadline, listed.out + listed.err
        time.sleep(0.2)


def test_the_center_lists_the_nodes_of_a_site_and_shows_that_it_is_cut_off(site: Site) -> None:
    fleet = site.fleet
    creds = site.give("node", "web1")
    fleet.add("web1", nats={"url": site.broker.url, "creds": str(creds)})
    fleet.wait_for(lambda: site.at_center("node", "list", "--json").named("node") != [], "the node")

    before = sites_at_center(site, "connected")
    healthy = site.at_center("doctor", "--json").named("check")
    checks = [*healthy, *fleet.ctl("doctor", "--json").named("check")]
    streams = [one for one in checks if one["id"].startswith("stream.CCM_")]
    site.line.cut()
    during, text = sites_at_center(site, "cut"), site.at_center("node", "list").out
    why, shown = site.at_center("why", "web1", "--json"), site.at_center("node", "show", "web1").out
    warned = site.at_center("doctor", "--json").named("check")
    at_site = fleet.ctl("doctor", "--json").named("check")
    site.line.heal()
    after = sites_at_center(site, "connected")

    [node] = before.named("node")
    assert (node["node"], node["state"], "unverified" in node, "cut_site" in node) == (
        "web1",
        "present",
        False,
        False,
    )
    assert [(one["node"], one["cut_site"]) for one in during.named("node")] == [("web1", "site1")]
    assert [one["state"] for one in checks if one["id"] == "broker.configuration"] == ["ok", "ok"]
    assert len(streams) > 20
    assert [one for one in checks if one["id"] == COPIES] == [], "neither is a cluster"
    assert [one["sentence"] for one in streams if one["state"] != "ok"] == []
    assert "site site1 is cut off" in text
    assert "site site1: no contact for " in text
    assert "site: site1, no contact for " in shown
    [explained] = why.named("why")
    assert (explained["cut_site"], explained["answered"]) == ("site1", "not asked")
    assert ["cut_site" in one for one in after.named("node")] == [False]
    states = [
        [(one["state"], one.get("names")) for one in each if one["id"] == "sites.contact"]
        for each in (healthy, warned, at_site)
    ]
    assert states == [[("ok", None)], [("warning", ["site1"])], [("warning", ["center"])]]


def test_a_node_of_a_site_is_not_called_silent_when_its_heartbeats_are_late(site: Site) -> None:
    """Requests do not reach it from the center, so its agent is not asked there."""
    for node in ("web1", "web2"):
        creds = site.give("node", node)
        asyncio.run(beat(site, site.broker if node == "web1" else site.center, node, creds))
    site.fleet.wait_for(lambda: "web1" in site.at_center("node", "list").out, "the node")

    at_site, at_center = (site.at_center("why", node, "--json").named("why")[0] for node in ("web1", "web2"))
    site.line.cut()
    sites_at_center(site, "cut")
    cut = site.at_center("why", "web1", "--json").named("why")[0]

    assert at_site["answered"] == "not asked"
    assert (at_center["answered"], at_center["state"]) == ("silent", "silent"), "the control"
    assert "web2 is silent" in at_center["reason"]
    assert at_site["state"] != "silent"
    assert cut["cut_site"] == "site1"


async def beat(site: Site, server: NatsServer, node: str, creds: Path, age_s: float = 0) -> None:
    """Store a record and a heartbeat of a node, whose clock is right, as its agent did some time ago."""
    async with site.user(server, node, creds) as connection:
        bucket = NatsKeyValue(connection, "CCM_NODES")
        moment = datetime.now(UTC) - timedelta(seconds=age_s)
        record = NodeRecord(node=node, signatures=True)
        await eventually(lambda: bucket.put(f"node.{node}", msgspec.json.encode(record)))
        presence = Presence(node=node, time=moment, ttl_s=600)
        await eventually(lambda: bucket.put(f"presence.{node}", msgspec.json.encode(presence), ttl_s=600))


def test_a_heartbeat_that_arrives_late_is_no_wrong_clock(site: Site) -> None:
    given = {node: site.give("node", node) for node in ("web1", "web2")}

    site.line.cut()
    asyncio.run(beat(site, site.broker, "web1", given["web1"], age_s=400))
    asyncio.run(beat(site, site.center, "web2", given["web2"], age_s=400))
    site.line.heal()
    site.fleet.wait_for(lambda: "web1" in site.at_center("node", "list").out, "the node")
    found = site.at_center("node", "list", "--json").named("node")
    checked = {one["id"]: one for one in site.at_center("doctor", "--json").named("check")}

    assert {one["node"]: "wrong_clock" in one for one in found} == {"web1": False, "web2": True}
    assert (checked["nodes.clock"]["state"], checked["nodes.clock"]["names"]) == ("problem", ["web2"])


def test_a_directory_cannot_be_scheduled_at_a_site_and_the_error_tells_why(site: Site) -> None:
    site.fleet.add("web1", nats={"url": site.broker.url, "creds": str(site.give("node", "web1"))})
    bob = site.at_center("operator", "add", "bob", "--apply", "all", "--schedules", "--data")
    (site.directory / "bob.creds").write_text(bob.out)
    (site.directory / "bob.creds").chmod(0o600)
    site.fleet.write("web/manifest.yaml", manifest(a_file("word")))
    folder, to = str(site.directory / "web"), ("--every", "1h", "-t", "node=web1", "--yes")

    refused = [site.as_(name, "schedule", "add", "often", folder, *to) for name in ("tester", "bob")]
    put = site.as_("bob", "data", "put", "word", site.fleet.write("w.yaml", "data: {word: one}\n"))
    listed = site.fleet.ctl("schedule", "list", "--json").named("schedule")

    for one in refused:
        assert one.code != 0
        assert "object store CCM_MANIFESTS: read-only, because this broker is that of a site" in one.err
        assert "assign it at the center" in one.err
    assert "bucket CCM_DATA: read-only" in put.err
    assert listed == []


async def test_the_largest_messages_of_a_node_of_a_site_do_not_stop_its_source(site: Site) -> None:
    """The center adds a header to each, so they are larger there."""
    creds = await asyncio.to_thread(site.give, "node", "web1")
    subjects = [event_subject(TRANSACTION_EVENT, "web1", new_id()) for _ in range(3)]
    async with (
        site.user(site.broker, "web1", creds) as web1,
        site.admin(site.center) as center,
        asyncio.timeout(JOINED_S),
    ):
        for subject, most in zip(subjects, (1, EVENT_BYTES, 1), strict=True):
            await eventually(lambda s=subject, n=most: store_largest(web1, s, n))
        for key, most in (("node.web1", 1 << 20), ("facts.web1", 1)):
            await eventually(lambda k=key, n=most: store_largest(web1, key_subject(NODES, k), n))
        while True:
            found = await call(center, f"STREAM.INFO.{EVENTS_STREAM}", {"subjects_filter": ">"})
            entries = await call(center, f"STREAM.INFO.KV_{NODES}", {"subjects_filter": ">"})
            if len(found["state"].get("subjects") or {}) == 3 and entries["state"]["messages"] == 2:
                break
            await asyncio.sleep(0.2)
    assert set(found["state"]["subjects"]) == set(subjects)


async def store_largest(connection: Connection, subject: str, most: int) -> None:
    """Store the largest message that the broker accepts, or one of `most` bytes."""
    for size in range(most, 0, -10):
        with contextlib.suppress(ProtocolError):  # too large
            await store(connection, subject, b"x" * size)
            return


async def test_the_subscriptions_of_a_leaf_node_are_limited(site: Site) -> None:
    """Each costs the center memory."""
    creds = site.everything("evil")
    leaves = "$SYS.REQ.SERVER.PING.LEAFZ"
    keys, url = Keys(site.keys), settings_for(site.center.url, identity="tester")
    async with (
        site.user(site.broker, "evil", creds, DOWN) as evil,
        system_connection(url, keys, [leaves]) as system,
    ):
        before = await subscriptions(system, leaves)
        for first in range(0, 3_000, 500):
            await evil.subscribe([f"{DOWN}.heard{first + n}" for n in range(500)], lambda _: None)
        await asyncio.sleep(2)
        after = await subscriptions(system, leaves)
    assert 0 < before < 50
    assert after <= 1_000


async def subscriptions(system: Connection, subject: str) -> int:
    """The number of subscriptions of the leaf node at the center."""
    [body] = await ask_servers(system, subject)
    return sum(one["subscriptions"] for one in json.loads(body)["data"].get("leafs") or [])
