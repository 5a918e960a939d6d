"""A real agent under a flood of messages that any user of its broker can cause: it works on, reads little and logs little."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ccm_agent.bus.change_notices import PAUSE_S
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.subjects import due_subject, key_subject, notification_subject, request_subject
from ccm_agent.model.limited_log import LINES_OF_ANY
from ccm_agent.model.wire import NODE_PING
from tests.support.fleet import Fleet, a_file, fleet, manifest
from tests.support.nats_server import Heard, settings

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

TIMES = 1_000
BURSTS = 100
PING = request_subject(NODE_PING, "all")


@contextlib.asynccontextmanager
async def user_of(one: Fleet, name: str) -> AsyncIterator[Connection]:
    async with Connection(settings(one.broker, name)) as connection:
        await connection.connect_now()
        yield connection


async def replay(attacker: Connection, *stored: tuple[str, str]) -> int:
    """Have stored messages sent to the subjects of their pokes, again and again for some seconds; how many reads that took."""
    for _ in range(BURSTS):
        for bucket, key in stored:
            question = f"$JS.API.DIRECT.GET.KV_{bucket}.{key_subject(bucket, key)}"
            await attacker.publish(question, b"", reply=notification_subject(bucket, key))
        await asyncio.sleep(0.05)
    return BURSTS * len(stored)


async def send_nonsense(attacker: Connection) -> None:
    """Requests that are malformed in each way that gets as far as the agent."""
    due = {
        "Nats-Stream": "CCM_SCHEDULES",
        "Nats-Subject": due_subject(PING),
        "Nats-Scheduler": due_subject(PING).replace(".due.", ".schedule.") + ".x",
        "Nats-Sequence": "1",
        "Nats-Time-Stamp": "2026-01-01T00:00:00 forged",
    }
    for number in range(TIMES):
        await attacker.publish(
            PING, b'{"protocol":"%s","run":"\xff"}' % NODE_PING.encode(), {"Ccm-Sent": "1"}
        )
        await attacker.publish(PING, b'{"protocol":"%s"}' % NODE_PING.encode(), due)
        await attacker.publish(PING, b'{"protocol":"%s"}' % NODE_PING.encode(), {"X": str(number)})
        await attacker.publish(PING, b"%d" % number, {"Ccm-Sent": "1"})


@pytest.fixture
def one(tmp_path: Path):
    with fleet(tmp_path) as made:
        made.add("web1", log_level="info", change_pause="0s")
        document = made.write("app.yaml", manifest(a_file("app")))
        assert made.ctl("facts", "set", "web1", "role=web").code == 0
        assert made.ctl("assign", "app", document, "--targets", "node=web1", "--yes").code == 0
        made.wait_for((made.agents["web1"].files / "app").exists, "the assignment to be applied")
        yield made


def test_replayed_notices_cost_a_read_now_and_then(one: Fleet) -> None:
    async def attack() -> int:
        async with user_of(one, "attacker") as attacker, user_of(one, "watcher") as watcher:
            asked = Heard()
            reads = [f"$JS.API.DIRECT.GET.KV_CCM_{name}.>" for name in ("FACTS", "ASSIGNMENTS")]
            await watcher.subscribe(["$JS.API.DIRECT.GET.*", *reads], asked)
            own = await replay(attacker, ("CCM_FACTS", "web1"), ("CCM_ASSIGNMENTS", "node.web1.app"))
            await asyncio.sleep(PAUSE_S)
            return len(asked.items) - own

    assert 0 < asyncio.run(attack()) < BURSTS // 4


def test_malformed_requests_fill_no_log_and_end_no_agent(one: Fleet) -> None:
    process, before = one.agents["web1"].process, one.agents["web1"].log.count("\n")

    async def attack() -> None:
        async with user_of(one, "attacker") as attacker:
            await send_nonsense(attacker)
            await attacker.publish(PING, b"", confirm=True)

    asyncio.run(attack())
    done = one.ctl("ping", "-t", "node=web1", "--json")

    assert done.code == 0, done.err
    assert process is not None
    assert process.poll() is None
    assert one.agents["web1"].log.count("\n") - before < LINES_OF_ANY
