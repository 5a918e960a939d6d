"""
A center and a site: two brokers with JetStream domains of their own, joined by a leaf node whose line can be cut.

The keys, accounts and credentials are those of `ccmctl init --security`, so users are the same on both. The site mirrors what
operators write, and the center sources what the nodes of the site write.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ccm_agent.bus.access import credentials
from ccm_agent.bus.access.accounts import Account
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.layout import LayoutOptions, plan
from ccm_agent.bus.streams import call
from ccm_agent.model.secret import Secret
from ccm_agent.testing.nats_server import NatsServer, ServerSettings, free_ports
from tests.support.fleet import Done, Fleet
from tests.support.nats_server import eventually, require_server
from tests.support.secured import Secured

MIRRORED = (
    "KV_CCM_FACTS",
    "KV_CCM_DATA",
    "KV_CCM_NODE_DATA",
    "KV_CCM_ASSIGNMENTS",
    "KV_CCM_SECRETS",
    "KV_CCM_TRUST",
    "OBJ_CCM_MANIFESTS",
)
"""What operators write at the center."""

SOURCED = ("CCM_EVENTS", "KV_CCM_NODES")
"""What nodes write at the site."""

FLOW_CONTROL = "feature_flags { js_ack_fc_v2: true }"
"""
With this flag, the subjects of flow control begin with the domain, so they can cross accounts by one import for each site.
Without it, a source stops in the middle of a large backlog, because the answers to flow control do not arrive.
"""

UP, DOWN = "choria.ccm.up.site1", "choria.ccm.down.site1"
_PART_BYTES = 4096


class Line:
    """A relay of TCP on a loopback port, in a thread of its own."""

    def __init__(self, target: int) -> None:
        self.port = free_ports(1)[0]
        self._target = target
        self._left: int | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._flows = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

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

    def close(self) -> None:
        """End the thread."""
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
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
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
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
        _write_credentials(path, _seed(self.keys, "account"), name, "STANDARD", {})
        return path

    async def join(self) -> None:
        """Create the streams of the site, and have the center source from it."""
        mirrors = self.user(self.center, "mirrors", self.directory / "mirrors.creds")
        async with self.admin(self.broker) as site, self.admin(self.center) as center, mirrors as between:
            for wanted in plan(LayoutOptions(secure=True), with_schedules=True):
                config = {name: value for name, value in wanted.config.items() if value is not None}
                if config["name"] in MIRRORED:
                    await _mirror(between, config, "JS.streams.API", republishes=False)
                    await _mirror(site, config, "$JS.center.API")
                    continue
                create = f"STREAM.CREATE.{config['name']}"
                # right after the leaf node has connected, the server may answer that there is no JetStream
                await eventually(lambda create=create, config=config: call(site, create, config))
            for name in SOURCED:
                config = (await call(center, f"STREAM.INFO.{name}"))["config"]
                config["sources"] = [{"name": name, "external": {"api": "$JS.site1.API", "deliver": UP}}]
                await call(center, f"STREAM.UPDATE.{name}", config)


async def _mirror(
    connection: Connection, config: Mapping[str, Any], api: str, *, republishes: bool = True
) -> None:
    kept = {name: value for name, value in config.items() if name != "subjects"}
    if not republishes:
        kept.pop("republish", None)
    mirror = {"name": config["name"], "external": {"api": api, "deliver": DOWN}}
    create = f"STREAM.CREATE.{config['name']}"
    await eventually(lambda: call(connection, create, {**kept, "mirror": mirror}))


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
        text = (one.keys / "nats-security.conf").read_text()
        own = credentials.new_account()
        # without no_advertise, the site learns the address behind the relay, and connects to that
        listen = (
            f'leafnodes {{ listen: "127.0.0.1:{leaf}", no_advertise: true, isolate_leafnode_interest: true }}'
        )
        center.settings = msgspec.structs.replace(
            center.settings, extra=f"{_with_account(text, one.keys, own)}\n{listen}\n{FLOW_CONTROL}\n"
        )
        center.start()
        one.line.heal()
        made = fleet.ctl("init", "--security")
        assert (made.code, made.err) == (0, "")
        creds = directory / "leaf.creds"
        _write_credentials(creds, own, "site1", "LEAFNODE", _leaf_permissions())
        _write_credentials(directory / "mirrors.creds", own, "mirrors", "STANDARD", {})
        account, _ = credentials.account_in_configuration(text, Account.CTL)
        remote = f'url: "nats-leaf://127.0.0.1:{one.line.port}", account: "{account}", credentials: "{creds}"'
        remotes = f"leafnodes {{ reconnect: 1, remotes: [ {{ {remote} }} ] }}"
        broker.settings = msgspec.structs.replace(
            broker.settings, extra=f"{_with_leaf(text, one.keys)}\n{remotes}\n{FLOW_CONTROL}\n"
        )
        broker.start()
        asyncio.run(one.join())
        fleet.environ |= {"NATS_URL": broker.url, "CCM_CREDS": str(one.keys / "tester.creds")}
        yield one
    finally:
        fleet.close()
        one.line.close()


def _seed(keys: Path, name: str) -> Secret:
    return Secret((keys / f"{name}.seed").read_text().strip())


def _with_account(text: str, keys: Path, account: Secret) -> str:
    """
    The center's configuration with an account for the site.

    In the account of the streams, the site's server could create and delete consumers of every stream. In an account of its own
    it reaches only mirrors of the buckets that it needs, and mirrors are read-only.
    """
    operator = credentials._pair(_seed(keys, "operator"))
    streams, _ = credentials.account_in_configuration(text, Account.CTL)
    own = credentials._public(credentials._pair(account))
    create = "API.CONSUMER.CREATE"
    asked = {f"$JS.{create}.{name}": f"JS.streams.{create}.{name}" for name in MIRRORED}
    answered = [f"$JS.site1.{create}.{name}" for name in SOURCED]
    down = [
        *(_crossing("service", subject, local) for subject, local in asked.items()),
        _crossing("service", "$JS.FC.center.>"),
        _crossing("stream", f"{DOWN}.>"),
    ]
    up = [
        *(_crossing("service", subject) for subject in answered),
        _crossing("service", "$JS.FC.site1.>"),
        _crossing("stream", f"{UP}.>"),
    ]
    token = credentials.account_tokens(text)[streams]
    claims = credentials._claims_in(token)["nats"]
    claims["exports"] += _exported(down)
    claims["imports"] += _imported(up, own)
    limits = {**claims["limits"], "conn": 10, "leaf": 1}
    site = {"limits": limits, "exports": _exported(up), "imports": _imported(down, streams)}
    of_site = credentials._jwt(operator, own, "account", "site1", site)
    changed = credentials._jwt(operator, streams, "account", "ctl", claims)
    return text.replace(token, f"{changed}\n  {own}: {of_site}")


def _with_leaf(text: str, keys: Path) -> str:
    """The site's configuration: its own account of the streams is at the other end of the leaf node."""
    streams, _ = credentials.account_in_configuration(text, Account.CTL)
    token = credentials.account_tokens(text)[streams]
    claims = credentials._claims_in(token)["nats"]
    claims["limits"]["leaf"] = 1
    operator = credentials._pair(_seed(keys, "operator"))
    return text.replace(token, credentials._jwt(operator, streams, "account", "ctl", claims))


