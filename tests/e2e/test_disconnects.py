"""`top` and the dashboard learn of a node that is gone from the broker, long before its heartbeat is late."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.access.credentials import name_in_jwt
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.disconnects import follow_disconnects
from ccm_ctl.app import ConnectionOptions, bus_settings, connected
from ccm_ctl.dashboard.fleet_state import FleetState
from ccm_ctl.fleet.keys.keys import Keys
from ccm_ctl.fleet.keys.system_account import ask_servers, system_connection
from ccm_ctl.fleet.nodes.discovery import TargetSpec
from ccm_ctl.top.fleet_watch import FleetWatch
from tests.support.fleet import WAIT_S
from tests.support.nats_server import Heard
from tests.support.secured import Secured, secured_broker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

CONNECTIONS = "$SYS.REQ.SERVER.PING.CONNZ"
KICK = "$SYS.REQ.SERVER.*.KICK"
LATE_S = 90
"""When the heartbeat of a node that is gone is late, with the usual interval of one minute."""


class Screens:
    """What `top` and the page of the fleet show of each node, and all that they have shown."""

    def __init__(self, watch: FleetWatch, page: FleetState) -> None:
        self._watch = watch
        self._page = page
        self.seen: dict[str, set[str]] = {}

    async def look(self) -> dict[str, tuple[str, str]]:
        """The state of each node on both."""
        overview = self._watch.overview
        top = {name: one.state for name, one in overview.conditions.items()} if overview else {}
        rows = [msgspec.json.decode(row) for row in (await self._page.changes(0, TargetSpec()))["rows"]]
        page = {row["node"]: row["status"] for row in rows}
        for name, state in (*top.items(), *page.items()):
            self.seen.setdefault(name, set()).add(state)
        return {name: (top.get(name, ""), state) for name, state in page.items()}

    async def wait(self, name: str, wanted: str) -> float:
        """Return the seconds until both show a state."""
        began = time.monotonic()
        async with asyncio.timeout(WAIT_S):
            while True:
                if (await self.look()).get(name) == (wanted, wanted):
                    return time.monotonic() - began
                await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def screens(environ: Mapping[str, str]) -> AsyncIterator[tuple[Screens, Heard]]:
    """`top` and the dashboard of an operator, and the broker's notices to the same operator."""
    heard = Heard()
    async with connected(bus_settings(ConnectionOptions(), environ)) as broker:
        assert isinstance(broker.connection, Connection)
        await follow_disconnects(broker.connection, heard)
        watch, page = FleetWatch(broker.fleet), FleetState(broker.fleet, lambda: None)
        runs: list[Callable[[], object]] = [
            watch.run,
            page.silent.run,
            lambda: page.run(lambda: True),
        ]
        tasks = [asyncio.create_task(run()) for run in runs]  # type: ignore[arg-type]
        try:
            yield Screens(watch, page), heard
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def kick(one: Secured, environ: Mapping[str, str], node: str) -> None:
    """Have the server end the connection of a node, as a broken line does."""
    settings = bus_settings(ConnectionOptions(), environ)
    async with system_connection(settings, Keys(one.keys), [CONNECTIONS, KICK]) as connection:
        [body] = await ask_servers(connection, CONNECTIONS, {"auth": True})
        answer = msgspec.json.decode(body)
        users = {name_in_jwt(each.get("jwt", "")): each["cid"] for each in answer["data"]["connections"]}
        subject = KICK.replace("*", answer["server"]["id"])
        await connection.request(subject, msgspec.json.encode({"cid": users[node]}))


@pytest.mark.parametrize("operator", ["tester", "looker"])
def test_a_killed_agent_is_silent_within_seconds_and_one_that_reconnects_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with secured_broker(tmp_path, Secured) as one:
        fleet = one.fleet
        one.give("operator", "looker", "--plan", "role=web")
        creds = one.keys / "tester.creds" if operator == "tester" else tmp_path / "looker.creds"
        fleet.environ["CCM_CREDS"] = str(one.keys / "tester.creds")
        for name in ("web1", "web2", "web3"):
            node = {"url": fleet.environ["NATS_URL"], "creds": str(one.give("node", name))}
            fleet.add(name, nats=node, heartbeat="60s")
        environ = {**fleet.environ, "CCM_CREDS": str(creds)}

        async def look() -> float:
            async with screens(environ) as (shown, heard):
                for name in ("web1", "web2", "web3"):
                    await shown.wait(name, "unassigned")
                await kick(one, environ, "web2")
                await heard.wait(1)
                await asyncio.to_thread(fleet.agents["web1"].kill)
                gone_s = await shown.wait("web1", "silent")
                await asyncio.to_thread(fleet.agents["web1"].start)
                await shown.wait("web1", "unassigned")

            assert [found.node for found in heard.items] == ["web2", "web1"]
            assert shown.seen == {
                "web1": {"unassigned", "silent"},
                "web2": {"unassigned"},
                "web3": {"unassigned"},
            }
            return gone_s

        assert asyncio.run(look()) < LATE_S / 3
