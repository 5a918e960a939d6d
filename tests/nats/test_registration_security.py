"""A load balancer that may read what other nodes registered, and what it and its neighbours cannot make of that (ADR 60)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from ccm_agent.bus import consumers
from ccm_agent.bus.connection import Connection
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.permissions import Role, node_permissions, operator_permissions
from ccm_agent.bus.requests import NatsRequests
from ccm_agent.bus.streams import call, store
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import BusDeniedError, BusError, ProtocolError, UnsettledError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START
from ccm_agent.model.registration import encode_entry
from ccm_agent.registration.entries import Query, entry_subject
from ccm_agent.registration.lookup import Lookup, find
from ccm_agent.registration.publish import Publisher
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.nats_server import NatsServer
from ccm_agent.testing.records import FakeRecords
from tests.support.nats_server import Heard, connected, secured_server, users_configuration
from tests.support.registrations import an_entry

pytestmark = pytest.mark.nats

P = "io.choria.ccm.v1"
STREAM = "REGISTRATION"
PING = b'{"protocol":"io.choria.ccm.v1.node.ping.request"}'
USERS = {
    "web1": node_permissions("web1", ["10.0.0.1"]),
    "web2": node_permissions("web2", ["10.0.0.2"]),
    "lb1": node_permissions("lb1", ["10.0.0.9"], reads_registrations=True),
    "admin": operator_permissions("admin", Role(apply=(">",), data=True, facts=True, admin=True)),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A broker with those users and the project's streams, made by the admin."""
    with secured_server(tmp_path_factory.mktemp("nats"), users_configuration(USERS)) as server:
        yield server


@pytest.fixture(autouse=True)
async def empty(server: NatsServer) -> None:
    """Each test begins with nobody registered."""
    async with connected(server, "admin") as admin:
        await call(admin, f"STREAM.PURGE.{STREAM}")


async def test_a_load_balancer_reads_what_other_nodes_registered(server: NatsServer) -> None:
    async with (
        connected(server, "web1") as web1,
        connected(server, "web2") as web2,
        connected(server, "lb1") as lb,
    ):
        nothing = await find(lb, STREAM, Query("prod", "http", "web"))
        await Publisher(web2, "jetstream").publish(an_entry(2, ttl="10m0s"))
        await Publisher(web1, "jetstream").publish(an_entry(1))
        await Publisher(web1, "jetstream").publish(an_entry(1, service="db"))

        assert nothing == []
        assert await find(lb, STREAM, Query("prod", "http", "web")) == [an_entry(1), an_entry(2, ttl="10m0s")]


async def test_it_reads_more_than_one_batch(server: NatsServer) -> None:
    async with connected(server, "web1") as web1, connected(server, "lb1") as lb:
        publisher = Publisher(web1, "jetstream")
        for first in range(1, 1202, 100):
            await asyncio.gather(*(publisher.publish(an_entry(1, port=first + n)) for n in range(100)))

        assert len(await find(lb, STREAM, Query())) == 1300


