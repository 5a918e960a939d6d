"""Nodes, operators and administrators in accounts of their own hear each other, each thing once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest

from ccm_agent.agent.trust.schedule_times import scheduled_run_id
from ccm_agent.bus.access.permissions import Permissions, Role, node_permissions, operator_permissions
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.layout import LayoutOptions, make
from ccm_agent.bus.requests import NatsRequests
from ccm_agent.bus.schedule_index import INDEX_SUBJECT, ScheduleIndex
from ccm_agent.bus.streams import call, read_last, store
from ccm_agent.bus.subjects import due_subject, event_subject, own_subject, schedule_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY, TRANSACTION_EVENT
from ccm_agent.model.ports import IncomingRequest
from ccm_agent.model.wire import AGENT_STARTUP, MANIFEST_APPLY, SESSION_ANSWER, SESSION_PROGRESS
from ccm_agent.testing.nats_server import NatsServer
from tests.support.nats_server import (
    WAIT_S,
    Heard,
    connected,
    eventually,
    running_cluster,
    secured_server,
    users_configuration,
)
from tests.support.signing import OwnRequests

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

P = "io.choria.ccm.v1"
REQUEST = f"{P}.node.ping.request.all"
BODY = b'{"protocol":"io.choria.ccm.v1.node.ping.request"}'
ADMIN = Role(apply=(">",), data=True, facts=True, schedules=True, admin=True)
USERS = {
    "web1": node_permissions("web1"),
    "web2": node_permissions("web2"),
    "op": operator_permissions("op", Role(apply=(">",), data=True, facts=True, schedules=True)),
    "looker": operator_permissions("looker", Role()),
    "admin": operator_permissions("admin", ADMIN),
}


def in_ctl(allowed: Permissions) -> Permissions:
    """The same in the account of the streams, as credentials of the time of one account are."""
    return msgspec.structs.replace(allowed, account=USERS["admin"].account)


MOVING_USERS = USERS | {
    "old1": in_ctl(node_permissions("old1")),
    "old-op": in_ctl(operator_permissions("old-op", Role(apply=(">",)))),
}


class Place:
    """A broker, and who may connect to it."""

    def __init__(self, servers: list[NatsServer], users: dict[str, Permissions]) -> None:
        self.servers = servers
        self.users = users

    @property
    def may_repeat(self) -> bool:
        """Live events may come twice to operators in an account of their own: see `accounts.grants`."""
        return len(self.servers) > 1 and "old1" in self.users

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes."""
        return [name for name in self.users if name.rstrip("12") in ("web", "old")]

    @property
    def operators(self) -> list[str]:
        """Names of the operators."""
        return [name for name in self.users if name not in self.nodes]

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[dict[str, Connection]]:
        """A connection of each user, spread over the servers."""
        async with AsyncExitStack() as stack:
            yield {
                name: await stack.enter_async_context(connected(self.servers[at % len(self.servers)], name))
                for at, name in enumerate(self.users)
            }


@pytest.fixture(
    scope="module", params=["one server", "three servers", "one server, moving", "three servers, moving"]
)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server or a cluster with the project's streams, for good or while a fleet moves to several accounts."""
    directory = tmp_path_factory.mktemp("nats")
    moving = "moving" in request.param
    users = MOVING_USERS if moving else USERS
    known = users_configuration(users, moving=moving)
    if request.param.startswith("one"):
        with secured_server(directory, known) as one:
            yield Place([one], users)
        return
    with running_cluster(directory, known, user="admin", password="admin") as three:
        asyncio.run(prepare_as_admin(three))
        yield Place(three, users)


async def prepare_as_admin(servers: list[NatsServer]) -> None:
    """Make the project's streams; a cluster that has just been started loses the first question or two."""

    async def prepare() -> None:
        async with connected(servers[0], "admin") as admin:
            await make(admin, LayoutOptions(secure=True))

    await eventually(prepare)


