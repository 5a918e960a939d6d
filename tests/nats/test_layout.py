"""What `make` does to a broker: nothing is there, something is there, something else is there."""

from __future__ import annotations

import asyncio

import pytest

from ccm_agent.bus.access.accounts import STREAMS
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.layout import LayoutOptions, make
from ccm_agent.bus.stream_creation import LayoutAction, LayoutChange
from ccm_agent.bus.streams import call, read_last, store
from ccm_agent.bus.subjects import registration_subject
from ccm_agent.model.errors import BusError, BusSetupError, ProtocolError
from tests.support.nats_server import WAIT_S, Heard, eventually, running_cluster, running_server, settings
from tests.support.one_account import make_old_streams

pytestmark = pytest.mark.nats

NAMES = [
    ("CCM_NODES", "bucket"),
    ("CCM_FACTS", "bucket"),
    ("CCM_DATA", "bucket"),
    ("CCM_NODE_DATA", "bucket"),
    ("CCM_ASSIGNMENTS", "bucket"),
    ("CCM_RUNS", "bucket"),
    ("CCM_SLOTS", "bucket"),
    ("CCM_SECRETS", "bucket"),
    ("CCM_TRUST", "bucket"),
    ("CCM_JOINS", "bucket"),
    ("CCM_MANIFESTS", "objects"),
    ("CCM_EVENTS", "stream"),
    ("REGISTRATION", "stream"),
    ("CCM_SCHEDULES", "stream"),
]


@pytest.fixture
async def operator(tmp_path):
    """A connection to a server with nothing on it."""
    with running_server(tmp_path) as server:
        async with Connection(settings(server, "op")) as connection:
            await connection.connect_now()
            yield connection


async def config(connection: Connection, stream: str) -> dict:
    """A stream as the broker has it."""
    return (await call(connection, f"STREAM.INFO.{stream}"))["config"]


async def test_everything_is_created_once(operator) -> None:
    first = await make(operator)
    second = await make(operator)

    assert first == [LayoutChange(name=n, kind=k, action=LayoutAction.CREATED, replicas=1) for n, k in NAMES]
    assert second == [
        LayoutChange(name=n, kind=k, action=LayoutAction.UNCHANGED, replicas=1) for n, k in NAMES
    ]


async def test_manual_changes_are_corrected_and_reported(operator) -> None:
    await make(operator)
    changed = await config(operator, "KV_CCM_FACTS")
    del changed["republish"]
    await call(operator, "STREAM.UPDATE.KV_CCM_FACTS", changed | {"max_msgs_per_subject": 3})

    done = {made.name: made for made in await make(operator)}

    assert done["CCM_FACTS"].action is LayoutAction.UPDATED
    assert "max_msgs_per_subject 3 → 20" in done["CCM_FACTS"].details
    assert {made.action for name, made in done.items() if name != "CCM_FACTS"} == {LayoutAction.UNCHANGED}
    assert (await config(operator, "KV_CCM_FACTS"))["republish"]["dest"] == "choria.ccm.poke.CCM_FACTS.>"


async def test_limits_raised_by_an_operator_are_never_lowered(operator) -> None:
    await make(operator)
    changed = await config(operator, "CCM_EVENTS")
    await call(operator, "STREAM.UPDATE.CCM_EVENTS", changed | {"max_bytes": 1 << 35, "max_age": 0})

    done = {made.name: made for made in await make(operator)}

    assert done["CCM_EVENTS"] == LayoutChange(
        name="CCM_EVENTS",
        kind="stream",
        action=LayoutAction.UNCHANGED,
        replicas=1,
        details=(
            "max_age stays unlimited (2.592e+06 s was requested)",
            "max_bytes stays 34359738368 (2147483648 was requested)",
        ),
    )


async def test_events_are_kept_for_30_days_and_recognized_for_an_hour(operator) -> None:
    await make(operator)

    has = await config(operator, "CCM_EVENTS")

    assert has["max_age"] == 30 * 86_400 * 10**9
    assert has["duplicate_window"] == 3600 * 10**9
    assert has["discard"] == "old"
    assert sorted(has["subjects"]) == [
        "io.choria.ccm.v1.agent.*.>",
        "io.choria.ccm.v1.session.start.*.>",
        "io.choria.ccm.v1.session.summary.*.>",
        "io.choria.ccm.v1.transaction.event.*.>",
    ]


async def test_a_window_longer_than_events_live_is_cut_to_their_life(operator) -> None:
    await make(operator, LayoutOptions(events_age_s=600))

    has = await config(operator, "CCM_EVENTS")

    assert (has["max_age"], has["duplicate_window"]) == (600 * 10**9, 600 * 10**9)


