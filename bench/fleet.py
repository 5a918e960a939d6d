"""A fleet: 1,000 agents and 50 stable resources beside a bare nats-py program, and what an idle agent holds in memory."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import Line, ratio

AGENTS, PROCESSES, RESOURCES, ROUNDS = 1000, 2, 50, 5
OPERATOR = "bench"
BASELINE = "import asyncio, msgspec, jinja2, yaml, nats"
RUN_LIMIT_S = 60.0


def measure() -> list[Line]:
    """A run of a thousand agents, ours and bare, in turn on one server; and the memory of an idle agent."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory() as folder:
        ours, bare = asyncio.run(_fleets(Path(folder)))
        idle, client = asyncio.run(_memory(Path(folder)))
    return [
        ratio(f"{AGENTS} agents, {RESOURCES} stable resources", ours, bare, 2, "bare nats-py"),
        Line("idle agent", idle / client, "times", 1.5, f"{idle:.1f} MiB, a nats-py client {client:.1f} MiB"),
    ]


async def _fleets(folder: Path) -> tuple[float, float]:
    from tests.support.nats_server import prepare, running_server

    with running_server(folder) as server:
        await prepare(server)
        fleets = [await Swarm.start(kind, server.url, folder) for kind in ("ours", "bare")]
        try:
            taken: dict[str, list[float]] = {"ours": [], "bare": []}
            for _ in range(ROUNDS + 1):
                for fleet in fleets:
                    taken[fleet.kind].append(await fleet.run(server.url))
        finally:
            for fleet in fleets:
                await fleet.stop()
    return statistics.median(taken["ours"][1:]), statistics.median(taken["bare"][1:])


class Swarm:
    """Processes with many agents each."""

    def __init__(self, kind: str, processes: list[asyncio.subprocess.Process]) -> None:
        self.kind = kind
        self._processes = processes

    @classmethod
    async def start(cls, kind: str, url: str, folder: Path) -> Swarm:
        """Start them and wait until all agents are connected."""
        processes = []
        for index in range(PROCESSES):
            args = [
                sys.executable,
                "-m",
                "bench.fleet",
                kind,
                url,
                str(index),
                str(folder / kind / str(index)),
            ]
            processes.append(
                await asyncio.create_subprocess_exec(
                    *args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent
                )
            )
        for process in processes:
            assert process.stdout is not None
            if await process.stdout.readline() != b"up\n":
                raise RuntimeError(f"{kind}: the agents did not come up")
        return cls(kind, processes)

    async def run(self, url: str) -> float:
        """Seconds from the request until every summary is held."""
        from ccm_agent.bus.connection import Connection
        from ccm_agent.bus.events import NatsEvents
        from ccm_agent.bus.requests import NatsRequests
        from ccm_agent.bus.settings import settings_for
        from ccm_agent.bus.subjects import request_subject, run_pattern
        from ccm_agent.model.ids import new_id
        from ccm_agent.model.wire import MANIFEST_APPLY

        async with Connection(settings_for(url, identity=OPERATOR)) as connection:
            await connection.connect_now()
            run, held, complete = new_id(), dict[str, Any](), asyncio.Event()

            def hear(event: Any) -> None:
                if ".session.summary." in event.subject:
                    held[event.subject] = json.loads(event.body)
                    if len(held) == AGENTS:
                        complete.set()

            await NatsEvents(connection).follow(run_pattern(run), hear)
            scope = f"fact.kind.{self.kind}"
            body = {"protocol": MANIFEST_APPLY, "run": run, "name": "site", "manifest": "x" * 4000}
            begin = time.perf_counter()
            await NatsRequests(connection).publish(
                request_subject(MANIFEST_APPLY, scope), json.dumps(body).encode()
            )
            async with asyncio.timeout(RUN_LIMIT_S):
                await complete.wait()
            return time.perf_counter() - begin

    async def stop(self) -> None:
        """End them."""
        for process in self._processes:
            process.kill()
            await process.wait()


async def _ours(url: str, index: int, folder: Path) -> None:
    """Our agents on real connections; only what touches the host is simulated."""
    from ccm_agent.bus.connection import Connection
    from ccm_agent.bus.events import NatsEvents
    from ccm_agent.bus.kv import NatsKeyValue
    from ccm_agent.bus.objects import NatsObjects
    from ccm_agent.bus.requests import NatsRequests
    from ccm_agent.bus.settings import settings_for
    from ccm_agent.daemon.agent import Agent, Ports
    from ccm_agent.daemon.config import Settings
    from ccm_agent.system.clock import SystemClock

    facts = {"kind": "ours"}

    async def one(number: int, stack: asyncio.TaskGroup, up: Callable[[], None]) -> None:
        node = f"ours-{index}-{number}"
        settings = Settings(
            state_dir=str(folder / node), identity=node, routed_facts=("kind",), heartbeat_s=600
        )
        connection = Connection(settings_for(url, identity=node, spread_s=0.0))
        await connection.__aenter__()
        await connection.wait_connected()
        ports = Ports(
            link=connection,
            requests=NatsRequests(connection),
            events=NatsEvents(connection),
            objects=NatsObjects(connection, "CCM_MANIFESTS"),
            bucket=lambda name: NatsKeyValue(connection, name),
            make_engine=lambda open_bucket, numbers: SimulatedEngine(),
            gather_facts=lambda: facts,
            matches=lambda targets, where, node, facts: True,
            shorten=lambda event: event,
            clock=SystemClock(),
        )
        agent = Agent(settings, ports, version="0.1.0")
        stack.create_task(agent.run(asyncio.Event(), up), name=node)

    await _all_up(one)


