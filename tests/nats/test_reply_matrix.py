"""
Every question that a user may ask × its answer sent to every subject that means something: nothing is stored, purged or obeyed.

The table is tests/support/reply_matrix.py. It is tried on one server, on one that knows its users by credentials, and on a
cluster of three, where each attacker is connected to each server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from ccm_agent.bus.access.accounts import Account, grants
from ccm_agent.bus.access.credentials import (
    new_authority,
    public_key,
    scoped_credentials,
    server_configuration,
    user_credentials,
)
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.layout import LayoutOptions, make, make_audit
from ccm_agent.bus.streams import call, read_last, read_newest, store
from ccm_agent.bus.subjects import subject_matches
from ccm_agent.testing.nats_server import NatsServer
from tests.support import reply_matrix as matrix
from tests.support.nats_server import (
    WAIT_S,
    connected,
    eventually,
    one_account_configuration,
    running_cluster,
    running_server,
    users_configuration,
)
from tests.support.raw_client import RawClient, RawMessage, raw_client

pytestmark = [pytest.mark.nats, pytest.mark.timeout(300)]

QUIET_S = 0.4
"""When nothing has arrived for so long, nothing more will: the broker answers in milliseconds."""


class Place(Struct):
    """
    A broker.

    Attributes:
        servers: Its servers.
        is_sampled: Not everything is tried on it, but of everything something.
    """

    servers: list[NatsServer]
    is_sampled: bool = False

    @property
    def arrives(self) -> Mapping[tuple[Account, str], set[Account]]:
        """Where answers may arrive."""
        if len(self.servers) > 1:
            return matrix.ARRIVES_IN_CLUSTER
        return matrix.ARRIVES_WITH_CREDENTIALS if self.is_sampled else matrix.ARRIVES


PLACES = ["one server", "credentials", "three servers", "three servers, moving"]


@pytest.fixture(scope="module", params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("nats")
    moving = "moving" in request.param
    known = users_configuration(matrix.USERS, moving=moving)
    if request.param.startswith("three"):
        with running_cluster(directory, known, user="admin", password="admin") as three:
            yield prepared(Place(three, is_sampled=moving))
        return
    if request.param == "credentials":
        known = with_credentials(directory)
    with running_server(directory, known) as one:
        yield prepared(Place([one], is_sampled=request.param == "credentials"))


def with_credentials(directory: Path) -> str:
    """The same users by credentials, in files; what the broker must know of them."""
    authority = new_authority()
    for name, allowed in matrix.USERS.items():
        if allowed.account == Account.NODES:
            made = scoped_credentials(authority.node_signer, public_key(authority.nodes), name, allowed.tags)
        else:
            made = user_credentials(authority.of(allowed.account), name, allowed)
        (directory / f"{name}.creds").write_text(made.text.reveal())
    return server_configuration(authority)


def prepared(place: Place, *, audited: bool = True) -> Place:
    """The same with the project's streams, and something in each; those of the audit need an account of their own."""

    async def prepare() -> None:
        async with contextlib.AsyncExitStack() as stack:
            server = place.servers[0]
            users = {
                name: await stack.enter_async_context(connected(server, name)) for name in matrix.VICTIMS
            }
            layout = LayoutOptions(secure=True, slots_s=3600)
            await make(users["admin"], layout)
            if audited:
                await make_audit(await stack.enter_async_context(connected(server, "auditor")), layout)
            for subjects in (*matrix.STORED.values(), *(matrix.AUDITED.values() if audited else ())):
                for subject in subjects:
                    await fill(users[author(subject)], subject)

    asyncio.run(eventually(prepare))
    return place


def author(subject: str) -> str:
    """Who may write there."""
    if matrix.kind_of(subject) == "due":
        return "ann"
    return next(
        name
        for name, allowed in matrix.VICTIMS.items()
        if any(subject_matches(line, subject) for line in allowed.publish)
    )


