"""Documents of one node on a broker that knows its users: no other node gets them, in whatever way it asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.access.accounts import Account
from ccm_agent.bus.access.credentials import (
    new_authority,
    public_key,
    scoped_credentials,
    server_configuration,
    user_credentials,
)
from ccm_agent.bus.access.permissions import Role, node_permissions, operator_permissions
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.layout import LayoutOptions, make
from ccm_agent.bus.node_data import NodeData, can_read_own, open_bucket, slot_key, slots_of
from ccm_agent.bus.subjects import inbox_prefix
from ccm_agent.model.errors import BusDeniedError, BusError, RevisionGoneError
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import NodeRecord
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.nats_server import NatsServer
from ccm_ctl.fleet.data.node_data import OperatorData
from ccm_ctl.fleet.trust.verified_reader import Judged, VerifiedReader
from tests.support.nats_server import (
    WAIT_S,
    connected,
    eventually,
    running_cluster,
    secured_server,
    users_configuration,
)
from tests.support.signing import OWN

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

NODES = ("web1", "db1", "db1.example.net")
USERS = {name: node_permissions(name) for name in NODES} | {
    "ann": operator_permissions("ann", Role(data=True)),
    "admin": operator_permissions("admin", Role(apply=(">",), data=True, admin=True)),
}
SECRET = b"S3CRET"
TEXTS = "KV_CCM_NODE_DATA"
QUIET_S = 0.4
"""When nothing has arrived for so long, nothing more will: the broker answers in milliseconds."""


async def judge(entries: Sequence[KeyValueEntry]) -> list[Judged]:
    """Everything is verified, as in unsigned operation."""
    return VerifiedReader(None, FakeClock(), is_demanded=False).history("CCM_DATA", entries)


def with_credentials(directory: Path) -> str:
    """The users by credentials, in files; what the broker must know of them."""
    authority = new_authority()
    for name, allowed in USERS.items():
        if allowed.account == Account.NODES:
            made = scoped_credentials(authority.node_signer, public_key(authority.nodes), name, allowed.tags)
        else:
            made = user_credentials(authority.of(allowed.account), name, allowed)
        (directory / f"{name}.creds").write_text(made.text.reveal())
    return server_configuration(authority)


@pytest.fixture(scope="module", params=["users", "credentials"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    directory = tmp_path_factory.mktemp("nats")
    known = users_configuration(USERS) if request.param == "users" else with_credentials(directory)
    with secured_server(directory, known) as one:
        yield one


@contextlib.asynccontextmanager
async def operator(server: NatsServer, name: str = "ann") -> AsyncIterator[OperatorData]:
    """The data as an operator has them."""
    async with connected(server, name) as connection:
        buckets = (NatsKeyValue(connection, f"CCM_{each}") for each in ("DATA", "NODE_DATA", "NODES"))
        yield OperatorData(*buckets, None)


@contextlib.asynccontextmanager
async def node(server: NatsServer, name: str) -> AsyncIterator[NodeData]:
    """The data as a node has them."""
    async with connected(server, name) as connection:
        data = open_bucket(connection, "CCM_DATA")
        assert isinstance(data, NodeData)
        yield data


def document(key: str, number: int, body: str) -> bytes:
    return msgspec.json.encode(Stamped(bucket="CCM_DATA", key=key, number=number, body=body))


def body_of(value: bytes) -> str:
    return str(msgspec.json.decode(value, type=Stamped).body)


async def put(data: OperatorData, key: str, *bodies: str) -> list[int]:
    """Write a document several times, and return its revisions."""
    newest = await data.newest(key)
    revision = newest.revision if newest is not None and newest.value else 0
    revisions = []
    for number, body in enumerate(bodies, start=revision + 1):
        revision = await data.write(key, document(key, number, body), revision, OWN)
        revisions.append(revision)
    return revisions


async def announce(server: NatsServer, name: str, *, own_data: bool) -> None:
    """What a node says about itself."""
    async with connected(server, name) as connection:
        record = msgspec.json.encode(NodeRecord(node=name, own_data=own_data))
        await NatsKeyValue(connection, "CCM_NODES").put(f"node.{name}", record)


def questions(victim: str) -> Iterator[tuple[str, bytes]]:
    """Every form in which JetStream can be asked for what it stores."""
    key = f"node/{victim}"
    subjects = [f"$KV.CCM_NODE_DATA.{slot_key(key, slot)}" for slot in range(4)]
    wild = [f"$KV.CCM_NODE_DATA.{slots_of(key)}.{each}" for each in ("*", ">")]
    wild += ["$KV.CCM_NODE_DATA.>", "$KV.CCM_NODE_DATA.*.*.*", "$KV.>", ">"]
    for stream in (TEXTS, "KV_CCM_DATA"):
        for subject in (*subjects, *wild, f"$KV.CCM_DATA.{key}"):
            yield f"$JS.API.DIRECT.GET.{stream}.{subject}", b""
            for body in bodies(subject):
                text = json.dumps(body).encode()
                yield f"$JS.API.DIRECT.GET.{stream}", text
                yield f"$JS.API.DIRECT.GET.{stream}.{subject}", text
                yield f"$JS.API.STREAM.MSG.GET.{stream}", text
        for verb in ("INFO", "SNAPSHOT", "PURGE"):
            yield (
                f"$JS.API.STREAM.{verb}.{stream}",
                b'{"subjects_filter":">","deliver_subject":"_INBOX_web1.s"}',
            )
        config = {"deliver_subject": "_INBOX_web1.c", "ack_policy": "none", "deliver_policy": "all"}
        created = json.dumps({"stream_name": stream, "config": config}).encode()
        yield f"$JS.API.CONSUMER.CREATE.{stream}", created
        yield f"$JS.API.CONSUMER.CREATE.{stream}.x", created
        yield f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.x", created
        yield f"$JS.API.CONSUMER.MSG.NEXT.{stream}.x", b"10"


def bodies(subject: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = [
        {"seq": 1},
        {"last_by_subj": subject},
        {"next_by_subj": subject, "seq": 1},
        {"next_by_subj": subject, "seq": 1, "batch": 50},
        {"multi_last": [subject], "batch": 50},
        {"multi_last": [subject], "batch": 50, "up_to_seq": 1000},
        {"batch": 50, "seq": 1},
        {"start_time": "2020-01-01T00:00:00Z", "batch": 50},
    ]
    return found + [each | {"no_hdr": True} for each in found]


async def everything_asked(connection: Connection, name: str, victim: str) -> list[bytes]:
    """Bodies of all that arrives when a user asks for a node's document in each form, answered to its inbox."""
    arrived: list[bytes] = []
    more = asyncio.Event()

    def came(message: object) -> None:
        arrived.append(message.body)  # type: ignore[attr-defined]
        more.set()

    made = await connection.subscribe([f"{inbox_prefix(name)}.>"], came)
    for subject, body in questions(victim):
        await connection.publish(subject, body, reply=f"{inbox_prefix(name)}.attack.x")
    with contextlib.suppress(TimeoutError):
        while True:
            more.clear()
            async with asyncio.timeout(QUIET_S):
                await more.wait()
    await connection.unsubscribe(made)
    return arrived