async def test_facts_data_and_assignments_have_history_and_nodes_and_runs_do_not(operator) -> None:
    await make(operator)

    kept = {
        name: (await config(operator, f"KV_{name}"))["max_msgs_per_subject"]
        for name, kind in NAMES
        if kind == "bucket"
    }

    assert kept == {
        "CCM_NODES": 1,
        "CCM_FACTS": 20,
        "CCM_DATA": 20,
        "CCM_NODE_DATA": 1,
        "CCM_ASSIGNMENTS": 20,
        "CCM_RUNS": 1,
        "CCM_SLOTS": 1,
        "CCM_SECRETS": 1,
        "CCM_TRUST": 20,
        "CCM_JOINS": 1,
    }


async def test_one_message_cannot_erase_the_keys_of_all_nodes(operator) -> None:
    await make(operator)
    nodes = NatsKeyValue(operator, "CCM_NODES")
    await nodes.put("node.web2", b"here")

    for rollup in ("all", "sub"):
        with pytest.raises(BusError):
            await store(operator, "$KV.CCM_NODES.presence.web1", b"x", {"Nats-Rollup": rollup})

    assert await nodes.keys() == ["node.web2"]


async def test_presence_expires_by_itself(operator) -> None:
    await make(operator)
    nodes = NatsKeyValue(operator, "CCM_NODES")

    await nodes.put("presence.web1", b"here", ttl_s=1)
    await nodes.put("node.web1", b"stays")
    assert await nodes.keys() == ["node.web1", "presence.web1"]

    async with asyncio.timeout(WAIT_S):
        while await nodes.get("presence.web1") is not None:  # noqa: ASYNC110 — the broker tells nobody of an expiry
            await asyncio.sleep(0.05)
    assert await nodes.keys() == ["node.web1"]


async def test_registrations_roll_up_as_the_reference_sends_them_unless_secured(operator) -> None:
    subject = registration_subject("prod", "http", "web", "10.0.0.1", "abc")
    await make(operator)

    await store(operator, subject, b"one", {"Nats-Rollup": "sub", "Nats-TTL": "60"})
    await make(operator, LayoutOptions(secure=True))
    with pytest.raises(ProtocolError):
        await store(operator, subject, b"two", {"Nats-Rollup": "all"})
    await store(operator, subject, b"three", {"Nats-TTL": "60"})

    state = (await call(operator, "STREAM.INFO.REGISTRATION"))["state"]
    assert state["messages"] == 1


async def test_a_secured_broker_stays_secured_when_init_runs_again(operator) -> None:
    await make(operator, LayoutOptions(secure=True))

    done = {made.name: made.action for made in await make(operator)}

    assert done["REGISTRATION"] is LayoutAction.UNCHANGED
    assert not (await config(operator, "REGISTRATION")).get("allow_rollup_hdrs", False)


async def test_schedules_are_optional(operator) -> None:
    done = await make(operator, LayoutOptions(schedules=False))

    assert done[-1] == LayoutChange(
        name="CCM_SCHEDULES", kind="stream", action=LayoutAction.SKIPPED, details=("not requested",)
    )


async def test_an_older_server_is_distinguished_and_named(operator) -> None:
    from ccm_agent.bus.connection.settings import replaced

    server = operator.server
    operator.server = replaced(server, version=(2, 12, 4))

    done = await make(operator)
    with pytest.raises(BusSetupError, match=r"nats-server 2\.14 or newer is required, but this is 2\.12\.4"):
        await make(operator, LayoutOptions(schedules=True))
    operator.server = replaced(server, version=(2, 10, 29))
    with pytest.raises(BusSetupError, match=r"nats-server 2\.11 or newer is required"):
        await make(operator)

    assert done[-1].action is LayoutAction.SKIPPED


async def test_without_jetstream_nothing_is_tried(tmp_path) -> None:
    with running_server(tmp_path, "jetstream: disabled") as server:
        async with Connection(settings(server, "op")) as connection:
            await connection.connect_now()
            assert not connection.server.has_jetstream

            with pytest.raises(BusSetupError, match="JetStream is off"):
                await make(connection)


async def test_more_copies_than_servers_are_an_error_only_when_asked_for(operator) -> None:
    with pytest.raises(BusSetupError, match="request fewer replicas"):
        await make(operator, LayoutOptions(replicas=3))


async def test_a_broker_without_enough_storage_raises(tmp_path) -> None:
    with running_server(tmp_path) as server:
        await asyncio.to_thread(server.stop)
        text = server.settings.extra
        server.settings = type(server.settings)(directory=tmp_path, extra=text, max_file="1GB")
        await asyncio.to_thread(server.start)
        async with Connection(settings(server, "op")) as connection:
            await connection.connect_now()

            with pytest.raises(BusSetupError, match="add storage to the broker"):
                await make(connection)

            assert [made.action for made in await make(connection, LayoutOptions(events_bytes=1 << 29))][
                0:5
            ] == [LayoutAction.UNCHANGED] * 5