async def test_it_reads_more_than_it_could_hold_at_once(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker sends what a consumer is asked for without flow control, and drops who does not keep up."""
    monkeypatch.setattr(consumers, "PAGE_BYTES", 100_000)
    async with connected(server, "web1") as web1, connected(server, "lb1") as lb:
        publisher = Publisher(web1, "jetstream")
        sizes = [10_000] * 20 + [60_000, 60_000, 40]
        for port, size in enumerate(sizes, 1):
            await publisher.publish(an_entry(1, port=port, annotations={"note": "x" * size}))

        found = await find(lb, STREAM, Query())

        assert sorted(len(entry.annotations["note"]) for entry in found) == sorted(sizes)


async def test_one_that_is_larger_than_a_page_comes_by_itself(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "PAGE_BYTES", 5_000)
    async with connected(server, "web1") as web1, connected(server, "lb1") as lb:
        publisher = Publisher(web1, "jetstream")
        for port, size in enumerate((40, 9_000, 9_000, 40), 1):
            await publisher.publish(an_entry(1, port=port, annotations={"note": "x" * size}))

        assert len(await find(lb, STREAM, Query())) == 4


async def test_a_page_that_is_full_to_the_byte_is_not_waited_for(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which the broker says nothing; one of these sizes is it, whatever the broker counts."""
    monkeypatch.setattr(consumers, "PAUSE_S", 0.05)
    async with connected(server, "web1") as web1, connected(server, "lb1") as lb:
        for port in range(1, 5):
            await Publisher(web1, "jetstream").publish(an_entry(1, port=port))
        for size in range(200, 400):
            monkeypatch.setattr(consumers, "PAGE_BYTES", size)

            assert len(await find(lb, STREAM, Query())) == 4


async def test_more_than_a_registry_can_hold_is_refused(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "LARGEST_BYTES", 100)
    async with connected(server, "web1") as web1, connected(server, "lb1") as lb:
        await Publisher(web1, "jetstream").publish(an_entry(1, annotations={"note": "x" * 100}))

        with pytest.raises(ProtocolError, match="more than 100 bytes"):
            await find(lb, STREAM, Query())


async def test_any_other_node_reads_none(server: NatsServer) -> None:
    async with connected(server, "web1") as web1:
        with pytest.raises(BusDeniedError):
            await find(web1, STREAM, Query())


async def test_a_node_registers_only_where_it_is(server: NatsServer) -> None:
    async with connected(server, "web1") as web1:
        with pytest.raises(BusDeniedError):
            await Publisher(web1, "jetstream").publish(an_entry(2))


async def test_a_node_cannot_say_under_its_own_address_that_it_is_another(server: NatsServer) -> None:
    async with connected(server, "web1") as web1, connected(server, "lb1") as lb:
        subject = entry_subject(an_entry(1))

        await store(web1, subject, encode_entry(an_entry(2)))

        assert await find(lb, STREAM, Query()) == []


MAY_NOT = [
    f"$JS.API.DIRECT.GET.{STREAM}",
    f"$JS.API.DIRECT.GET.{STREAM}.{entry_subject(an_entry(1))}",
    f"$JS.API.STREAM.MSG.GET.{STREAM}",
    f"$JS.API.STREAM.INFO.{STREAM}",
    f"$JS.API.CONSUMER.CREATE.{STREAM}",
    f"$JS.API.CONSUMER.CREATE.{STREAM}.x",
    f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.x",
    "$JS.API.CONSUMER.CREATE.CCM_EVENTS.x.io.choria.ccm.v1.>",
    "$JS.API.CONSUMER.MSG.NEXT.CCM_EVENTS.x",
    f"$JS.API.CONSUMER.DELETE.{STREAM}.x",
]


@pytest.mark.parametrize("subject", MAY_NOT)
async def test_what_a_load_balancer_may_not_ask(server: NatsServer, subject: str) -> None:
    async with connected(server, "lb1") as lb:
        with pytest.raises(BusDeniedError):
            await lb.publish(subject, b"", confirm=True)


async def make_consumer(thief: Connection, **config: Any) -> str:
    """A consumer of registrations, as the permissions let it be made."""
    name = f"trap-{new_id()}"
    pattern = "choria.ccm.registration.v1.>"
    wanted = {
        "name": name,
        "ack_policy": "none",
        "filter_subject": pattern,
        "deliver_policy": "all",
        **config,
    }
    question = json.dumps({"stream_name": STREAM, "config": wanted}).encode()
    answer = await thief.request(f"$JS.API.CONSUMER.CREATE.{STREAM}.{name}.{pattern}", question)
    assert b'"error"' not in answer.body, answer.body
    return name


async def send_elsewhere(thief: Connection, way: str, subject: str) -> None:
    """Have all that is registered sent to a subject, by a consumer that is asked for it or that sends by itself."""
    if way == "pulled":
        name = await make_consumer(thief)
        await thief.publish(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{name}", b"10", reply=subject, confirm=True)
    else:
        await make_consumer(thief, deliver_subject=subject)
    # what was asked for before is answered before
    await find(thief, STREAM, Query())


@pytest.mark.parametrize("way", ["pulled", "pushed"])
async def test_it_cannot_command_by_what_it_registered(server: NatsServer, way: str) -> None:
    async with (
        connected(server, "lb1") as lb,
        connected(server, "web1") as node,
        connected(server, "admin") as operator,
    ):
        await store(lb, entry_subject(an_entry(9)), PING)
        heard, refused = Heard(), Heard()
        await NatsRequests(node).subscribe(["all"], heard, refused)

        await send_elsewhere(lb, way, f"{P}.node.ping.request.all")
        await NatsRequests(operator).publish(f"{P}.node.ping.request.all", PING, {"From": "operator"})

        assert [incoming.headers.get("From") for incoming in await heard.wait(1)] == ["operator"]
        # what comes says under which subject it was stored; the broker does not even push it to where others publish
        assert {subject for subject, _ in refused.items} <= {entry_subject(an_entry(9))}
        assert way == "pushed" or refused.items


@pytest.mark.parametrize("way", ["pulled", "pushed"])
async def test_it_cannot_speak_for_another_node(server: NatsServer, way: str) -> None:
    subject = event_subject(SESSION_START, "web1", new_id())
    async with connected(server, "lb1") as lb, connected(server, "admin") as operator:
        await store(lb, entry_subject(an_entry(9)), b'{"protocol":"io.choria.ccm.v1.session.start"}')
        heard, events = Heard(), NatsEvents(operator)
        await events.follow(subject, heard)

        await send_elsewhere(lb, way, subject)

        assert await events.read(subject) == []
        assert heard.items == []


@pytest.mark.parametrize("way", ["pulled", "pushed"])
async def test_it_cannot_write_data(server: NatsServer, way: str) -> None:
    async with connected(server, "lb1") as lb, connected(server, "admin") as operator:
        bucket = NatsKeyValue(operator, "CCM_DATA")
        await bucket.put("common", b"data: {}")
        await store(lb, entry_subject(an_entry(9)), b"data: {evil: true}")

        await send_elsewhere(lb, way, "$KV.CCM_DATA.common")

        found = await bucket.get("common")
        assert found is not None
        assert found.value == b"data: {}"


async def test_it_cannot_stand_in_anothers_place(server: NatsServer) -> None:
    async with (
        connected(server, "lb1") as lb,
        connected(server, "web1") as web1,
        connected(server, "admin") as operator,
    ):
        await Publisher(web1, "jetstream").publish(an_entry(1))
        await store(lb, entry_subject(an_entry(9)), encode_entry(an_entry(1, port=6666)))

        await send_elsewhere(lb, "pulled", entry_subject(an_entry(1, port=6666)))
        with pytest.raises(AssertionError, match="forms a cycle"):
            await send_elsewhere(lb, "pushed", entry_subject(an_entry(1, port=6666)))

        assert await find(operator, STREAM, Query()) == [an_entry(1)]


async def test_who_wipes_an_entry_by_somebodys_answer_takes_nobody_out_of_a_pool(server: NatsServer) -> None:
    async with (
        connected(server, "lb1") as lb,
        connected(server, "web1") as web1,
        connected(server, "web2") as web2,
    ):

        async def connect() -> Connection:
            return lb

        clock = FakeClock()
        lookup = Lookup("broker", connect, FakeRecords(), clock, settle_s=600)
        await Publisher(web1, "jetstream").publish(an_entry(1))
        assert await lookup.find(Query()) == [an_entry(1)]

        # the answer "there is none" of a question that every node may ask, sent to another's subject
        question = "$JS.API.DIRECT.GET.KV_CCM_FACTS.$KV.CCM_FACTS.web2"
        await web2.publish(question, b"", reply=entry_subject(an_entry(1)), confirm=True)
        with contextlib.suppress(BusError):
            await web2.request(question)

        with pytest.raises(UnsettledError):
            await lookup.find(Query())
        await Publisher(web1, "jetstream").publish(an_entry(1))
        assert await lookup.find(Query()) == [an_entry(1)]
