"""
Simulated agents, several per process: `python -m bench.simulated ours|bare|controller URL …`.

`ours` are real agents on real connections, with a replaced engine that reports 50 stable resources and does not change the
host. `bare` are nats-py programs that send the same messages in the same way. They are in the inventory, so `ccmctl` can also
send them requests. In `ours-changed` and `bare-changed`, one of the resources changes, with a diff of 2 KiB. `bare-1s` and
`bare-5s` work for one or five seconds. `controller` is the bare program that sends requests to bare nodes, and waits until it
has every summary. Each program prints the line `ready` when all of its nodes are subscribed, and ends when its input ends.
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
        client = await nats.connect(url, pending_size=0, inbox_prefix=f"_INBOX_{node}")
        stream = client.jetstream()
        known: set[str] = set()

        async def publish(number: int, event: Any) -> None:
            event = msgspec.structs.replace(event, node=node, run=event.run, number=number)
            headers = {"Nats-Msg-Id": event.event_id, "Nats-Expected-Stream": "CCM_EVENTS"}
            subject = f"{event.protocol}.{event.run}.{node}"
            await stream.publish(subject, encode(event), headers=headers, timeout=60)

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


async def enter_inventory(
    url: str, nodes: Sequence[str], facts: Callable[[int], dict[str, Any]] = lambda _: {}
) -> None:
    """
    Write records of nodes that are present for an hour, as agents write them. `facts` returns the facts for a position in the
    list.
    """
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.connection.settings import settings_for
    from ccm_agent.bus.kv import NatsKeyValue
    from ccm_agent.model.wire import NodeRecord, Presence

    async with Connection(settings_for(url)) as connection:
        await connection.connect_now()
        inventory = NatsKeyValue(connection, "CCM_NODES")
        for place, node in enumerate(nodes):
            record = NodeRecord(node=node, version="1.0", facts=facts(place))
            await inventory.put(f"node.{node}", msgspec.json.encode(record))
            await inventory.put(f"presence.{node}", msgspec.json.encode(Presence(node=node)), ttl_s=3600)


async def controller(url: str, count: int) -> None:
    """Send a request to the bare nodes, and print the time until all summaries have arrived."""
    import nats

    from ccm_agent.model.ids import new_id

    client = await nats.connect(url)
    run, done, summaries = new_id(), asyncio.Event(), set()

    async def heard(message: Any) -> None:
        event = msgspec.json.decode(message.data)
        if event["protocol"].endswith("session.summary"):
            summaries.add(event["node"])
            if len(summaries) == count:
                done.set()

    await client.subscribe(f"{PROTOCOL}.*.*.{run}.>", cb=heard)
    await client.flush()
    begin = time.perf_counter()
    request = {"protocol": f"{PROTOCOL}.manifest.apply.request", "run": run, "manifest": "x" * 4000}
    await client.publish(f"{PROTOCOL}.manifest.apply.request.all", msgspec.json.encode(request))
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
