"""Reading by direct get: pages, many keys, replicas that lag, clusters that lose a leader."""

from __future__ import annotations

import asyncio
import hashlib
import random

import pytest

from ccm_agent.bus import retry_window, streams
from ccm_agent.bus.connection.broker_errors import NoRespondersError
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.layout import make
from ccm_agent.bus.objects import NatsObjects
from ccm_agent.bus.streams import Ack, call, explain_no_responders, read_all, read_last, read_newest, store
from ccm_agent.bus.subjects import event_subject, run_pattern
from ccm_agent.model.errors import (
    BusSetupError,
    BusUnavailableError,
    NotFoundError,
    ProtocolError,
    RevisionError,
)
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import TRANSACTION_EVENT
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.secret import Secret
from tests.support.nats_server import eventually, prepare, running_cluster, running_server, settings

pytestmark = pytest.mark.nats


@pytest.fixture
async def operator(tmp_path):
    """A connection to a server with the project's streams."""
    with running_server(tmp_path) as server:
        await prepare(server)
        async with Connection(settings(server, "op")) as connection:
            await connection.connect_now()
            yield connection


@pytest.fixture
async def cluster(tmp_path):
    """Three servers with the project's streams, three copies each."""
    with running_cluster(tmp_path) as servers:
        await prepare(servers)
        yield servers


async def test_many_pages_are_one_reading(operator, monkeypatch) -> None:
    monkeypatch.setattr(streams, "PAGE_MESSAGES", 7)
    for number in range(50):
        await store(operator, f"$KV.CCM_RUNS.r{number % 2}.{number}", str(number).encode())

    everything = [each.body async for each in read_all(operator, "KV_CCM_RUNS", "$KV.CCM_RUNS.>")]
    even = [each.body async for each in read_all(operator, "KV_CCM_RUNS", "$KV.CCM_RUNS.r0.*")]
    later = [each.body async for each in read_all(operator, "KV_CCM_RUNS", "$KV.CCM_RUNS.>", 48)]

    assert everything == [str(number).encode() for number in range(50)]
    assert even == [str(number).encode() for number in range(0, 50, 2)]
    assert later == [b"47", b"48", b"49"]


async def test_a_page_ends_at_its_bytes_and_reading_continues(operator, monkeypatch) -> None:
    monkeypatch.setattr(streams, "PAGE_BYTES", 2500)
    for number in range(10):
        await store(operator, f"$KV.CCM_RUNS.{number}", b"x" * 1000)

    found = [each async for each in read_all(operator, "KV_CCM_RUNS", "$KV.CCM_RUNS.>")]
    newest = await read_newest(operator, "KV_CCM_RUNS", ["$KV.CCM_RUNS.>"])

    assert [each.sequence for each in found] == list(range(1, 11))
    assert newest == found


async def test_reading_the_missing_part_gives_nothing(operator) -> None:
    assert [each async for each in read_all(operator, "KV_CCM_RUNS", "$KV.CCM_RUNS.>")] == []
    assert await read_newest(operator, "KV_CCM_RUNS", ["$KV.CCM_RUNS.>"]) == []
    assert await read_last(operator, "KV_CCM_RUNS", "$KV.CCM_RUNS.none") is None


async def test_more_keys_than_the_broker_gives_at_once_are_all_found(operator) -> None:
    facts = NatsKeyValue(operator, "CCM_FACTS")
    async with asyncio.TaskGroup() as group:
        for number in range(1100):
            group.create_task(facts.put(f"n{number:04}", b"old"))
    for number in (0, 500, 1099):
        await facts.put(f"n{number:04}", b"new")
    await facts.delete("n0001")

    found = await facts.entries()

    assert len(found) == 1099
    assert [entry.key for entry in found if entry.value == b"new"] == ["n0000", "n0500", "n1099"]


async def test_no_reader_makes_a_consumer(operator) -> None:
    bucket = NatsKeyValue(operator, "CCM_DATA")
    objects = NatsObjects(operator, "CCM_MANIFESTS")

    await bucket.put("common", b"one")
    await bucket.entries()
    await bucket.history("common")
    await objects.put("site", b"x" * 500_000)
    await objects.get("site", 1 << 20)
    await NatsEvents(operator).read("io.choria.ccm.v1.>")

    listed = await call(operator, "STREAM.LIST")
    assert {stream["state"]["consumer_count"] for stream in listed["streams"]} == {0}


