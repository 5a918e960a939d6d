"""
Simulated agents, several per process: `python -m bench.simulated ours|bare|controller URL …`.

`ours` are real agents on real connections, with a replaced engine that reports 50 stable resources and does not change the
host. `bare` are nats-py programs that send the same messages in the same way. They are in the inventory, so `ccmctl` can also
send them requests. In `ours-changed` and `bare-changed`, one of the resources changes, with a diff of 2 KiB. `bare-1s` and
`bare-5s` work for one or five seconds. `controller` is the bare program that sends requests to bare nodes, and waits until it
has every summary. With credentials, bare nodes sign their entries and events, and `controller` verifies summaries and their
starts. Each program prints the line `ready` when all of its nodes are subscribed, and ends when its input ends.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bench.secured import credentials_of

RESOURCES = 50
PROTOCOL = "io.choria.ccm.v1"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Real nodes have their own disks. With one shared disk, thousands of nodes would mainly measure its flushes."""

DIFF_TEXT = "".join(f"-listen 80{i:02} old\n+listen 80{i:02} new\n" for i in range(60))
"""The unified diff of a changed file: 2 KiB."""


def started(**names: Any) -> Any:
    """Return the start of a session over all resources."""
    from ccm_agent.model.ids import new_id
    from ccm_agent.model.outcome import SESSION_START, SessionStart

    now = datetime.now(UTC)
    return SessionStart(
        protocol=SESSION_START, event_id=new_id(), timestamp=now, resources=RESOURCES, **names
    )


def changed_file(**names: Any) -> Any:
    """Return an event about a changed file, with a diff of 2 KiB."""
    from ccm_agent.model.ids import new_id
    from ccm_agent.model.outcome import TRANSACTION_EVENT, TransactionEvent
    from ccm_agent.model.resource_diff import FileDiff, ResourceDiff

    return TransactionEvent(
        protocol=TRANSACTION_EVENT, event_id=new_id(), timestamp=datetime.now(UTC), type="file", provider="posix",
        name="/etc/app.conf", requested_ensure="present", final_ensure="present", duration=1, properties={}, status={}, error=[],
        changed=True, refreshed=False, failed=False, skipped=False, noop=False, unmet_requirements=[],
        diff=ResourceDiff(files=[FileDiff(path="/etc/app.conf", text=DIFF_TEXT, added=60, removed=60)]), **names,
    )  # fmt: skip


def summarized(changes: int, **names: Any) -> Any:
    """Return the summary of a session in which this many resources changed."""
    from ccm_agent.model.ids import new_id
    from ccm_agent.model.outcome import SESSION_SUMMARY, SessionSummary

    now = datetime.now(UTC)
    return SessionSummary(
        protocol=SESSION_SUMMARY, event_id=new_id(), timestamp=now, start_time=now, end_time=now, total_resources=RESOURCES,
        unique_resources=RESOURCES, stable_resources=RESOURCES - changes, changed_resources=changes,
        state="changed" if changes else "stable", **names,
    )  # fmt: skip


class StableEngine:
    """An engine with 50 unchanged resources."""

    changes = 0

    async def apply(self, source: Any, options: Any) -> Any:
        names = {"manifest": source.name, "digest": source.digest, "noop": options.noop}
        options.on_start(started(requester=options.requester, cause=options.cause, **names))
        for _ in range(self.changes):
            await options.on_event(changed_file())
        return summarized(self.changes, **names)


class ChangingEngine(StableEngine):
    """An engine with 50 resources, one of which changed, with a diff of 2 KiB."""

    changes = 1


