"""Slots on real agents and a real broker: one node at a time, dead holders, failures, and who may write what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.streams import call
from ccm_agent.model.errors import BusDeniedError
from tests.support.fleet import FILES, Fleet, a_gate, fleet, manifest
from tests.support.secured import secured_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]

NODES = ("db1", "db2", "db3")
LEASE_S = 6


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three agents on a broker on which entries of slots live for a few seconds."""
    with fleet(tmp_path_factory.mktemp("slots")) as made:
        assert made.ctl("init").code == 0
        shorten(made)
        made.add(*NODES, slot_renew="1s", slot_hold="1h")
        yield made


def shorten(made: Fleet) -> None:
    import asyncio

    async def update() -> None:
        async with Connection(settings_for([made.url], identity="op")) as connection:
            await connection.wait_connected()
            config = (await call(connection, "STREAM.INFO.KV_CCM_SLOTS"))["config"]
            config |= {"max_age": LEASE_S * 10**9, "duplicate_window": 10**9}
            await call(connection, "STREAM.UPDATE.KV_CCM_SLOTS", config)

    asyncio.run(update())


def restart(log: Path, *, wait: str = "60s", then: str = "true", **more: Any) -> str:
    """A command that says in a file of all nodes when it begins and ends."""
    lines = f"echo begin >> {log}; sleep 0.3; echo end >> {log}; {then}"
    control = {"slots": "pg-restart/1", "slots_wait": wait}
    return manifest(("exec", "restart", {"command": f'sh -c "{lines}"', "control": control, **more}))


def states(fleet: Fleet) -> dict[str, str]:
    return {one["node"]: one["state"] for one in fleet.ctl("slots", "--json").records}


def becomes(fleet: Fleet, wanted: dict[str, str]) -> None:
    """A node says what it does with its slot after it has said how its run ended."""
    fleet.wait_for(lambda: states(fleet) == wanted, f"the slots to be {wanted}")


def test_one_node_at_a_time_changes_and_the_slot_is_free_afterwards(three: Fleet) -> None:
    log = three.directory / "log"

    done = three.ctl("apply", three.write("site.yaml", restart(log)), "--all", "--yes", "--json")

    assert (done.code, set(done.states.values())) == (0, {"changed"}), done.err
    assert log.read_text().split() == ["begin", "end"] * len(NODES)
    becomes(three, {})


def test_a_plan_takes_no_slot(three: Fleet) -> None:
    path = three.write("gated.yaml", held_at_gate())
    running = three.begin("apply", path, "-t", "node=db1", "--yes", "--json")
    becomes(three, {"db1": "held"})

    planned = three.ctl("apply", path, "-t", "node=db2", "--noop", "--json")
    shown = three.ctl("slots")
    three.open_gates()

    assert (planned.code, planned.states) == (0, {"db2": "changed"})
    assert "pg-restart/1  db1   held   exec#gate-go" in shown.out
    assert running.end().code == 0
    three.forget_files()


def held_at_gate(wait: str = "60s") -> str:
    kind, name, properties = a_gate()
    control = {"slots": "pg-restart/1", "slots_wait": wait}
    return manifest((kind, name, properties | {"control": control}))


def test_slot_of_a_killed_holder_is_free_once_it_expires(three: Fleet) -> None:
    path = three.write("gated.yaml", held_at_gate())
    three.begin("apply", path, "-t", "node=db1", "--yes", "--json")
    becomes(three, {"db1": "held"})
    log = three.directory / "after-kill"
    waiting = three.begin(
        "apply", three.write("next.yaml", restart(log)), "-t", "node=db2", "--yes", "--json"
    )
    becomes(three, {"db1": "held", "db2": "waiting"})
    waits, holds = (" ".join(three.ctl("why", node).out.split()) for node in ("db2", "db1"))
    assert "slot waits for pg-restart, which db1 holds" in waits
    assert "slot holds pg-restart; db2 waits for it" in holds

    three.agents["db1"].kill()
    done = waiting.end()
    three.open_gates()
    three.agents["db1"].start()
    three.wait_present(["db1"])

    assert (done.code, done.states) == (0, {"db2": "changed"}), done.err
    assert log.read_text().split() == ["begin", "end"]
    three.forget_files()


def test_node_that_failed_keeps_the_slot_until_it_is_well_or_an_operator_takes_it(
    three: Fleet, tmp_path: Path
) -> None:
    check = {"command": f"test -e {FILES}/well", "tries": 1, "format": "nagios"}
    broken = restart(three.directory / "broken", health_checks=[check])
    failed = three.ctl("apply", three.write("broken.yaml", broken), "-t", "node=db1", "--yes", "--json")
    becomes(three, {"db1": "failed"})
    log = tmp_path / "blocked"
    path = three.write("blocked.yaml", restart(log, wait="3s"))

    blocked = three.ctl("apply", path, "-t", "node=db2", "--yes", "--json")
    released = three.ctl("slots", "release", "pg-restart", "db1", "--yes")
    again = three.ctl("apply", path, "-t", "node=db2", "--yes", "--json")

    assert (failed.code, blocked.code, released.code, again.code) == (2, 2, 0, 0), released.err
    [event] = blocked.resources
    assert (event["code"], event["changed"]) == ("slot.unavailable", False)
    assert event["error"][0].startswith("the slot pg-restart is held by db1: no slot was free for 3 s")
    assert log.read_text().split() == ["begin", "end"]
    becomes(three, {})

    three.ctl("apply", str(three.directory / "broken.yaml"), "-t", "node=db1", "--yes")
    becomes(three, {"db1": "failed"})
    (three.agents["db1"].files / "well").touch()
    well = three.ctl("apply", str(three.directory / "broken.yaml"), "-t", "node=db1", "--yes")
    assert well.code == 0, well.out
    becomes(three, {})


def test_a_node_writes_its_own_entries_only(tmp_path: Path) -> None:
    import asyncio

    async def write(url: str, creds: str, key: str) -> None:
        async with Connection(settings_for([url], identity="web1", creds=creds)) as connection:
            await connection.wait_connected()
            await NatsKeyValue(connection, "CCM_SLOTS").update_among(key, b"{}", "pg.>", 0)

    with secured_fleet(tmp_path) as one:
        url, creds = one.fleet.url, str(one.directory / "web1.creds")
        asyncio.run(write(url, creds, "pg.web1"))

        with pytest.raises(BusDeniedError):
            asyncio.run(write(url, creds, "pg.web2"))

        path = one.fleet.write("site.yaml", restart(one.directory / "log"))
        applied = one.as_("bob", "apply", path, "-t", "role=web", "--yes", "--json")
        released = one.as_("bob", "slots", "release", "pg", "web1", "--yes")
        assert (applied.code, applied.states) == (0, {"web1": "changed"}), applied.err
        assert released.code == 1