class SimulatedEngine:
    """Finds every resource as it should be, at once."""

    async def apply(self, source: Any, options: Any) -> Any:
        """Tell of a session of stable resources."""
        from datetime import UTC, datetime

        from ccm_agent.model.outcome import (
            SESSION_START,
            SESSION_SUMMARY,
            SessionStart,
            SessionSummary,
            count,
        )

        now = datetime.now(UTC)
        options.on_start(
            SessionStart(
                protocol=SESSION_START, event_id="", timestamp=now, resources=RESOURCES, digest="0" * 64
            )
        )
        summary = SessionSummary(protocol=SESSION_SUMMARY, event_id="", timestamp=now, state="stable")
        event = _stable_event()
        for number in range(RESOURCES):
            options.on_resource("file#/etc/motd", number + 1, RESOURCES)
            count(summary, event)
            await options.on_event(event)
        return summary

    async def ensure(self, type_name: str, properties: Any, options: Any) -> Any:
        """Never asked for here."""
        raise NotImplementedError


def _stable_event() -> Any:
    from datetime import UTC, datetime

    from ccm_agent.model.outcome import TRANSACTION_EVENT, TransactionEvent

    return TransactionEvent(
        protocol=TRANSACTION_EVENT,
        event_id="x",
        timestamp=datetime.now(UTC),
        type="file",
        provider="posix",
        name="/etc/motd",
        requested_ensure="present",
        final_ensure="present",
        duration=1,
        properties={},
        status={},
        error=[],
        changed=False,
        refreshed=False,
        failed=False,
        skipped=False,
        noop=False,
        unmet_requirements=[],
    )


async def _bare(url: str, index: int, folder: Path) -> None:
    """The same messages from nats-py alone: an answer, then start and summary, each acknowledged before the next."""
    import nats

    async def one(number: int, stack: asyncio.TaskGroup, up: Callable[[], None]) -> None:
        node = f"bare-{index}-{number}"
        client = await nats.connect(url, pending_size=0)
        stream = client.jetstream()
        answer, start, summary = (b"x" * size for size in (330, 400, 520))

        async def handle(message: Any) -> None:
            run = json.loads(message.data)["run"]
            await client.publish(f"io.choria.ccm.v1.session.answer.{run}.{node}", answer)
            for word, body in (("start", start), ("summary", summary)):
                await stream.publish(
                    f"io.choria.ccm.v1.session.{word}.{run}.{node}",
                    body if word == "start" else b'"' + body + b'"',
                    headers={"Nats-Msg-Id": f"{run}{node}{word}", "Nats-Expected-Stream": "CCM_EVENTS"},
                )

        for scope in ("all", f"node.{node}", "fact.kind.bare"):
            await client.subscribe(f"io.choria.ccm.v1.*.*.request.{scope}", cb=handle)
        await client.flush()
        up()

    await _all_up(one)


async def _all_up(one: Callable[[int, asyncio.TaskGroup, Callable[[], None]], Any]) -> None:
    """Start this process's share of the agents, say so, and go on until killed."""
    share, up, complete = AGENTS // PROCESSES, 0, asyncio.Event()

    def came_up() -> None:
        nonlocal up
        up += 1
        if up == share:
            complete.set()

    async with asyncio.TaskGroup() as group:
        slots = asyncio.Semaphore(50)

        async def begin(number: int) -> None:
            async with slots:
                await one(number, group, came_up)

        for number in range(share):
            group.create_task(begin(number))
        await complete.wait()
        # startup events and first signs of life are no part of a run
        await asyncio.sleep(2)
        print("up", flush=True)
        await asyncio.Event().wait()


async def _memory(folder: Path) -> tuple[float, float]:
    """Resident memory, in MiB, of an agent that has connected and waits, and of a client with the same libraries."""
    from tests.support.nats_server import prepare, running_server

    (folder / "memory").mkdir()
    with running_server(folder / "memory") as server:
        await prepare(server)
        config = folder / "agent.yaml"
        config.write_text(
            f"identity: idle\nstate_dir: {folder}/idle\nconnect_spread: 0s\nnats:\n  url: {server.url}\n"
        )
        agent = [sys.executable, "-m", "ccm_agent", "agent", "--config", str(config)]
        client = f"""
{BASELINE}
async def main():
    await nats.connect({server.url!r})
    await asyncio.Event().wait()
asyncio.run(main())
"""
        return await _settled(agent), await _settled([sys.executable, "-c", client])


async def _settled(command: list[str]) -> float:
    process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
    try:
        await asyncio.sleep(4)
        pages = _pages(process.pid)
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    finally:
        process.kill()
        await process.wait()


def _pages(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


if __name__ == "__main__":
    kind, url, index, folder = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run((_ours if kind == "ours" else _bare)(url, int(index), Path(folder)))
