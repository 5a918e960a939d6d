"""
Simulated agents, several to a process: `python -m bench.simulated ours|bare|controller URL …`.

`ours` are real agents on real connections; only their engine is replaced: it tells 50 stable resources and touches no host.
`bare` are nats-py programs that send the same messages in the same way. Of `ours-changed` and `bare-changed` one of the
resources changed, with a diff of 2 KiB. `controller` is the bare program that asks them, and waits until it holds every
summary. Each says `ready` on a line when all of its nodes listen, and ends at the end of its input.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bench.secured import credentials_of

RESOURCES = 50
PROTOCOL = "io.choria.ccm.v1"
DIFF_TEXT = "".join(f"-listen 80{i:02} old\n+listen 80{i:02} new\n" for i in range(60))
"""The unified diff of a changed file: 2 KiB."""


class StableEngine:
    """An engine of 50 resources that are as they should be."""

    changes = 0

    async def apply(self, source: Any, options: Any) -> Any:
        from ccm_agent.model.ids import new_id
        from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY, SessionStart, SessionSummary

        now = datetime.now(UTC)
        names = {"manifest": source.name, "digest": source.digest, "noop": options.noop}
        options.on_start(
            SessionStart(
                protocol=SESSION_START,
                event_id=new_id(),
                timestamp=now,
                resources=RESOURCES,
                requester=options.requester,
                cause=options.cause,
                **names,
            )
        )
        self.tell_changes(options, now)
        return SessionSummary(
            protocol=SESSION_SUMMARY,
            event_id=new_id(),
            timestamp=now,
            start_time=now,
            end_time=now,
            total_resources=RESOURCES,
            unique_resources=RESOURCES,
            stable_resources=RESOURCES - self.changes,
            changed_resources=self.changes,
            state="changed" if self.changes else "stable",
            **names,
        )

    def tell_changes(self, options: Any, now: datetime) -> None:
        """Nothing changed."""


class ChangingEngine(StableEngine):
    """An engine of 50 resources of which one changed, with a diff of 2 KiB."""

    changes = 1

    def tell_changes(self, options: Any, now: datetime) -> None:
        """One file changed."""
        from ccm_agent.model.ids import new_id
        from ccm_agent.model.outcome import TRANSACTION_EVENT, TransactionEvent
        from ccm_agent.model.resource_diff import FileDiff, ResourceDiff

        options.on_event(
            TransactionEvent(
                protocol=TRANSACTION_EVENT, event_id=new_id(), timestamp=now, type="file", provider="posix", name="/etc/app.conf",
                requested_ensure="present", final_ensure="present", duration=1, properties={}, status={}, error=[], changed=True,
                refreshed=False, failed=False, skipped=False, noop=False, unmet_requirements=[],
                diff=ResourceDiff(files=[FileDiff(path="/etc/app.conf", text=DIFF_TEXT, added=60, removed=60)]),
            )
        )  # fmt: skip


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
    **ports: Any,
) -> Any:
    """A real agent on a connection of its own, its engine replaced, and what else the arguments say."""
    from msgspec.structs import replace

    from ccm_agent import app_agent
    from ccm_agent.agent.agent import Agent
    from ccm_agent.agent.process.config import BrokerSettings, Settings
    from ccm_agent.app_agent import bus_settings, read_trust
    from ccm_agent.bus.connection import Connection

    creds = credentials_of(node)
    broker = BrokerSettings(servers=(url,), creds=creds)
    settings = Settings(state_dir=str(folder / node), identity=node, broker=broker, connect_spread_s=2)
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
    folder = tempfile.TemporaryDirectory(prefix="bench-")
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


async def bare(url: str, first: int, count: int, words: tuple[str, ...] = ("start", "summary")) -> None:
    """The same messages, with nothing around them."""
    import nats

    from ccm_agent.model.ids import new_id

    encoder = msgspec.json.Encoder()

    async def connect(node: str) -> Any:
        client = await nats.connect(url, pending_size=0, inbox_prefix=f"_INBOX_{node}")
        stream = client.jetstream()

        async def asked(message: Any) -> None:
            run = msgspec.json.decode(message.data)["run"]
            answer = {"protocol": f"{PROTOCOL}.session.answer", "run": run, "node": node, "state": "accepted"}
            await client.publish(f"{PROTOCOL}.session.answer.{run}.{node}", encoder.encode(answer))
            for number, word in enumerate(words, 1):
                kind = "transaction.event" if word == "event" else f"session.{word}"
                protocol, event_id = f"{PROTOCOL}.{kind}", new_id()
                event = {"protocol": protocol, "event_id": event_id, "node": node, "run": run, "number": number,
                         "timestamp": datetime.now(UTC), "manifest": "m.yaml", "stable_resources": RESOURCES}  # fmt: skip
                if word == "event":
                    event["diff"] = {"files": [{"path": "/etc/app.conf", "text": DIFF_TEXT}]}
                headers = {"Nats-Msg-Id": event_id, "Nats-Expected-Stream": "CCM_EVENTS"}
                await stream.publish(
                    f"{protocol}.{run}.{node}", encoder.encode(event), headers=headers, timeout=30
                )

        await client.subscribe(f"{PROTOCOL}.manifest.apply.request.all", cb=asked)
        await client.flush()
        return client

    await serve_bare(connect, first, count)


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
        "bare-changed": functools.partial(bare, words=("start", "event", "summary")),
    }
    asyncio.run(programs[kind](address, *map(int, numbers)))
