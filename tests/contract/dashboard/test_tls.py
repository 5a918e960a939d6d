"""The dashboard for other hosts: TLS, and a cookie that is sent over TLS only."""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import aiohttp

from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.dashboard.access import Access, DashboardUser, Right
from ccm_ctl.dashboard.server import Dashboard, DashboardOptions
from tests.support.certificates import make_certificates
from tests.support.controller import NOW, fleet_on

TOKEN = "0123456789abcdef0123456789abcdef"
USERS = {hashlib.sha256(TOKEN.encode()).hexdigest(): DashboardUser(name="ann", right=Right.READ)}


async def test_a_user_of_the_file_signs_in_over_tls(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.cert, made.key)
    options = DashboardOptions(
        listen="127.0.0.1",
        port=0,
        names=("localhost",),
        tls=context,
        access=Access(b"k" * 32, "op", USERS, lambda: 1000.0, may_act=False),
        explain=lambda _: {},
    )
    broker = MemoryBroker(now=lambda: NOW)
    trusted = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=made.ca))
    async with (
        Dashboard(fleet_on(MemoryBus(broker, "op")), options).serving() as address,
        aiohttp.ClientSession(connector=trusted) as http,
        http.post(f"{address}/api/session", json={"token": TOKEN}, headers={"Origin": address}) as answer,
    ):
        said, cookie = await answer.json(), answer.headers["Set-Cookie"]

    assert address.startswith("https://localhost:")
    assert (answer.status, said["name"], said["right"]) == (200, "ann", "read")
    assert cookie.startswith("__Host-ccm-")
    assert all(word in cookie for word in ("Secure", "HttpOnly", "SameSite=Strict", "Path=/"))
    assert "Domain" not in cookie