async def test_node_reads_its_own_document_and_its_past(server: NatsServer) -> None:
    key = "node/db1"
    async with operator(server) as ann:
        revisions = await put(ann, key, "one", "two", "three")

    async with node(server, "db1") as db1:
        newest = await db1.get(key)
        past = [await db1.as_of(key, revision) for revision in revisions]

    assert newest is not None
    assert (newest.revision, body_of(newest.value)) == (revisions[-1], "three")
    assert [body_of(entry.value) for entry in past if entry] == ["one", "two", "three"]


@pytest.mark.parametrize("victim", ["db1", "db1.example.net"])
async def test_no_other_node_gets_a_document_however_it_asks(server: NatsServer, victim: str) -> None:
    key = f"node/{victim}"
    async with operator(server) as ann:
        await put(ann, key, *(f"{SECRET.decode()} {number}" for number in range(3)))
    others = [name for name in NODES if name != victim]

    found = {}
    for name in (*others, victim):
        async with connected(server, name) as connection:
            found[name] = await everything_asked(connection, name, victim)

    assert {name: any(SECRET in body for body in found[name]) for name in found} == {
        **dict.fromkeys(others, False),
        victim: True,
    }
    assert all(found.values())  # the index entries, which every node can read


def test_no_other_node_gets_a_document_from_any_server_of_a_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async def attack(servers: list[NatsServer]) -> dict[tuple[str, int], bool]:
        async with connected(servers[0], "admin") as admin:
            await make(admin, LayoutOptions(secure=True))
        async with operator(servers[0]) as ann:
            await put(ann, "node/db1", SECRET.decode())
        found = {}
        for name in ("web1", "db1"):
            for number, server in enumerate(servers):
                async with connected(server, name) as connection:
                    arrived = await everything_asked(connection, name, "db1")
                assert arrived  # index entries
                found[name, number] = any(SECRET in body for body in arrived)
        return found

    known = users_configuration(USERS)
    with running_cluster(tmp_path_factory.mktemp("cluster"), known, user="admin", password="admin") as three:
        found = asyncio.run(eventually(lambda: attack(three)))

    assert found == {(name, number): name == "db1" for name in ("web1", "db1") for number in range(3)}