async def ended() -> None:
    """Return when the input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


async def simulated_agent(
    url: str,
    node: str,
    folder: Path,
    stack: AsyncExitStack,
    engine: type[StableEngine] = StableEngine,
    *,
    change_pause_s: float = 5,
    **ports: Any,
) -> Any:
    """Start a real agent on its own connection, with a replaced engine and the ports in the arguments."""
    from msgspec.structs import replace

    from ccm_agent import app_agent
    from ccm_agent.agent.process.agent import Agent
    from ccm_agent.agent.state.settings import BrokerSettings, Settings, TlsConfig
    from ccm_agent.app_agent import bus_settings, read_trust
    from ccm_agent.bus.connection.connection import Connection

    creds = credentials_of(node)
    ca = os.environ.get("CCM_CA", "")
    broker = BrokerSettings(servers=(url,), creds=creds, tls=TlsConfig(ca=ca) if ca else None)
    settings = Settings(
        state_dir=str(folder / node),
        identity=node,
        broker=broker,
        connect_spread_s=2,
        change_pause_s=change_pause_s,
    )
    bus = bus_settings(broker, node, first_spread_s=settings.connect_spread_s)
    if bus is None:
        raise RuntimeError("no broker")
    # as in the process of a real agent
    gc.set_threshold(*app_agent.GARBAGE_THRESHOLD)
    connection = Connection(bus)
    await stack.enter_async_context(connection)
    made = replace(
        app_agent.agent_ports(connection, settings, trust=read_trust(creds, "")),
        make_engine=lambda *_: engine(),
        gather_facts=lambda: {"host": {"info": {"hostname": "bench"}}},
    )
    changed = {name: make(getattr(made, name)) for name, make in ports.items()}
    return Agent(settings, replace(made, **changed), version="bench")


class CountedEvents:
    """The events port of an agent. It counts all publishes in this process, and those without a timely acknowledgment."""

    attempts = 0
    failures = 0

    def __init__(self, events: Any) -> None:
        self._events = events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    async def publish(self, *given: Any) -> Any:
        """Publish an event and count it."""
        CountedEvents.attempts += 1
        try:
            return await self._events.publish(*given)
        except Exception:
            CountedEvents.failures += 1
            raise


async def ours(url: str, first: int, count: int, engine: type[StableEngine] = StableEngine) -> None:
    """
    Run real agents with a replaced engine. At the end, print how often they published, and how often without acknowledgment.
    """
    folder = tempfile.TemporaryDirectory(prefix="bench-", dir=MEMORY)
    stop, ready = asyncio.Event(), 0

    def one_more() -> None:
        nonlocal ready
        ready += 1
        if ready == count:
            print("ready", flush=True)

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for i in range(first, first + count):
            node = f"node{i:05}"
            agent = await simulated_agent(url, node, Path(folder.name), stack, engine, events=CountedEvents)
            group.create_task(agent.run(stop, one_more, lambda: None), name=node)
        await ended()
        print(CountedEvents.attempts, CountedEvents.failures, flush=True)
        stop.set()
    folder.cleanup()


async def serve_bare(connect: Callable[[str], Awaitable[Any]], first: int, count: int) -> None:
    """Connect bare nodes by name, and keep them until the input ends."""
    clients = [await connect(f"node{i:05}") for i in range(first, first + count)]
    print("ready", flush=True)
    await ended()
    for client in clients:
        await client.close()


async def bare(url: str, first: int, count: int, changes: int = 0, *, work_s: float = 0) -> None:
    """
    Send the same messages without further work, from nodes that are in the inventory.

    Args:
        url, first, count: The broker, and the numbers of the nodes.
        changes: The number of changed resources per node.
        work_s: How long each node works on a request. Repeated requests are ignored.
    """
    import nats

    encode = msgspec.json.Encoder().encode

    async def connect(node: str) -> Any:
        creds = credentials_of(node) or None
        client = await nats.connect(
            url, pending_size=0, inbox_prefix=f"_INBOX_{node}", user_credentials=creds
        )
        stream, chain = client.jetstream(), EventChain(node)
        known: set[str] = set()

        async def publish(number: int, event: Any) -> None:
            event = msgspec.structs.replace(event, node=node, run=event.run, number=number)
            subject, body = f"{event.protocol}.{event.run}.{node}", encode(event)
            headers = {"Nats-Msg-Id": event.event_id, "Nats-Expected-Stream": "CCM_EVENTS"}
            headers |= chain.headers(subject, body, is_first=number == 1)
            await stream.publish(subject, body, headers=headers, timeout=60)

        async def work(run: str) -> None:
            names, begun, begun_at = {"run": run, "manifest": "m.yaml"}, datetime.now(UTC), time.monotonic()
            await publish(1, started(**names))
            await asyncio.sleep(work_s)
            for number in range(changes):
                await publish(number + 2, changed_file(run=run))
            summary = summarized(changes, events_sent=changes + 2, **names)
            took_ns = int((time.monotonic() - begun_at) * 1e9)
            summary = msgspec.structs.replace(summary, start_time=begun, total_duration=took_ns)
            await publish(changes + 2, summary)

        async def asked(message: Any) -> None:
            run = msgspec.json.decode(message.data)["run"]
            if run in known:
                return
            known.add(run)
            answer = {"protocol": f"{PROTOCOL}.session.answer", "run": run, "node": node, "state": "accepted"}
            subject = f"{PROTOCOL}.session.answer.{run}.{node}"
            await client.publish(subject, encode(answer), headers={"Ccm-Sent": "1"})
            await work(run)

        for scope in ("all", f"node.{node}"):
            await client.subscribe(f"{PROTOCOL}.manifest.apply.request.{scope}", cb=asked)
        await client.flush()
        return client

    await enter_inventory(url, [f"node{i:05}" for i in range(first, first + count)])
    await serve_bare(connect, first, count)


def key_of(node: str) -> Any:
    """Return the key of a node, which signs nothing without credentials."""
    from ccm_agent.bus.signatures.node_key import NodeKey

    key = NodeKey(credentials_of(node))
    key.read(node)
    return key


class EventChain:
    """The chain of a bare node's events. Without credentials, they have no place in it and no signature."""

    def __init__(self, node: str) -> None:
        from ccm_agent.bus.chain import NONE, new_chain_id

        self._key, self._chain, self._number, self._link = key_of(node), new_chain_id(), 0, NONE

    def headers(self, subject: str, body: bytes, *, is_first: bool) -> dict[str, str]:
        """Return the headers of the next event. `is_first`: it is the first one of its run."""
        from ccm_agent.bus.chain import CHAIN_HEADER, NONE, ChainPosition, link_of
        from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER

        if not self._key.public_key:
            return {}
        self._number += 1
        before = NONE if is_first else self._link
        place = ChainPosition(
            chain=self._chain, number=self._number, previous=self._link, before=before
        ).header
        self._link = link_of(subject, place, body)
        return {CHAIN_HEADER: place, SIGNATURE_HEADER: self._key.sign(subject, body, place, now_ms())}


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return int(time.time() * 1000)