async def heard_once(
    hearers: dict[str, Connection], pattern: str, speak: Callable[[bytes], Awaitable[object]]
) -> dict[str, list[bytes]]:
    """What each of them hears of three messages, the last of which all have heard."""
    heard = {name: Heard() for name in hearers}
    for name, connection in hearers.items():
        await connection.subscribe([pattern], lambda message, name=name: heard[name](message.body))  # type: ignore[misc]
    # in a cluster it takes a moment until every server knows who listens
    async with asyncio.timeout(WAIT_S):
        while not all(each.items for each in heard.values()):
            await speak(b'{"protocol":"warm"}')
            await asyncio.sleep(0.02)
    for number in range(3):
        body = b'{"number":%d}' % number
        await speak(body)
        for each in heard.values():
            while body not in each.items:
                await each.wait(len(each.items) + 1)
    return {name: [body for body in each.items if b"number" in body] for name, each in heard.items()}


THREE = [b'{"number":%d}' % number for number in range(3)]


@pytest.mark.parametrize("protocol", [SESSION_START, SESSION_SUMMARY, TRANSACTION_EVENT, AGENT_STARTUP])
async def test_an_event_is_stored_once_and_heard_once_by_each_operator(place: Place, protocol: str) -> None:
    async with place.connected() as users:
        for node in place.nodes:
            subject = event_subject(protocol, node, "" if protocol == AGENT_STARTUP else new_id())
            sequences = []

            async def publish(body: bytes, subject: str = subject, node: str = node) -> None:
                done = await NatsEvents(users[node]).publish(subject, new_id(), body)
                sequences.append(done.sequence)  # noqa: B023

            heard = await heard_once({name: users[name] for name in place.operators}, subject, publish)

            if place.may_repeat:
                heard["op"], heard["looker"] = (list(dict.fromkeys(heard[name])) for name in ("op", "looker"))
            assert heard == dict.fromkeys(place.operators, THREE)
            stored = await NatsEvents(users["looker"]).read(subject)
            assert [event.sequence for event in stored] == sequences


@pytest.mark.parametrize("protocol", [SESSION_ANSWER, SESSION_PROGRESS])
async def test_a_nodes_progress_is_delivered_once_to_each_operator(place: Place, protocol: str) -> None:
    async with place.connected() as users:
        for node in place.nodes:
            subject = event_subject(protocol, node, new_id())

            async def announce(body: bytes, subject: str = subject, node: str = node) -> None:
                await NatsEvents(users[node]).announce(subject, body)

            heard = await heard_once({name: users[name] for name in place.operators}, subject, announce)

            assert heard == dict.fromkeys(place.operators, THREE)


async def test_a_request_is_heard_once_by_each_node(place: Place) -> None:
    async with place.connected() as users:
        for operator in place.operators:

            async def ask(body: bytes, operator: str = operator) -> None:
                await OwnRequests(users[operator]).publish(REQUEST, body)

            heard = await heard_once({name: users[name] for name in place.nodes}, f"{P}.*.*.request.all", ask)

            assert heard == dict.fromkeys(place.nodes, THREE)


