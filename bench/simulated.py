"""
Simulated agents, several to a process: `python -m bench.simulated ours|bare|controller URL …`.

`ours` are real agents on real connections; only their engine is replaced: it tells 50 stable resources and touches no host.
`bare` are nats-py programs that send the same messages in the same way. They are in the inventory, so `ccmctl` can ask them as
well. Of `ours-changed` and `bare-changed` one of the resources changed, with a diff of 2 KiB; `bare-1s` and `bare-5s` work for
so long. `controller` is the bare program that asks bare nodes, and waits until it holds every summary. Each says `ready` on a
line when all of its nodes listen, and ends at the end of its input.
"""

from __future__ import annotations

import asyncio
import functools
import gc
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
"""A node has a disk of its own; thousands that share one would measure its flushes."""

DIFF_TEXT = "".join(f"-listen 80{i:02} old\n+listen 80{i:02} new\n" for i in range(60))
"""The unified diff of a changed file: 2 KiB."""


def started(**names: Any) -> Any:
    """The start of a session over all resources."""
    from ccm_agent.model.ids import new_id
    from ccm_agent.model.outcome import SESSION_START, SessionStart

    now = datetime.now(UTC)
    return SessionStart(
        protocol=SESSION_START, event_id=new_id(), timestamp=now, resources=RESOURCES, **names
    )


def changed_file(**names: Any) -> Any:
    """A file changed, with a diff of 2 KiB."""
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
    """The summary of a session in which so many resources changed."""
    from ccm_agent.model.ids import new_id
    from ccm_agent.model.outcome import SESSION_SUMMARY, SessionSummary

    now = datetime.now(UTC)
    return SessionSummary(
        protocol=SESSION_SUMMARY, event_id=new_id(), timestamp=now, start_time=now, end_time=now, total_resources=RESOURCES,
        unique_resources=RESOURCES, stable_resources=RESOURCES - changes, changed_resources=changes,
        state="changed" if changes else "stable", **names,
    )  # fmt: skip


class StableEngine:
    """An engine of 50 resources that are as they should be."""

    changes = 0

    async def apply(self, source: Any, options: Any) -> Any:
        names = {"manifest": source.name, "digest": source.digest, "noop": options.noop}
        options.on_start(started(requester=options.requester, cause=options.cause, **names))
        for _ in range(self.changes):
            await options.on_event(changed_file())
        return summarized(self.changes, **names)


class ChangingEngine(StableEngine):
    """An engine of 50 resources of which one changed, with a diff of 2 KiB."""

    changes = 1


async def ended() -> None:
    """Return at the end of our input."""
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
    """A real agent on a connection of its own, its engine replaced, and what else the arguments say."""
    from msgspec.structs import replace

    from ccm_agent import app_agent
    from ccm_agent.agent.process.agent import Agent
    from ccm_agent.agent.state.settings import BrokerSettings, Settings
    from ccm_agent.app_agent import bus_settings, read_trust
    from ccm_agent.bus.connection.connection import Connection

    creds = credentials_of(node)
    broker = BrokerSettings(servers=(url,), creds=creds)
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
    # as the process of a real agent does
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
    """The events port of an agent; counts what all agents of this process publish, and what of it is not acknowledged in time."""

    attempts = 0
    failures = 0

    def __init__(self, events: Any) -> None:
        self._events = events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    async def publish(self, *given: Any) -> Any:
        """Publish, counted."""
        CountedEvents.attempts += 1
        try:
            return await self._events.publish(*given)
        except Exception:
            CountedEvents.failures += 1
            raise


async def ours(url: str, first: int, count: int, engine: type[StableEngine] = StableEngine) -> None:
    """Real agents, their engine replaced. At their end they print how often they published, and how often in vain."""
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
    """Connect bare nodes, each by its name, and keep them until the end of our input."""
    clients = [await connect(f"node{i:05}") for i in range(first, first + count)]
    print("ready", flush=True)
    await ended()
    for client in clients:
        await client.close()


async def bare(url: str, first: int, count: int, changes: int = 0, *, work_s: float = 0) -> None:
    """
    The same messages, with nothing around them, from nodes that are in the inventory.

    Args:
        url, first, count: The broker; which nodes.
        changes: Resources of each that changed.
        work_s: How long each works on what it was asked. Repetitions of a request are ignored.
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
    """Write records of nodes that are present for an hour, as agents write them; `facts` by their place in the list."""
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
    """Ask the bare nodes, and print how long it took until every summary was here."""
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