async def test_a_revision_that_no_replica_shows_is_an_error_and_not_an_older_one(
    operator, monkeypatch
) -> None:
    monkeypatch.setattr(retry_window, "LAG_S", 0.05)
    revision = await store(operator, "$KV.CCM_DATA.common", b"one")

    found = await read_last(operator, "KV_CCM_DATA", "$KV.CCM_DATA.common", revision.sequence)
    with pytest.raises(BusUnavailableError, match="revision 2"):
        await read_last(operator, "KV_CCM_DATA", "$KV.CCM_DATA.common", revision.sequence + 1)
    with pytest.raises(BusUnavailableError, match="revision 2"):
        await read_newest(operator, "KV_CCM_DATA", ["$KV.CCM_DATA.common"], revision.sequence + 1)

    assert found.sequence == 1
    assert await read_newest(operator, "KV_CCM_DATA", ["$KV.CCM_DATA.common"], 1) == [found]
    assert await read_last(operator, "KV_CCM_DATA", "$KV.CCM_DATA.gone", 1) is None


async def test_acknowledgements_say_where_and_whether_again(operator) -> None:
    subject = event_subject(TRANSACTION_EVENT, "web1", new_id())

    first = await store(operator, subject, b"one", {"Nats-Msg-Id": "id1"})
    again = await store(operator, subject, b"one", {"Nats-Msg-Id": "id1"})

    assert first == Ack(1, "CCM_EVENTS", duplicate=False)
    assert again == Ack(1, "CCM_EVENTS", duplicate=True)


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        pytest.param({"Nats-Expected-Stream": "OTHER"}, BusSetupError, id="another stream"),
        pytest.param({"Nats-Expected-Last-Subject-Sequence": "9"}, RevisionError, id="another revision"),
        pytest.param({"Nats-TTL": "60"}, ProtocolError, id="a lifetime where there is none"),
    ],
)
async def test_a_refusal_of_a_stream_has_its_own_error(operator, headers, error) -> None:
    with pytest.raises(error):
        await store(operator, "$KV.CCM_DATA.common", b"one", headers)


async def test_storing_without_a_stream_names_the_remedy(operator) -> None:
    with pytest.raises(BusUnavailableError, match="nats kv add NO_SUCH"):
        await store(operator, "$KV.NO_SUCH.key", b"one")


async def test_an_answer_that_is_not_from_a_stream_is_refused(operator) -> None:
    waiting = []
    await operator.subscribe(["trap"], waiting.append)
    asking = asyncio.ensure_future(store(operator, "trap", b"one"))
    await operator.publish("other", b"", confirm=True)

    [token] = operator._waiting
    await operator.publish(f"{operator._inbox}.{token}", b"not an acknowledgement")

    with pytest.raises(ProtocolError, match="not a JetStream acknowledgement"):
        await asking


async def test_a_tampered_object_is_refused(operator) -> None:
    objects = NatsObjects(operator, "CCM_MANIFESTS")
    await objects.put("site", b"x" * 300_000)
    [chunks] = {
        each.subject async for each in read_all(operator, "OBJ_CCM_MANIFESTS", "$O.CCM_MANIFESTS.C.>")
    }

    await call(operator, "STREAM.PURGE.OBJ_CCM_MANIFESTS", {"filter": chunks, "keep": 1})
    with pytest.raises(ProtocolError, match="of its 300000 bytes"):
        await objects.get("site", 1 << 20)
    await store(operator, chunks, b"y" * (300_000 - 37_856))
    with pytest.raises(ProtocolError, match="does not match its digest"):
        await objects.get("site", 1 << 20)


async def test_a_replaced_object_leaves_no_chunks_behind(operator) -> None:
    objects = NatsObjects(operator, "CCM_MANIFESTS")

    await objects.put("site", b"x" * 300_000)
    await objects.put("site", b"y" * 300_000)

    assert await messages_of_bundles(operator) == 4


async def test_a_renewed_object_leaves_its_description_behind_until_it_is_trimmed(operator) -> None:
    objects = NatsObjects(operator, "CCM_MANIFESTS")

    await objects.put("site", b"y" * 300_000)
    await objects.put("site", b"y" * 300_000)
    renewed = await messages_of_bundles(operator)
    await objects.trim()

    assert (renewed, await messages_of_bundles(operator)) == (5, 4)


async def messages_of_bundles(operator) -> int:
    return (await call(operator, "STREAM.INFO.OBJ_CCM_MANIFESTS"))["state"]["messages"]


async def test_objects_are_compatible_with_other_clients(operator) -> None:
    import nats

    other = await nats.connect(operator.settings.servers[0])
    theirs = await other.jetstream().object_store("CCM_MANIFESTS")
    ours = NatsObjects(operator, "CCM_MANIFESTS")
    content = random.Random(1).randbytes(400_000)

    await theirs.put("from them", content)
    await ours.put("from us", content)

    assert await ours.get("from them", 1 << 20) == content
    assert await ours.digest("from them") == hashlib.sha256(content).hexdigest()
    assert (await theirs.get("from us")).data == content
    await theirs.delete("from them")
    with pytest.raises(NotFoundError):
        await ours.get("from them", 1 << 20)
    await other.close()


