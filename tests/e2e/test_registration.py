"""
Choria CCM's example of registration, with two agents: a web server says where it is, a load balancer lists it and reloads.

See https://choria-ccm.dev/registration/; the service is a file here, for nobody's machine is changed, and what reloads HAProxy
writes down the list that it was reloaded with.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.streams import call
from tests.support.fleet import FILES, TOP, WAIT_S, AgentProcess, Fleet, fleet
from tests.support.nats_server import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

TEMPLATE = """\
backend web_servers
  balance roundrobin
[[ range _, entry := registrations("production", "http", "web", "*") ]]
  server [[ entry.Address ]] [[ entry.Address ]]:[[ entry.Port ]] check weight [[ 256 - entry.Priority ]]
[[ end ]]
"""
OWNER = {"owner": str(os.getuid()), "group": str(os.getgid()), "mode": "0644"}
WEB = {
    "data": {"web_port": 8080, "address": "10.0.0.1"},
    "ccm": {
        "resources": [
            {
                "file": [
                    {
                        f"{FILES}/my-app": {
                            "ensure": "present",
                            "content": "up",
                            **OWNER,
                            "health_checks": [{"name": "alive", "command": f"test -e {FILES}/my-app"}],
                            "register_when_stable": [
                                {
                                    "cluster": "production",
                                    "service": "web",
                                    "protocol": "http",
                                    "address": "{{ Data.address }}",
                                    "port": "{{ Data.web_port }}",
                                    "priority": 10,
                                    "ttl": "15s",
                                }
                            ],
                        }
                    }
                ]
            }
        ]
    },
}
LB = {
    "ccm": {
        "resources": [
            {
                "file": [
                    {
                        f"{FILES}/backends.cfg": {
                            "ensure": "present",
                            "content": '{{ template("backends.cfg.jet") }}',
                            **OWNER,
                        }
                    }
                ]
            },
            {
                "exec": [
                    {
                        "reload-haproxy": {
                            "command": f'sh -c \'grep -o "server [0-9.]*" {FILES}/backends.cfg | tr "\\n" " " >> '
                            f"{FILES}/reloads; echo >> {FILES}/reloads'",
                            "refresh_only": True,
                            "subscribe": [f"file#{FILES}/backends.cfg"],
                        }
                    }
                ]
            },
            {"file": [{f"{FILES}/other": {"ensure": "present", "content": "x", **OWNER}}]},
        ]
    }
}


class Site:
    """The two nodes, and what the load balancer has made of the registrations."""

    def __init__(self, built: Fleet) -> None:
        self.fleet = built
        built.write("lb/backends.cfg.jet", TEMPLATE)
        self.manifests = {
            "web1": built.write("web/manifest.yaml", json.dumps(WEB)),
            "lb1": built.write("lb/manifest.yaml", json.dumps(LB)),
        }
        context = built.directory / "home" / ".config" / "nats" / "context"
        context.mkdir(parents=True)
        (context / "CCM.json").write_text(json.dumps({"url": built.url}))

    def add(self, name: str, **settings: Any) -> AgentProcess:
        """Start an agent on its manifest."""
        self.fleet.add(name, manifests=[self.manifests[name]], interval="1h", **settings)
        return self.fleet.agents[name]

    def settle(self, settle: str) -> None:
        """Start the load balancer's agent again, with another time for nodes to register again."""
        self.lb.stop()
        manifests = [self.manifests["lb1"]]
        self.lb.configure(self.fleet.url, manifests=manifests, interval="1h", registration_settle=settle)
        self.lb.start()
        self.fleet.wait_present(["lb1"])

    @property
    def lb(self) -> AgentProcess:
        """The load balancer."""
        return self.fleet.agents["lb1"]

    @property
    def servers(self) -> list[str]:
        """Who the load balancer has in its pool."""
        path = self.lb.files / "backends.cfg"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.strip() for line in lines if "server" in line and "web_servers" not in line]

    @property
    def reloads(self) -> list[str]:
        """The pool at each reload."""
        path = self.lb.files / "reloads"
        return [line.strip() for line in path.read_text().splitlines()] if path.exists() else []

    def converge(self) -> str:
        """Have the load balancer apply its manifest once more; what became of it."""
        before = self.last_run()
        process = self.lb.process
        assert process is not None
        process.send_signal(signal.SIGHUP)
        self.fleet.wait_for(lambda: self.last_run()[0] != before[0], "lb1 to converge")
        return self.last_run()[1]

    def converge_until(self, servers: list[str]) -> None:
        """Have it converge until its pool is this."""
        deadline = time.monotonic() + WAIT_S
        while self.converge() == "failed" or self.servers != servers:
            assert time.monotonic() < deadline, (self.servers, self.lb.log[-3000:])
            time.sleep(0.2)

    def last_run(self) -> tuple[str, str]:
        """Id and state of the run that lb1 ended last, from its log."""
        ended = [
            record
            for record in map(json.loads, filter(lambda line: line.startswith("{"), self.lb.log.splitlines()))
            if record.get("message", record.get("msg")) == "a run has ended"
        ]
        return (ended[-1]["run"], ended[-1]["state"]) if ended else ("", "")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `ccm` on an operator's own host."""
        return subprocess.run(
            [sys.executable, "-m", "ccm_agent", *arguments],
            cwd=TOP, env=self.fleet.environ, capture_output=True, text=True, check=False, timeout=WAIT_S,
        )  # fmt: skip

    def register(self, address: str) -> None:
        """Register a web server by hand."""
        known = ["--cluster", "production", "--service", "web", "--protocol", "http", "--address", address]
        more = ["--port", "8080", "--priority", "10", "--ttl", "1h"]
        done = self.run("registration", "create", *known, *more)
        assert done.returncode == 0, done.stderr

    def restart_broker(self) -> None:
        """Restart the broker as if the stream were in memory: it is there again, and empty."""
        self.fleet.broker.kill()
        self.fleet.broker.start()

        async def purge() -> None:
            async with Connection(settings_for(self.fleet.url)) as connection:
                await connection.connect_now()
                await eventually(lambda: call(connection, "STREAM.PURGE.REGISTRATION"))

        asyncio.run(purge())

    def is_registered(self, address: str) -> bool:
        """Whether the broker says so, by now."""
        done = self.run("registration", "query", "*", "*", "*", address)
        return done.returncode == 0 and address in done.stdout


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with fleet(tmp_path) as built:
        yield Site(built)