def _crossing(kind: str, subject: str, local: str = "") -> dict[str, str]:
    return {"type": kind, "subject": subject, "local_subject": local or subject}


def _exported(crossings: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    return [{"name": one["subject"], "type": one["type"], "subject": one["subject"]} for one in crossings]


def _imported(crossings: Sequence[Mapping[str, str]], account: str) -> list[dict[str, Any]]:
    return [{**one, "name": one["subject"], "account": account} for one in crossings]


def _write_credentials(path: Path, account: Secret, name: str, kind: str, allowed: Mapping[str, Any]) -> None:
    limits = {"subs": -1, "data": -1, "payload": -1, "allowed_connection_types": [kind]}
    user = credentials.new_user()
    key = credentials._public(credentials._pair(user))
    token = credentials._jwt(credentials._pair(account), key, "user", name, {**limits, **allowed})
    path.write_text(credentials.credentials_text(token, user).reveal())
    path.chmod(0o600)


def _leaf_permissions() -> dict[str, Any]:
    """
    What the site's server may send to the center, and receive.

    The API cannot be narrowed to single streams: servers announce their interest in `$JS.center.API.CONSUMER.>` as a whole.
    """
    replies = ("$JSC.R.>", "$JS.FC.>", "_R_.>")
    return {
        "pub": {"allow": ["$JS.center.API.CONSUMER.>", f"{UP}.>", *replies]},
        "sub": {"allow": ["$JS.site1.API.CONSUMER.>", f"{DOWN}.>", *replies]},
    }