def as_operator(url: str) -> Any:
    """Return a connection of the operator whose credentials this environment uses, if any."""
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.connection.settings import settings_for

    return Connection(settings_for(url, identity="bench", creds=os.environ.get("CCM_CREDS", "")))


async def enter_inventory(
    url: str, nodes: Sequence[str], facts: Callable[[int], dict[str, Any]] = lambda _: {}
) -> None:
    """
    Write records of nodes that are present for an hour, as agents write them. `facts` returns the facts for a position in the
    list. Nodes with credentials sign them.
    """
    from ccm_agent.bus.signatures.node_state import NodeStateBucket
    from ccm_agent.model.wire import NodeRecord, Presence

    async with as_operator(url) as connection:
        await connection.connect_now()
        for place, node in enumerate(nodes):
            key = key_of(node)
            inventory = NodeStateBucket(connection, "CCM_NODES", key, now_ms)
            signed = {"key": key.public_key, "certificate": key.certificate}
            record = NodeRecord(node=node, version="1.0", facts=facts(place), **signed)
            await inventory.put(f"node.{node}", msgspec.json.encode(record))
            await inventory.put(f"presence.{node}", msgspec.json.encode(Presence(node=node)), ttl_s=3600)


async def read_keys(url: str, credentials: str) -> dict[str, str]:
    """Return the certified key of each node, for the operator with the text of these credentials."""
    from ccm_agent.bus.kv import NatsKeyValue
    from ccm_agent.bus.signatures.trust import read_certificate, trust_in_credentials
    from ccm_agent.model.wire import NodeRecord

    trust = trust_in_credentials(credentials)
    if trust is None:
        raise RuntimeError("the operator's credentials have no trust block")
    keys = {}
    async with as_operator(url) as connection:
        await connection.connect_now()
        for entry in await NatsKeyValue(connection, "CCM_NODES").matching(["node.>"]):
            record = msgspec.json.decode(entry.value, type=NodeRecord)
            read_certificate(record.certificate, record.node, record.key, trust.root)
            keys[record.node] = record.key
    return keys