def server(address: str) -> str:
    return f"server {address} {address}:8080 check weight 246"


def test_a_load_balancer_lists_the_registered_nodes_and_keeps_its_pool_when_the_broker_restarts(
    site: Site,
) -> None:
    one, two = "10.0.0.1", "10.0.0.2"
    web = site.add("web1", registration="jetstream", health_check_interval="1s")
    # as long as the broker is there it is believed; a busy machine may well lose it for a moment
    lb = site.add("lb1", registration_settle="0s")

    # the web server registers, and goes on doing so as long as its checks pass
    site.converge_until([server(one)])
    site.register(two)
    site.converge_until([server(one), server(two)])
    assert site.converge() == "stable"
    assert site.reloads[-2:] == [f"server {one}", f"server {one} server {two}"]
    told = len(site.reloads)

    # it goes away without a word: its TTL takes it out of the pool
    web.kill()
    site.converge_until([server(two)])
    assert site.reloads[told:] == [f"server {two}"]

    # it comes back
    web.start()
    site.converge_until([server(one), server(two)])
    assert site.reloads[told + 1 :] == [f"server {one} server {two}"]

    site.settle("1h")
    site.converge_until([server(one), server(two)])

    # the broker restarts and has forgotten everybody, and nobody can register: the pool stays
    web.kill()
    site.restart_broker()
    (lb.files / "other").unlink()
    assert site.converge() == "failed"
    assert site.servers == [server(one), server(two)]
    assert len(site.reloads) == told + 2
    assert (lb.files / "other").exists()  # other resources go on

    # who is back is not everybody yet
    web.start()
    site.fleet.wait_for(lambda: site.is_registered(one), "web1 to register again")
    assert site.converge() == "failed"
    site.register(two)
    site.fleet.wait_for(lambda: site.converge() == "stable", "everybody to be known again")
    assert site.servers == [server(one), server(two)]
    assert len(site.reloads) == told + 2


def forget_everybody(site: Site, settle: str) -> None:
    """A server is in the pool; then broker and load balancer start anew, and it has not registered again."""
    lb = site.add("lb1", registration_settle=settle)
    site.register("10.0.0.1")
    site.converge_until([server("10.0.0.1")])
    lb.stop()
    site.restart_broker()
    lb.start()
    site.fleet.wait_present(["lb1"])


def test_zero_settle_time_accepts_an_empty_answer(site: Site) -> None:
    forget_everybody(site, "0s")

    site.converge_until([])


def test_a_new_agent_remembers_the_pool_of_the_one_before(site: Site) -> None:
    forget_everybody(site, "1h")

    assert site.converge() == "failed"
    assert site.servers == [server("10.0.0.1")]