async def test_a_cluster_of_three_keeps_three_copies(tmp_path) -> None:
    with running_cluster(tmp_path) as servers:
        async with Connection(settings(servers, "op")) as connection:
            await connection.connect_now()

            first = await make(connection)
            second = await make(connection)

    assert {(made.action, made.replicas) for made in first} == {(LayoutAction.CREATED, 3)}
    assert {(made.action, made.replicas) for made in second} == {(LayoutAction.UNCHANGED, 3)}


async def test_one_copy_becomes_three_when_the_cluster_has_grown(tmp_path) -> None:
    with running_cluster(tmp_path) as servers:
        async with Connection(settings(servers, "op")) as connection:
            await connection.connect_now()
            await make(connection, LayoutOptions(replicas=1))

            done = await make(connection)

    assert {(made.action, made.replicas, made.details) for made in done} == {
        (LayoutAction.UPDATED, 3, ("num_replicas 1 → 3",))
    }


async def test_a_write_notices_without_its_value(operator) -> None:
    await make(operator)
    heard = Heard()
    await operator.subscribe(["choria.ccm.poke.>"], heard)

    await NatsKeyValue(operator, "CCM_FACTS").put("web1", b"secret")

    [message] = await heard.wait(1)
    assert (message.subject, message.body) == ("choria.ccm.poke.CCM_FACTS.web1", b"")
    assert message.headers["Nats-Sequence"] == "1"


async def test_streams_of_an_earlier_version_are_bounded_in_place(tmp_path) -> None:
    """Their rollup, their republishing of what nodes write, and limits that nobody chose go; what they hold stays."""
    with running_server(tmp_path) as server:
        async with Connection(settings(server, "op")) as connection:
            await connection.connect_now()
            await make_old_streams(connection)
            await NatsKeyValue(connection, "CCM_NODES").put("node.web1", b"here")
            await NatsKeyValue(connection, "CCM_ASSIGNMENTS").put("all.app", b"assigned")

            done = {made.name: made for made in await make(connection, LayoutOptions(secure=True))}
            again = await make(connection, LayoutOptions(secure=True))
            now = {name: await config(connection, name) for name in STREAMS}
            kept = await NatsKeyValue(connection, "CCM_NODES").keys()
            with pytest.raises(BusError):
                await store(connection, "$KV.CCM_ASSIGNMENTS.all.x", b"x", {"Nats-Rollup": "all"})
            assigned = await NatsKeyValue(connection, "CCM_ASSIGNMENTS").get("all.app")

    assert {name for name, made in done.items() if made.action is LayoutAction.UPDATED} == {
        "CCM_NODES", "CCM_FACTS", "CCM_DATA", "CCM_ASSIGNMENTS", "CCM_RUNS", "CCM_MANIFESTS", "CCM_EVENTS", "REGISTRATION",
    }  # fmt: skip
    assert {made.action for made in again} == {LayoutAction.UNCHANGED}
    assert {name for name, one in now.items() if one.get("allow_rollup_hdrs")} == {"CCM_SCHEDULES"}
    assert now["KV_CCM_NODES"].get("republish") is None
    assert (now["CCM_EVENTS"]["max_msg_size"], now["REGISTRATION"]["max_msg_size"]) == (80 << 10, 8 << 10)
    assert (kept, assigned.value) == (["node.web1"], b"assigned")


async def flood(connection: Connection) -> None:
    """Register more than there is room for."""
    for number in range(20):
        subject = registration_subject("prod", "http", "web", "10.0.0.9", str(number))
        await store(connection, subject, b"x" * 8000)


@pytest.mark.parametrize("servers", [1, 3])
async def test_a_node_cannot_displace_registrations_of_others(tmp_path, servers) -> None:
    start = running_server if servers == 1 else running_cluster
    others = registration_subject("prod", "http", "web", "10.0.0.1", "abc")
    with start(tmp_path) as broker:
        async with Connection(settings(broker, "op")) as connection:
            await connection.connect_now()
            await eventually(lambda: make(connection, LayoutOptions(secure=True)))
            small = await config(connection, "REGISTRATION")
            await call(connection, "STREAM.UPDATE.REGISTRATION", small | {"max_bytes": 64 << 10})
            await eventually(lambda: store(connection, others, b"one"))

            with pytest.raises(BusError):
                await flood(connection)

            renewed = await store(connection, others, b"two")
            found = await read_last(connection, "REGISTRATION", others, renewed.sequence)
    assert found.body == b"two"


async def test_writes_of_nodes_cause_no_notifications(operator) -> None:
    await make(operator)
    heard = Heard()
    await operator.subscribe(["choria.ccm.poke.>"], lambda message: heard(message.subject))

    await NatsKeyValue(operator, "CCM_NODES").put("node.web1", b"x")
    await NatsKeyValue(operator, "CCM_FACTS").put("web1", b"x")

    assert await heard.wait(1) == ["choria.ccm.poke.CCM_FACTS.web1"]