async def test_buckets_are_compatible_with_other_clients(operator) -> None:
    import nats

    other = await nats.connect(operator.settings.servers[0])
    theirs = await other.jetstream().key_value("CCM_DATA")
    ours = NatsKeyValue(operator, "CCM_DATA")

    await theirs.put("from.them", b"one")
    await ours.put("from.us", b"two")

    assert (await ours.get("from.them")).value == b"one"
    assert (await theirs.get("from.us")).value == b"two"
    await theirs.delete("from.them")
    assert await ours.get("from.them") is None
    await theirs.purge("from.us")
    assert await ours.get("from.us") is None
    await other.close()


async def test_a_cluster_that_loses_a_leader_keeps_every_event_once_and_in_order(cluster) -> None:
    run = new_id()
    subject = event_subject(TRANSACTION_EVENT, "web1", run)
    async with asyncio.timeout(90), Connection(settings(cluster, "op", answer_s=1.0)) as connection:
        await connection.connect_now()
        events = NatsEvents(connection)

        async def publish(number: int) -> int:
            return (await events.publish(subject, f"id{number}", str(number).encode())).sequence

        for number in range(10):
            await publish(number)
        leader = (await eventually(lambda: call(connection, "STREAM.INFO.CCM_EVENTS")))["cluster"]["leader"]
        await asyncio.to_thread(next(each for each in cluster if each.settings.name == leader).kill)
        for number in range(10, 20):
            await eventually(lambda number=number: publish(number))
        found: list[StoredEvent] = []
        while len(found) < 20:  # a replica may lag behind what its leader acknowledged
            found = await eventually(lambda: events.read(run_pattern(run)))

    assert [int(event.body) for event in found] == list(range(20))


async def test_a_new_write_is_read_from_any_replica(cluster) -> None:
    async with Connection(settings(cluster[0], "op")) as writer:
        await writer.connect_now()
        for server in cluster:
            async with Connection(settings(server, "web1")) as reader:
                await reader.connect_now()
                for number in range(50):
                    revision = await NatsKeyValue(writer, "CCM_DATA").put("common", str(number).encode())
                    entry = await NatsKeyValue(reader, "CCM_DATA").get("common", at_least=revision)

                    assert (entry.value, entry.revision) == (str(number).encode(), revision)
                await NatsObjects(writer, "CCM_MANIFESTS").put(server.settings.name, b"x" * 400_000)
                assert (
                    len(await NatsObjects(reader, "CCM_MANIFESTS").get(server.settings.name, 1 << 20))
                    == 400_000
                )


async def test_the_table_of_streams_can_be_made_while_a_server_is_down(cluster) -> None:
    await asyncio.to_thread(cluster[2].kill)

    async with asyncio.timeout(60), Connection(settings(cluster[:2], "op")) as connection:
        await connection.connect_now()
        done = await eventually(lambda: make(connection))

    assert {made.replicas for made in done} == {3}


@pytest.mark.parametrize(
    ("bucket", "advice"),
    [("SITE_KEYS", "create it with `nats kv add SITE_KEYS`"), ("CCM_DATA2", "create it with `ccmctl init`")],
)
async def test_a_bucket_that_does_not_exist_is_named_with_the_command_that_creates_it(
    operator, bucket, advice
):
    with pytest.raises(BusUnavailableError) as caught:
        await NatsKeyValue(operator, bucket).get("key")

    assert advice in str(caught.value)
    assert bucket in str(caught.value)


async def test_an_account_without_jetstream_is_named_although_nothing_answers_for_its_streams(
    tmp_path,
) -> None:
    accounts = "accounts { A { users: [{ user: a, password: a }] }, B { jetstream: enabled } }"
    with running_server(tmp_path, accounts) as server:
        async with Connection(settings(server, "a", user="a", password=Secret("a"))) as connection:
            await connection.connect_now()
            with pytest.raises(NoRespondersError) as caught:
                await read_last(connection, "KV_CCM_NODES", "$KV.CCM_NODES.node.web1")

            explained = await explain_no_responders(connection, caught.value)

    assert "JetStream not enabled for account" in str(explained)


async def test_a_missing_bucket_stays_the_reason_where_jetstream_is_on(operator) -> None:
    missing = NoRespondersError("the broker has no bucket CCM_RUNS")

    assert await explain_no_responders(operator, missing) is missing
