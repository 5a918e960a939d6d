"""
A load balancer whose credentials are of the time of one account: it may read registrations by a consumer only (ADR 60).

Such credentials are good until `ccmctl init --security --migrate` has ended; here as there all users live in one account.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from ccm_agent.bus import consumers
from ccm_agent.bus.access.permissions import Permissions, Role, node_permissions, operator_permissions
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.streams import call
from ccm_agent.model.errors import BusError, ProtocolError, UnsettledError
from ccm_agent.registration.entries import RegistrationQuery, entry_subject
from ccm_agent.registration.lookup import RegistrationLookup, find
from ccm_agent.registration.publish import Publisher
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.nats_server import NatsServer
from ccm_agent.testing.records import FakeRecords
from tests.support.nats_server import connected, one_account_configuration, secured_server
from tests.support.registrations import an_entry

pytestmark = pytest.mark.nats

STREAM = "REGISTRATION"
PLAIN = node_permissions("lb1", ["10.0.0.9"])
LOAD_BALANCER = Permissions(
    account=PLAIN.account,
    publish=(
        *PLAIN.publish,
        f"$JS.API.CONSUMER.CREATE.{STREAM}.*.choria.ccm.registration.v1.>",
        f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.*",
    ),
    subscribe=PLAIN.subscribe,
)
USERS = {
    "web1": node_permissions("web1", ["10.0.0.1"]),
    "web2": node_permissions("web2", ["10.0.0.2"]),
    "lb1": LOAD_BALANCER,
    "admin": operator_permissions("admin", Role(apply=(">",), data=True, facts=True, admin=True)),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A broker with those users and the project's streams, made by the admin."""
    with secured_server(tmp_path_factory.mktemp("nats"), one_account_configuration(USERS)) as server:
        yield server


@pytest.fixture(autouse=True)
async def empty(server: NatsServer) -> None:
    """Each test begins with nobody registered."""
    async with connected(server, "admin") as admin:
        await call(admin, f"STREAM.PURGE.{STREAM}")


async def test_more_entries_than_the_buffer_holds_are_read(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker sends what a consumer is asked for without flow control, and drops who does not keep up."""
    monkeypatch.setattr(consumers, "PAGE_BYTES", 10_000)
    async with connected(server, "web1") as web1, connected(server, "lb1") as lb:
        publisher = Publisher(web1, "jetstream")
        sizes = [1_000] * 20 + [6_000, 6_000, 40]
        for port, size in enumerate(sizes, 1):
            await publisher.publish(an_entry(1, port=port, annotations={"note": "x" * size}))

        found = await find(lb, STREAM, RegistrationQuery())

        assert sorted(len(entry.annotations["note"]) for entry in found) == sorted(sizes)


async def test_one_that_is_larger_than_a_page_comes_by_itself(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "PAGE_BYTES", 3_000)
    async with connected(server, "web1") as web1, connected(server, "lb1") as lb:
        publisher = Publisher(web1, "jetstream")
        for port, size in enumerate((40, 6_000, 6_000, 40), 1):
            await publisher.publish(an_entry(1, port=port, annotations={"note": "x" * size}))

        assert len(await find(lb, STREAM, RegistrationQuery())) == 4


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

            assert len(await find(lb, STREAM, RegistrationQuery())) == 4


async def test_more_than_a_registry_can_hold_is_refused(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "LARGEST_BYTES", 100)
    async with connected(server, "web1") as web1, connected(server, "lb1") as lb:
        await Publisher(web1, "jetstream").publish(an_entry(1, annotations={"note": "x" * 100}))

        with pytest.raises(ProtocolError, match="more than 100 bytes"):
            await find(lb, STREAM, RegistrationQuery())


async def test_an_overwritten_entry_removes_no_service_from_a_pool(server: NatsServer) -> None:
    async with (
        connected(server, "lb1") as lb,
        connected(server, "web1") as web1,
        connected(server, "web2") as web2,
    ):

        async def connect() -> Connection:
            return lb

        clock = FakeClock()
        lookup = RegistrationLookup("broker", connect, FakeRecords(), clock, settle_s=600)
        await Publisher(web1, "jetstream").publish(an_entry(1))
        assert await lookup.find(RegistrationQuery()) == [an_entry(1)]

        # the answer "there is none" of a question that every node may ask, sent to another's subject
        question = "$JS.API.DIRECT.GET.KV_CCM_FACTS.$KV.CCM_FACTS.web2"
        await web2.publish(question, b"", reply=entry_subject(an_entry(1)), confirm=True)
        with contextlib.suppress(BusError):
            await web2.request(question)

        with pytest.raises(UnsettledError):
            await lookup.find(RegistrationQuery())
        await Publisher(web1, "jetstream").publish(an_entry(1))
        assert await lookup.find(RegistrationQuery()) == [an_entry(1)]
