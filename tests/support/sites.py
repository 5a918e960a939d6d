"""
A center and a site: two brokers with JetStream domains of their own, joined by a leaf node whose line can be cut.

The keys, accounts and credentials are those of `ccmctl init --security`, so users are the same on both. The site mirrors what
operators write, and the center sources what the nodes of the site write.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ccm_agent.bus.access import credentials
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.model.secret import Secret
from ccm_agent.testing.nats_server import NatsServer, ServerSettings, find_server, free_ports
from tests.support.certificates import make_certificates
from tests.support.fleet import Done, Fleet
from tests.support.nats_server import require_server
from tests.support.secured import Secured

_PART_BYTES = 4096


class Line:
    """A relay of TCP on a loopback port, in a thread of its own."""

    def __init__(self, target: int) -> None:
        self.port = free_ports(1)[0]
        self.target = target
        self._left: int | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._flows = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self.thaw()

    def heal(self) -> None:
        """Accept connections, from now on."""
        self._do(self._heal())

    def cut(self) -> None:
        """Break all connections, and accept none."""
        self._do(self._cut())

    def hold(self) -> None:
        """Pass on nothing, and keep the connections, as a dead network does."""
        self._do(self._hold())

    def cut_after(self, size_bytes: int) -> None:
        """Cut it in the middle of what is sent, after so many bytes."""
        self._left = size_bytes

    def freeze(self) -> None:
        """Keep the connections, and do not even pass on that one has ended."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def thaw(self) -> None:
        """Work again."""
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self.cut()
        self.freeze()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _hold(self) -> None:
        self._flows.clear()

    async def _heal(self) -> None:
        self._left = None
        self._flows.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _cut(self) -> None:
        self._left = None
        self._flows.set()
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        await asyncio.sleep(0.1)  # the tasks of connections end

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        await asyncio.gather(self._carry(reader, far_writer), self._carry(far_reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while part := await reader.read(_PART_BYTES):
                await self._flows.wait()
                if self._left is not None:
                    self._left -= len(part)
                    if self._left < 0:
                        writer.write(part[: len(part) // 2])
                        await self._cut()
                        break
                writer.write(part)
                await writer.drain()
        for each in self._writers:
            each.transport.abort()


class Site(Secured):
    """A center with a site; `fleet.ctl` and the agents use the site's broker."""

    center: NatsServer
    broker: NatsServer
    line: Line

    def at_center(self, *words: str) -> Done:
        """Run `ccmctl` at the center."""
        return self.fleet.ctl(*words, environ={"NATS_URL": self.center.url})

    @contextlib.asynccontextmanager
    async def admin(self, server: NatsServer) -> AsyncIterator[Connection]:
        """A connection of the first operator."""
        async with self.user(server, "tester", self.keys / "tester.creds") as one:
            yield one

    @contextlib.asynccontextmanager
    async def user(
        self, server: NatsServer, name: str, creds: Path, inbox: str = ""
    ) -> AsyncIterator[Connection]:
        """A connection with credentials."""
        quick = {"spread_s": 0.02, "pause_s": 0.2, "inbox": inbox}
        async with Connection(settings_for(server.url, identity=name, creds=str(creds), **quick)) as one:
            await one.connect_now()
            yield one

    def everything(self, name: str) -> Path:
        """Credentials of a user who may do everything in the account of the streams, as the holder of a broker makes them."""
        path = self.directory / f"{name}.creds"
        write_credentials(path, seed(self.keys, "account"), name, "STANDARD", {})
        return path

    def init(self, server: NatsServer, *words: str) -> Done:
        """Run `ccmctl init --site site1` at a broker."""
        environ = {"NATS_URL": server.url, "CCM_CREDS": str(self.keys / "tester.creds")}
        return self.fleet.ctl("init", "--site", "site1", *words, environ=environ)


@contextlib.contextmanager
def site_fleet(directory: Path) -> Iterator[Site]:
    """A center and a site without nodes, joined; all ends with the block."""
    require_server()
    center = NatsServer(ServerSettings(directory=directory / "center", name="center", domain="center"))
    broker = NatsServer(ServerSettings(directory=directory / "site1", name="site1", domain="site1"))
    fleet = Fleet(directory, [center, broker])
    one = Site(directory, fleet)
    one.center, one.broker = center, broker
    leaf = free_ports(1)[0]
    one.line = Line(leaf)
    try:
        fleet.environ["NATS_URL"] = center.url
        assert fleet.ctl("init", "--security").code == 0
        prepared = one.init(center, "--leaf", f"nats-leaf://127.0.0.1:{one.line.port}")
        assert (prepared.code, prepared.err) == (0, "")
        text = (one.keys / "nats-security.conf").read_text()
        # without no_advertise, the site learns the address behind the relay, and connects to that
        listen = (
            f'leafnodes {{ listen: "127.0.0.1:{leaf}", no_advertise: true, isolate_leafnode_interest: true }}'
        )
        center.settings = msgspec.structs.replace(
            center.settings, extra=f"{text}\n{listen}\nfeature_flags {{ js_ack_fc_v2: true }}\n"
        )
        center.start()
        one.line.heal()
        made = fleet.ctl("init", "--security")
        assert (made.code, made.err) == (0, "")
        at_center = one.init(center)
        assert (at_center.code, at_center.err) == (0, "")
        broker.settings = msgspec.structs.replace(broker.settings, extra=site_text(one.keys, "site1"))
        broker.start()
        at_site = one.init(broker)
        assert (at_site.code, at_site.err) == (0, "")
        fleet.environ |= {"NATS_URL": broker.url, "CCM_CREDS": str(one.keys / "tester.creds")}
        yield one
    finally:
        fleet.close()
        one.line.close()


DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "nats"


class Hub(Secured):
    """A center of three servers and two sites, all with the shipped configurations; `urls` has the address of each broker."""

    urls: dict[str, str]

    @contextlib.asynccontextmanager
    async def user(self, place: str, name: str, creds: Path, inbox: str = "") -> AsyncIterator[Connection]:
        """A connection with credentials."""
        quick = {"inbox": inbox, "spread_s": 0.02, "pause_s": 0.2, "ca": self.fleet.environ["CCM_CA"]}
        settings = settings_for(self.urls[place], identity=name, creds=str(creds), **quick)
        async with Connection(settings) as one:
            await one.connect_now()
            yield one

    def init(self, place: str, *words: str) -> Done:
        """Run `ccmctl init` at a broker, again while its servers are still finding each other."""
        for _ in range(20):
            done = self.fleet.ctl("init", *words, environ={"NATS_URL": self.urls[place]})
            if done.code == 0:
                return done
            time.sleep(0.5)
        raise AssertionError(done.err)


@contextlib.contextmanager
def hub_fleet(directory: Path, sites: Sequence[str]) -> Iterator[Hub]:
    """A center of three servers and its sites, joined; all ends with the block."""
    require_server()
    beside = directory / "beside"
    beside.mkdir()
    make_certificates(beside)
    fleet = Fleet(directory, [])
    hub = Hub(directory, fleet)
    clients, routes, monitors, leaves, ats, sited = (free_ports(3) for _ in range(6))
    hub.urls = {"center": ",".join(f"tls://127.0.0.1:{port}" for port in clients)}
    fleet.environ |= {"NATS_URL": hub.urls["center"], "CCM_CA": str(beside / "ca.pem")}
    running: list[subprocess.Popen[bytes]] = []
    try:
        assert fleet.ctl("init", "--security").code == 0
        fleet.environ["CCM_CREDS"] = str(hub.keys / "tester.creds")
        shutil.copy(beside / "ca.pem", hub.keys / "ca.pem")
        leaf = ",".join(f"tls://127.0.0.1:{port}" for port in leaves)
        for site in sites:
            assert "nats-security.conf" in fleet.ctl("init", "--site", site, "--leaf", leaf).out
        others = {f"nats{n + 1}.example.net:6222": f"127.0.0.1:{routes[n]}" for n in range(3)}
        for n in range(3):
            own = {":4222": clients[n], ":8222": monitors[n], ":6222": routes[n], ":7422": leaves[n]}
            replaced = {f"127.0.0.1{was}": f"127.0.0.1:{port}" for was, port in own.items()}
            there = directory / f"hub-{n + 1}"
            there.mkdir()
            shutil.copy(hub.keys / "nats-security.conf", there)
            running.append(_deployed(there, f"hub-{n + 1}.conf", beside, others | replaced))
        hub.init("center", "--security")
        for n, site in enumerate(sites):
            hub.init("center", "--site", site)
            there = directory / "sites" / site
            shutil.copytree(hub.keys / f"site-{site}", there)
            path = there / "site.conf"
            path.write_text(path.read_text().replace("/etc/nats", str(there)))
            replaced = {"127.0.0.1:4222": f"127.0.0.1:{ats[n]}", "127.0.0.1:8222": f"127.0.0.1:{sited[n]}"}
            # the shipped example and the file that it includes have the same name
            replaced |= {"domain: paris": f"domain: {site}", "paris1": f"{site}1"}
            running.append(_deployed(there, "site.conf", beside, replaced, "server.conf"))
            hub.urls[site] = f"tls://127.0.0.1:{ats[n]}"
            hub.init(site, "--site", site)
        yield hub
    finally:
        fleet.close()
        for one in running:
            one.kill()
            one.wait()


def _deployed(
    there: Path, name: str, beside: Path, replaced: Mapping[str, str], as_name: str = ""
) -> subprocess.Popen[bytes]:
    """Start a server with a shipped configuration, with ports and folders that a test may use."""
    tls = (DEPLOY / "tls.conf").read_text()
    text = (
        (DEPLOY / name)
        .read_text()
        .replace("0.0.0.0:", "127.0.0.1:")
        .replace("/var/lib/nats", str(there / "store"))
    )
    for was, now in replaced.items():
        text = text.replace(was, now)
    for file in ("server.pem", "server.key", "ca.pem"):
        text, tls = (one.replace(f'"{file}"', f'"{beside / file}"') for one in (text, tls))
    (there / "tls.conf").write_text(tls)
    path = there / (as_name or name)
    path.write_text(text)
    return subprocess.Popen(
        [find_server(), "-c", str(path), "-l", str(there / "log")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def site_text(keys: Path, site: str) -> str:
    """The configuration that `ccmctl init --site` made for the site's broker, for a folder of the test."""
    there = keys / f"site-{site}"
    text = (there / "site.conf").read_text().replace("/etc/nats", str(there))
    return text.replace("include nats-security.conf", (there / "nats-security.conf").read_text())


def seed(keys: Path, name: str) -> Secret:
    return Secret((keys / f"{name}.seed").read_text().strip())


def write_credentials(path: Path, account: Secret, name: str, kind: str, allowed: Mapping[str, Any]) -> None:
    limits = {"subs": -1, "data": -1, "payload": -1, "allowed_connection_types": [kind]}
    user = credentials.new_user()
    key = credentials.public_key(user)
    token = credentials.signed_jwt(credentials.key_pair(account), key, "user", name, {**limits, **allowed})
    path.write_text(credentials.credentials_text(token, user).reveal())
    path.chmod(0o600)
