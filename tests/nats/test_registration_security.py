"""A load balancer that may read what other nodes registered, and what it and its neighbors cannot make of that (ADR 60)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator

import pytest

from ccm_agent.bus.access.permissions import Role, node_permissions, operator_permissions
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.requests import NatsRequests
from ccm_agent.bus.streams import call, store
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import BusDeniedError, BusError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START
from ccm_agent.model.records.registration import encode_entry
from ccm_agent.registration.entries import RegistrationQuery, entry_subject
from ccm_agent.registration.lookup import find
from ccm_agent.registration.publish import Publisher
from ccm_agent.testing.nats_server import NatsServer
from tests.support.nats_server import Heard, connected, secured_server, users_configuration
from tests.support.registrations import an_entry
from tests.support.signing import OwnRequests

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


async def test_a_load_balancer_reads_the_data_other_nodes_registered(server: NatsServer) -> None:
    async with (
        connected(server, "web1") as web1,
        connected(server, "web2") as web2,
        connected(server, "lb1") as lb,
    ):
        nothing = await find(lb, STREAM, RegistrationQuery("prod", "http", "web"))
        await Publisher(web2, "jetstream").publish(an_entry(2, ttl="10m0s"))
        await Publisher(web1, "jetstream").publish(an_entry(1))
        await Publisher(web1, "jetstream").publish(an_entry(1, service="db"))

        assert nothing == []
        assert await find(lb, STREAM, RegistrationQuery("prod", "http", "web")) == [
            an_entry(1),
            an_entry(2, ttl="10m0s"),
        ]


async def test_more_than_one_batch_is_read(server: NatsServer) -> None:
    async with connected(server, "web1") as web1, connected(server, "lb1") as lb:
        publisher = Publisher(web1, "jetstream")
        for first in range(1, 1202, 100):
            await asyncio.gather(*(publisher.publish(an_entry(1, port=first + n)) for n in range(100)))

        assert len(await find(lb, STREAM, RegistrationQuery())) == 1300


async def test_other_nodes_cannot_read_registrations(server: NatsServer) -> None:
    async with connected(server, "web1") as web1:
        with pytest.raises(BusDeniedError):
            await find(web1, STREAM, RegistrationQuery())


async def test_a_node_registers_only_where_it_is(server: NatsServer) -> None:
    async with connected(server, "web1") as web1:
        with pytest.raises(BusDeniedError):
            await Publisher(web1, "jetstream").publish(an_entry(2))


async def test_a_node_cannot_say_under_its_own_address_that_it_is_another(server: NatsServer) -> None:
    async with connected(server, "web1") as web1, connected(server, "lb1") as lb:
        subject = entry_subject(an_entry(1))

        await store(web1, subject, encode_entry(an_entry(2)))

        assert await find(lb, STREAM, RegistrationQuery()) == []


MAY_NOT = [
    f"$JS.API.DIRECT.GET.{STREAM}.{entry_subject(an_entry(1))}",
    f"$JS.API.STREAM.MSG.GET.{STREAM}",
    f"$JS.API.STREAM.INFO.{STREAM}",
    f"$JS.API.CONSUMER.CREATE.{STREAM}",
    f"$JS.API.CONSUMER.CREATE.{STREAM}.x",
    f"$JS.API.CONSUMER.CREATE.{STREAM}.x.choria.ccm.registration.v1.>",
    f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.x",
    f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.x",
    "$JS.API.CONSUMER.CREATE.CCM_EVENTS.x.io.choria.ccm.v1.>",
    "$JS.API.CONSUMER.MSG.NEXT.CCM_EVENTS.x",
    f"$JS.API.CONSUMER.DELETE.{STREAM}.x",
]


@pytest.mark.parametrize("subject", MAY_NOT)
async def test_forbidden_requests_of_a_load_balancer(server: NatsServer, subject: str) -> None:
    async with connected(server, "lb1") as lb:
        with pytest.raises(BusDeniedError):
            await lb.publish(subject, b"", confirm=True)


async def send_elsewhere(thief: Connection, subject: str) -> None:
    """Have what it registered itself sent to a subject: as it is stored, and as bare bytes."""
    own = entry_subject(an_entry(9))
    for no_headers in (False, True):
        question = json.dumps({"last_by_subj": own, "no_hdr": no_headers}).encode()
        await thief.publish(f"$JS.API.DIRECT.GET.{STREAM}", question, reply=subject, confirm=True)
        await find(thief, STREAM, RegistrationQuery())  # what was asked before is answered before


async def test_load_balancer_cannot_command_through_registrations(server: NatsServer) -> None:
    async with (
        connected(server, "lb1") as lb,
        connected(server, "web1") as node,
        connected(server, "admin") as operator,
    ):
        await store(lb, entry_subject(an_entry(9)), PING)
        heard, refused = Heard(), Heard()
        await NatsRequests(node).subscribe(["all"], heard, refused)

        await send_elsewhere(lb, f"{P}.node.ping.request.all")
        await OwnRequests(operator).publish(f"{P}.node.ping.request.all", PING, {"From": "operator"})

        assert [incoming.headers.get("From") for incoming in await heard.wait(1)] == ["operator"]
        assert len(refused.items) == 2


async def test_load_balancer_cannot_publish_as_another_node(server: NatsServer) -> None:
    subject = event_subject(SESSION_START, "web1", new_id())
    async with connected(server, "lb1") as lb, connected(server, "admin") as operator:
        await store(lb, entry_subject(an_entry(9)), b'{"protocol":"io.choria.ccm.v1.session.start"}')
        heard, events = Heard(), NatsEvents(operator)
        await events.follow(subject, heard)

        await send_elsewhere(lb, subject)

        assert await events.read(subject) == []
        assert (heard.items, events.dropped) == ([], 0)


async def test_load_balancer_cannot_write_data(server: NatsServer) -> None:
    async with connected(server, "lb1") as lb, connected(server, "admin") as operator:
        bucket = NatsKeyValue(operator, "CCM_DATA")
        await bucket.put("common", b"data: {}")
        await store(lb, entry_subject(an_entry(9)), b"data: {evil: true}")

        await send_elsewhere(lb, "$KV.CCM_DATA.common")

        found = await bucket.get("common")
        assert found is not None
        assert found.value == b"data: {}"


async def test_load_balancer_cannot_replace_another_nodes_entry(server: NatsServer) -> None:
    async with (
        connected(server, "lb1") as lb,
        connected(server, "web1") as web1,
        connected(server, "admin") as operator,
    ):
        await Publisher(web1, "jetstream").publish(an_entry(1))
        await store(lb, entry_subject(an_entry(9)), encode_entry(an_entry(1, port=6666)))

        await send_elsewhere(lb, entry_subject(an_entry(1, port=6666)))

        assert await find(operator, STREAM, RegistrationQuery()) == [an_entry(1)]


async def test_no_answer_wipes_an_entry(server: NatsServer) -> None:
    async with (
        connected(server, "lb1") as lb,
        connected(server, "web1") as web1,
        connected(server, "web2") as web2,
    ):
        await Publisher(web1, "jetstream").publish(an_entry(1))

        # the answer "there is none" of a question that every node may ask, sent to another's subject
        question = "$JS.API.DIRECT.GET.KV_CCM_FACTS.$KV.CCM_FACTS.web2"
        await web2.publish(question, b"", reply=entry_subject(an_entry(1)), confirm=True)
        with contextlib.suppress(BusError):
            await web2.request(question)

        assert await find(lb, STREAM, RegistrationQuery()) == [an_entry(1)]
