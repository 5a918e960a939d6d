"""Assignments: a new revision for 2,000 simulated agents, compared with a bare nats-py publish and 2,000 direct gets."""

from __future__ import annotations

import asyncio
import hashlib
import io
import statistics
import tarfile
import time
from typing import Any

import msgspec

from bench.assigned import BUCKET, KEY, PAUSE_S
from bench.fleet import ccmctl, wait_for_nodes
from bench.measure import Line
from bench.node_processes import node_processes
from ccm_agent.testing.nats_server import NatsServer, temporary_server

AGENTS, ROUNDS = 2000, 5
REST_S = PAUSE_S + 10.0
"""The pause between two rounds, in which all nodes apply and report."""

DATA = "kv://CCM_DATA/common"


async def publish(server: NatsServer, number: int) -> float:
    """Assign a bundle and data to all nodes, and return the time before that."""
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.connection.settings import settings_for
    from ccm_agent.bus.kv import NatsKeyValue
    from ccm_agent.bus.objects import NatsObjects

    content, digest = bundle(number)
    async with Connection(settings_for([server.url], identity="op")) as connection:
        await connection.connect_now()
        await NatsObjects(connection, "CCM_MANIFESTS").put(digest, content)
        body: dict[str, Any] = {
            "name": "site",
            "scope": "all",
            "bundle": {"digest": digest, "size_bytes": len(content)},
            "data": [DATA],
            "data_revision": await NatsKeyValue(connection, "CCM_DATA").put("common", b"data: {}"),
        }
        document = msgspec.json.encode({"bucket": BUCKET, "key": KEY, "number": number, "body": body})
        begun = time.time()
        await NatsKeyValue(connection, BUCKET).put(KEY, document)
    return begun


def bundle(number: int) -> tuple[bytes, str]:
    """Return a packed manifest that differs for each number, and its digest."""
    text = f"# {number}\n".encode()
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        member = tarfile.TarInfo("manifest.yaml")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return stream.getvalue(), hashlib.sha256(stream.getvalue()).hexdigest()


def revisions(kind: str, rest_s: float) -> list[float]:
    """Return the seconds from the publish until the last node has the revision, for each round after the first."""
    taken = []
    with temporary_server() as server:
        ccmctl(server, "init")
        with node_processes(kind, server, AGENTS, "bench.assigned") as children:
            if kind == "ours":
                wait_for_nodes(server, AGENTS)
            for number in range(1, ROUNDS + 2):
                time.sleep(rest_s)
                begun = asyncio.run(publish(server, number))
                ends = []
                for child in children:
                    given, _, at = child.stdout.readline().partition(" ") if child.stdout else ("", "", "")
                    if given != str(number):
                        raise RuntimeError(f"the broker assigned revision {given or 'none'}, not {number}")
                    ends.append(float(at))
                taken.append(max(ends) - begun)
            if consumers := asyncio.run(count_consumers(server)):
                raise RuntimeError(f"{consumers} consumers were made")
    return taken[1:]


async def count_consumers(server: NatsServer) -> int:
    """Return the number of consumers of all streams. No agent may have one."""
    import nats

    client = await nats.connect(server.url)
    streams = await client.jetstream().streams_info()
    await client.close()
    return sum(one.state.consumer_count for one in streams)


def measure() -> list[Line]:
    """Measure the budget of assignments. The reference is measured before and after, because other load varies."""
    before, taken, after = revisions("bare", 1.0), revisions("ours", REST_S), revisions("bare", 1.0)
    bare, ours = statistics.median(before + after), statistics.median(taken)
    return [
        Line(
            f"a new revision of an assignment with {AGENTS} agents", ours / bare, "times", 2,
            f"{ours:.2f} s against {bare:.2f} s of a bare nats-py publish and {AGENTS} direct gets",
        ),
    ]  # fmt: skip
