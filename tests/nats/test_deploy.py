"""The server configurations that are shipped: a server takes each of them, and keeps strangers out."""

from __future__ import annotations

import asyncio
import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.bus.access.accounts import LOGIN_S
from ccm_agent.bus.access.credentials import new_authority, server_configuration, user_credentials
from ccm_agent.bus.access.permissions import Role, operator_permissions
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import BusSettings, settings_for
from ccm_agent.bus.layout import LayoutOptions, make
from ccm_agent.bus.stream_creation import LayoutAction
from ccm_agent.model.errors import BusDeniedError, BusUnavailableError
from ccm_agent.testing.nats_server import find_server, free_ports
from tests.support.certificates import make_certificates
from tests.support.nats_server import WAIT_S, eventually, require_server

pytestmark = [pytest.mark.nats, pytest.mark.timeout(60)]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SINGLE = ["nats/single.conf", "container/nats.conf"]
CLUSTER = ["nats/cluster-1.conf", "nats/cluster-2.conf", "nats/cluster-3.conf"]


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shipped files and what belongs beside them, for this host's ports and folders."""
    require_server()
    folder = tmp_path_factory.mktemp("deploy")
    make_certificates(folder)
    authority = new_authority()
    (folder / "nats-security.conf").write_text(server_configuration(authority))
    allowed = operator_permissions("op", Role(admin=True))
    (folder / "op.creds").write_text(user_credentials(authority.account, "op", allowed).text.reveal())
    # written before any server reads it: one that finds it half written offers no TLS
    (folder / "tls.conf").write_text(with_certificates((DEPLOY / "nats" / "tls.conf").read_text(), folder))
    return folder


def with_certificates(text: str, folder: Path) -> str:
    """A shipped configuration, with the names of its certificates for where they are."""
    for file in ("server.pem", "server.key", "ca.pem"):
        text = text.replace(f'"{file}"', f'"{folder / file}"')
    return text


def placed(folder: Path, name: str, ports: dict[str, int]) -> Path:
    """A shipped configuration with ports and folders that a test may use; everything else as it is."""
    text = (DEPLOY / name).read_text().replace("0.0.0.0:", "127.0.0.1:")
    store = folder / f"store-{Path(name).stem}-{Path(name).parent}"
    text = text.replace("/var/lib/nats", str(store))
    for was, port in ports.items():
        text = text.replace(was, f"127.0.0.1:{port}")
    path = folder / f"{Path(name).parent}-{Path(name).name}"
    path.write_text(with_certificates(text, folder))
    return path


def start(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [find_server(), "-c", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


async def made_with(folder: Path, urls: list[str], *, is_tls: bool, replicas: int) -> None:
    """The layout is made with credentials; without them nobody comes in."""
    ca = {"ca": str(folder / "ca.pem")} if is_tls else {}
    quick = {"spread_s": 0.02, "pause_s": 0.2, **ca}
    async with Connection(settings_for(urls, identity="op", creds=str(folder / "op.creds"), **quick)) as one:
        await eventually(one.connect_now)
        made = await eventually(lambda: make(one, LayoutOptions(secure=True)))
    assert {each.action for each in made} <= {LayoutAction.CREATED, LayoutAction.UNCHANGED}
    assert {each.replicas for each in made} == {replicas}
    async with Connection(settings_for(urls, identity="x", **quick)) as stranger:
        assert "refused our credentials" in await eventually(lambda: denied(stranger))


async def denied(stranger: Connection) -> str:
    """Why the broker refuses a connection; an accepted connection fails the test."""
    try:
        await stranger.connect_now()
    except BusDeniedError as err:
        return str(err)
    raise AssertionError("it let a stranger in")


@pytest.mark.parametrize("name", SINGLE)
def test_a_single_server_runs_with_the_shipped_configuration(beside: Path, name: str) -> None:
    client, monitor = free_ports(2)
    path = placed(beside, name, {"127.0.0.1:4222": client, "127.0.0.1:8222": monitor})
    server = start(path)
    try:
        asyncio.run(made_with(beside, [f"nats://127.0.0.1:{client}"], is_tls=name == SINGLE[0], replicas=1))
    finally:
        server.terminate()
        server.wait(20)


def test_a_server_gives_a_fleet_that_returns_at_once_time_to_log_in(beside: Path) -> None:
    client, monitor = free_ports(2)
    server = start(placed(beside, SINGLE[0], {"127.0.0.1:4222": client, "127.0.0.1:8222": monitor}))
    try:
        figures = asyncio.run(eventually(lambda: asyncio.to_thread(varz, monitor)))
    finally:
        server.terminate()
        server.wait(20)

    assert (figures["auth_timeout"], figures["tls_timeout"]) == (LOGIN_S, LOGIN_S)
    assert BusSettings().longest_connect_s <= LOGIN_S


def varz(port: int) -> dict[str, Any]:
    """What a server says about itself."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/varz", timeout=WAIT_S) as answer:
            figures: dict[str, Any] = json.load(answer)
    except OSError as err:
        raise BusUnavailableError(str(err)) from err
    return figures


def test_a_cluster_of_three_runs_with_the_shipped_configuration(beside: Path) -> None:
    free = free_ports(9)
    clients, monitors, routes = free[:3], free[3:6], free[6:]
    known = {f"nats{n + 1}.example.net:6222": routes[n] for n in range(3)}
    servers = []
    try:
        for n, name in enumerate(CLUSTER):
            own = {
                "127.0.0.1:4222": clients[n],
                "127.0.0.1:8222": monitors[n],
                "127.0.0.1:6222": routes[n],
            }
            servers.append(start(placed(beside, name, own | known)))
        urls = [f"nats://127.0.0.1:{port}" for port in clients]
        asyncio.run(made_with(beside, urls, is_tls=True, replicas=3))
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait(20)