async def controller(url: str, count: int) -> None:
    """
    Send a request to the bare nodes, and print the time until all summaries have arrived.

    With credentials, the request is signed, and the signature of each summary is verified. It must cover the start. The keys of
    the nodes were certified before.
    """
    import nats

    from ccm_agent.bus.chain import CHAIN_HEADER, link_of, parse_place
    from ccm_agent.bus.signatures.signing import (
        SIGNATURE_HEADER,
        SignatureKind,
        signing_key_in_credentials,
        verify_content,
    )
    from ccm_agent.model.ids import new_id

    creds = os.environ.get("CCM_CREDS", "")
    text = await asyncio.to_thread(Path(creds).read_text) if creds else ""
    keys, key = await read_keys(url, text) if creds else {}, signing_key_in_credentials(text)
    client = await nats.connect(url, inbox_prefix="_INBOX_bench", user_credentials=creds or None)
    run, done, summaries, starts = new_id(), asyncio.Event(), set(), {}

    def verify(node: str, message: Any) -> None:
        headers = message.headers
        claims = verify_content(headers[SIGNATURE_HEADER], SignatureKind.EVENT, message.subject, message.data)
        place = headers[CHAIN_HEADER]
        if (claims.key, claims.details["c"]) != (keys[node], place) or parse_place(place).before != starts[
            node
        ]:
            raise RuntimeError(f"{message.subject}: not signed by its node")

    async def heard(message: Any) -> None:
        event = msgspec.json.decode(message.data)
        node, protocol = event["node"], event["protocol"]
        if keys and protocol.endswith("session.start"):
            starts[node] = link_of(message.subject, message.headers[CHAIN_HEADER], message.data)
        if protocol.endswith("session.summary"):
            if keys:
                verify(node, message)
            summaries.add(node)
            if len(summaries) == count:
                done.set()

    await client.subscribe(f"{PROTOCOL}.*.*.{run}.>", cb=heard)
    await client.flush()
    begin = time.perf_counter()
    request = {"protocol": f"{PROTOCOL}.manifest.apply.request", "run": run, "manifest": "x" * 4000}
    subject, body = f"{PROTOCOL}.manifest.apply.request.all", msgspec.json.encode(request)
    signed = {"Ccm-Sent": "1"}
    if key is not None:
        signed[SIGNATURE_HEADER] = key.sign(SignatureKind.REQUEST, subject, body, issued_ms=now_ms())
    await client.publish(subject, body, headers=signed)
    async with asyncio.timeout(120):
        await done.wait()
    print(f"{time.perf_counter() - begin:.4f}", flush=True)
    await client.close()


if __name__ == "__main__":
    kind, address, *numbers = sys.argv[1:]
    programs = {
        "ours": ours,
        "bare": bare,
        "controller": controller,
        "ours-changed": functools.partial(ours, engine=ChangingEngine),
        "bare-changed": functools.partial(bare, changes=1),
        "bare-1s": functools.partial(bare, work_s=1.0),
        "bare-5s": functools.partial(bare, work_s=5.0),
    }
    asyncio.run(programs[kind](address, *map(int, numbers)))