async def test_no_other_node_hears_of_a_document_more_than_that_it_changed(server: NatsServer) -> None:
    patterns = [
        ">",
        "$KV.>",
        "$KV.CCM_NODE_DATA.>",
        "choria.ccm.poke.CCM_NODE_DATA.>",
        "_R_.>",
        "_INBOX_db1.>",
    ]
    heard: list[tuple[str, bytes]] = []
    async with connected(server, "web1") as connection, operator(server) as ann, node(server, "db1") as db1:
        for pattern in patterns:
            with pytest.raises(BusDeniedError):
                await connection.subscribe([pattern], lambda _message: None)
        poked = asyncio.Event()

        def came(message: object) -> None:
            heard.append((message.subject, message.body))  # type: ignore[attr-defined]
            poked.set()

        await connection.subscribe(["choria.ccm.poke.CCM_DATA.>"], came)

        await put(ann, "node/db1", SECRET.decode())
        await db1.get("node/db1")
        async with asyncio.timeout(WAIT_S):
            await poked.wait()
        await asyncio.sleep(QUIET_S)

    assert heard == [("choria.ccm.poke.CCM_DATA.node/db1", b"")]


async def test_node_that_reads_anothers_document_is_told_which_node_may(server: NatsServer) -> None:
    async with operator(server) as ann:
        await put(ann, "node/db1", "one")

    async with node(server, "web1") as web1:
        with pytest.raises(BusDeniedError, match="only the node db1 may read it"):
            await web1.get("node/db1")


async def test_node_sees_whether_its_credentials_let_it_read_its_own_documents(server: NatsServer) -> None:
    async with connected(server, "web1") as connection:
        assert await can_read_own(connection, "web1") is True
        assert await can_read_own(connection, "db1") is False


async def test_documents_are_moved_with_their_past_and_their_old_place_is_emptied(server: NatsServer) -> None:
    key, pinned = "node/db1.example.net", []
    await announce(server, "db1.example.net", own_data=False)
    async with operator(server) as ann:
        before = await ann.exposed()
        pinned = await put(ann, key, *(f"{SECRET.decode()} {number}" for number in range(4)))
        exposed = await ann.exposed()
    async with connected(server, "web1") as connection:
        leaked = await everything_asked(connection, "web1", "db1.example.net")
    await announce(server, "db1.example.net", own_data=True)

    async with operator(server) as ann:
        with pytest.raises(
            BusDeniedError, match="bucket CCM_DATA: the broker does not allow ann to create or change it"
        ):
            await ann.protect(key, judge)
        assert key in await ann.exposed()
    async with operator(server, "admin") as admin:
        await admin.protect(key, judge)
        after = await admin.exposed()
        history = [(entry.revision, body_of(entry.value)) for entry in await admin.history(key)]

    async with connected(server, "web1") as connection:
        found = await everything_asked(connection, "web1", "db1.example.net")
    async with node(server, "db1.example.net") as own:
        past = [await own.as_of(key, revision) for revision in pinned]
        newest = await own.get(key)
    assert (before.get(key), exposed[key], after.get(key)) == (None, 4, None)
    assert any(SECRET in body for body in leaked)
    assert not any(SECRET in body for body in found)
    expected = [(revision, f"S3CRET {number}") for number, revision in enumerate(pinned)]
    assert [(entry.revision, body_of(entry.value)) for entry in past if entry] == expected
    assert [one for one in history if one[0] in pinned] == expected
    assert newest is not None
    assert (newest.revision, body_of(newest.value)) == history[-1]
    assert newest.revision > pinned[-1]


async def test_revision_whose_text_is_lost_is_an_error_on_the_node_and_can_be_stored_again(
    server: NatsServer,
) -> None:
    key = "node/db1"
    async with operator(server) as ann, connected(server, "ann") as connection, node(server, "db1") as db1:
        revisions = await put(ann, key, "kept", "lost")
        texts = NatsKeyValue(connection, "CCM_NODE_DATA")
        slot = next(
            entry.key for entry in await texts.entries(slots_of(key)) if body_of(entry.value) == "lost"
        )
        await texts.delete(slot)

        with pytest.raises(RevisionGoneError, match="ccmctl data put"):
            await db1.get(key)
        with pytest.raises(BusError):
            await db1.as_of(key, revisions[-1])
        await put(ann, key, "again")
        newest = await db1.get(key)

    assert newest is not None
    assert body_of(newest.value) == "again"