async def test_each_node_receives_a_due_request_once(place: Place) -> None:
    async with place.connected() as users:

        async def be_due(body: bytes) -> None:
            subject = schedule_subject(MANIFEST_APPLY, "all", new_id())
            due = "choria.ccm.due.manifest.apply.request.all"
            headers = {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": due}
            await store(users["op"], subject, body, headers)

        heard = await heard_once({name: users[name] for name in place.nodes}, f"{P}.*.*.request.all", be_due)

        assert heard == dict.fromkeys(place.nodes, THREE)


async def test_each_node_reads_changed_data_once(place: Place) -> None:
    async with place.connected() as users:
        revisions: list[int] = []
        poked = {name: Heard() for name in place.nodes}
        for name in place.nodes:
            await NatsKeyValue(users[name], "CCM_DATA").watch_changes("common", poked[name])

        async with asyncio.timeout(WAIT_S):
            while len(revisions) < 3 or not all(poked[name].items for name in place.nodes):
                revisions.append(
                    await NatsKeyValue(users["op"], "CCM_DATA").put("common", b"%d" % len(revisions))
                )
        for name in place.nodes:
            await poked[name].wait(1)
            found = await NatsKeyValue(users[name], "CCM_DATA").get("common", revisions[-1])
            assert found is not None
            assert found.revision == revisions[-1]
            told = [revision for _key, revision in poked[name].items]
            assert told == sorted(set(told))


async def test_operators_ask_about_the_streams_of_the_other_account(place: Place) -> None:
    async with place.connected() as users:
        info = await call(users["looker"], "STREAM.INFO.KV_CCM_DATA")

        assert info["config"]["name"] == "KV_CCM_DATA"
        assert (await call(users["admin"], "INFO"))["streams"] >= 10


async def past(users: dict[str, Connection], scope: str, body: bytes) -> tuple[str, str]:
    """A schedule that was due once and is due no more today, and the subject of its request."""
    subject = schedule_subject(MANIFEST_APPLY, scope, "nightly")
    due = f"choria.ccm.due.manifest.apply.request.{scope}"
    at = {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": due}
    await store(users["op"], subject, body, at)
    async with asyncio.timeout(WAIT_S):
        while await read_last(users["op"], "CCM_SCHEDULES", due) is None:
            pass  # asked again until it was due
    return subject, f"{P}.manifest.apply.request.{scope}"


async def last_due(node: Connection, request: str, *, there: bool) -> IncomingRequest | None:
    """What the node would catch up with, as soon as that is, or is not, there: its replica may lag."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await NatsRequests(node).last_due(request)
            if (found is not None) is there:
                return found


BEFORE = b'{"protocol":"io.choria.ccm.v1.manifest.apply.request","manifest":"before"}'
AFTER = b'{"protocol":"io.choria.ccm.v1.manifest.apply.request","manifest":"after"}'


async def test_a_due_request_is_stored_for_catching_up(place: Place) -> None:
    async with place.connected() as users:
        _subject, request = await past(users, "node.one", BEFORE)

        found = await last_due(users["web1"], request, there=True)

        assert found is not None
        assert found.body == BEFORE


async def test_schedule_with_a_subject_of_its_own_reaches_its_nodes_and_is_there_to_be_caught_up_with(
    place: Place,
) -> None:
    schedule = schedule_subject(MANIFEST_APPLY, "all", "backup")
    request = own_subject(schedule)
    at = {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": due_subject(request)}
    async with place.connected() as users:
        heard = Heard()
        requests = NatsRequests(users["web1"])
        await requests.subscribe(["all"], heard)
        index = msgspec.json.encode(ScheduleIndex(schedules=[schedule]))

        await store(users["op"], INDEX_SUBJECT, index)
        await store(users["op"], schedule, BEFORE, at)

        [incoming] = await heard.wait(1)
        assert (incoming.subject, incoming.scope, incoming.scheduled) == (request, "all", True)
        found = await last_due(users["web1"], request, there=True)
        assert found is not None
        assert scheduled_run_id(found) == scheduled_run_id(incoming)
        assert await requests.own_subjects(["all"]) == [request]


async def test_a_due_request_of_a_removed_schedule_is_not_caught_up(
    place: Place,
) -> None:
    async with place.connected() as users:
        subject, request = await past(users, "node.two", BEFORE)

        await store(users["op"], subject, b"")

        await last_due(users["web1"], request, there=False)


async def test_a_due_request_of_a_replaced_schedule_is_not_caught_up(place: Place) -> None:
    async with place.connected() as users:
        subject, request = await past(users, "node.three", BEFORE)
        yearly = {
            "Nats-Schedule": "0 0 0 1 1 *",
            "Nats-Schedule-Target": "choria.ccm.due.manifest.apply.request.node.three",
        }

        await store(users["op"], subject, AFTER, yearly)

        await last_due(users["web1"], request, there=False)
        await store(users["op"], subject, BEFORE, yearly)
        await last_due(users["web1"], request, there=True)