async def fill(writer: Connection, subject: str) -> None:
    """Store something on a subject."""
    if matrix.kind_of(subject) == "due":
        nightly = f"{matrix.SCHEDULE_PREFIX}.manifest.apply.request.all.once"
        once = {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": subject}
        await store(writer, nightly, b'{"protocol":"x"}', once)
        while await read_last(writer, "CCM_SCHEDULES", subject) is None:
            pass  # asked again until it was due
    elif matrix.kind_of(subject) == "schedule":
        target = f"{matrix.DUE_PREFIX}.manifest.apply.request.all"
        yearly = {"Nats-Schedule": "0 0 0 1 1 *", "Nats-Schedule-Target": target}
        await store(writer, subject, b'{"protocol":"x"}', yearly)
    else:
        await store(writer, subject, b'{"protocol":"x"}', {"Ccm-Sent": "1"})


async def everything(admin: Connection) -> dict[str, tuple[dict[str, Any], dict[str, int]]]:
    """Of each stream that there is: how it is configured, and the newest message of each subject."""
    streams = (await call(admin, "STREAM.LIST"))["streams"]
    found = {}
    for stream in streams:
        name = stream["config"]["name"]
        newest = await read_newest(admin, name, [">"]) if stream["config"].get("allow_direct") else []
        found[name] = (stream["config"], {one.subject: one.sequence for one in newest})
    return found


class Listening:
    """What the victims hear, on every subject that they may listen to."""

    def __init__(self) -> None:
        self.heard: set[tuple[Account, str]] = set()
        self.count = 0

    @contextlib.asynccontextmanager
    async def begun(self, servers: list[NatsServer]) -> AsyncIterator[None]:
        """Listen, each victim at another server."""
        async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            tasks = []
            for at, (name, allowed) in enumerate(matrix.VICTIMS.items()):
                client = await stack.enter_async_context(raw_client(servers[(at + 1) % len(servers)], name))
                await client.subscribe(allowed.subscribe)
                tasks.append(group.create_task(self._listen(client, allowed.account)))
            yield
            for task in tasks:
                task.cancel()

    async def _listen(self, client: RawClient, account: Account) -> None:
        async for subject in client.heard():
            self.count += 1
            self.heard.add((account, subject))

    async def quiet(self) -> None:
        """Return when nothing arrives any more."""
        async with asyncio.timeout(WAIT_S):
            before = -1
            while before != self.count:
                before = self.count
                await asyncio.sleep(QUIET_S)


async def attack(
    place: Place, name: str, messages: list[RawMessage]
) -> tuple[set[tuple[Account, str]], list[str]]:
    """
    Send messages as an attacker, from each server; who heard an answer, and what has changed that is not the attacker's own.
    """
    own = {question.subject for question in matrix.questions(name) if question.is_write}
    own |= set(matrix.chosen_subjects(name))
    listening, refused = Listening(), list[str]()
    async with (
        connected(place.servers[0], "admin") as admin,
        connected(place.servers[0], "auditor") as auditor,
        listening.begun(place.servers),
    ):
        async with raw_client(place.servers[0], name) as writer:
            chosen = zip(matrix.chosen_subjects(name), matrix.CHOSEN, strict=True)
            await writer.publish_all([RawMessage(subject.encode(), body) for subject, body in chosen])
        await listening.quiet()
        before = await everything(admin) | await everything(auditor)
        for server in place.servers:
            async with raw_client(server, name) as client:
                await client.publish_all(messages)
            refused += client.refused
            await listening.quiet()
        after = await everything(admin) | await everything(auditor)
    # Every question is one that the user may ask. The server itself refuses a reply that acknowledges for a consumer, and the
    # subject that a header asks for a trace on.
    denied = [line for line in refused if "Violation for Publish to" in line and matrix.TRACED not in line]
    assert denied == []
    targets = {target.subject: target.kind for target in matrix.targets()}
    heard = {(account, targets[subject]) for account, subject in listening.heard if subject in targets}
    return heard, [*differences(before, after, own)]


def differences(before: dict[str, Any], after: dict[str, Any], own: set[str]) -> Iterator[str]:
    """In words, what is different between two looks at all streams, apart from an attacker's own subjects."""
    for name in before.keys() | after.keys():
        if name not in before or name not in after:
            yield f"{name} {'is gone' if name in before else 'is new'}"
            continue
        (was, held), (now, holds) = before[name], after[name]
        if was != now:
            yield f"{name} is configured otherwise"
        for subject in (held.keys() | holds.keys()) - own:
            if held.get(subject) != holds.get(subject):
                yield f"{name}: {subject}: {held.get(subject)} → {holds.get(subject)}"


def allowed_to_arrive(place: Place, name: str) -> set[tuple[Account, str]]:
    """Whom the table lets an attacker's answers reach, and as what."""
    mine = matrix.ATTACKERS[name].account
    return {(to, kind) for (account, kind), all_ in place.arrives.items() if account == mine for to in all_}


@pytest.mark.parametrize("name", matrix.ATTACKERS)
async def test_an_answer_reaches_nothing_that_stores_or_obeys(place: Place, name: str) -> None:
    chosen = matrix.one_of_each_kind() if place.is_sampled else None

    heard, changed = await attack(place, name, matrix.plain_messages(name, chosen=chosen))

    assert changed == []
    assert heard - allowed_to_arrive(place, name) == set()
    # the answers were given: neighbors in the attacker's own account hear them
    own = matrix.ATTACKERS[name].account
    assert (own, "request") in heard


@pytest.mark.parametrize("name", matrix.ATTACKERS)
async def test_odd_header_blocks_change_nothing_and_end_no_server(place: Place, name: str) -> None:
    pids = [server.pid for server in place.servers]
    blocks = matrix.BLOCKS if len(place.servers) == 1 and not place.is_sampled else matrix.BLOCKS[::4]

    heard, changed = await attack(place, name, matrix.odd_messages(name, blocks))

    assert changed == []
    assert heard - allowed_to_arrive(place, name) == set()
    assert [server.pid for server in place.servers] == pids
    for server in place.servers:
        async with connected(server, "admin") as admin:
            assert (await call(admin, "INFO"))["streams"] == len(matrix.STORED)


async def test_the_same_questions_reach_everything_where_all_users_are_in_one_account(tmp_path: Path) -> None:
    """So the tests above can fail."""
    with running_server(tmp_path, one_account_configuration(matrix.USERS)) as server:
        place = await asyncio.to_thread(prepared, Place([server]), audited=False)
        messages = matrix.plain_messages("evil", chosen=matrix.one_of_each_kind())

        heard, changed = await attack(place, "evil", messages)

    assert {"KV_CCM_RUNS is gone", "LOOT is new"} <= set(changed)
    assert (Account.OPS, "event") in heard


def test_every_stream_has_a_row() -> None:
    assert set(matrix.STORED) == set(matrix.layout_streams())


def test_every_subject_that_means_something_is_a_target() -> None:
    subjects = [target.subject for target in matrix.targets()]
    patterns = [
        *(
            pattern
            for wanted in matrix.plan(LayoutOptions(), with_schedules=True)
            for pattern in wanted.config["subjects"]
        ),
        *(grant.subject for grant in grants()),
        *(line for allowed in matrix.VICTIMS.values() for line in allowed.subscribe),
    ]

    assert [one for one in patterns if not any(subject_matches(one, subject) for subject in subjects)] == []


@pytest.mark.parametrize("name", matrix.ATTACKERS)
def test_every_permission_is_asked_for(name: str) -> None:
    asked = matrix.questions(name)

    for line in matrix.ATTACKERS[name].publish:
        mine = [question for question in asked if question.line == line]
        assert mine, line
        assert [question for question in mine if not subject_matches(line, question.subject)] == []
