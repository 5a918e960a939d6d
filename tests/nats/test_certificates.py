"""Certificates as `ccmctl init --security --server-name` makes them: a server shows them, agent and operator know it by them."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ccm_agent.testing.nats_server import NatsServer, ServerSettings
from tests.support.fleet import Fleet
from tests.support.nats_server import require_server

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    require_server()
    fleet = Fleet(tmp_path, [NatsServer(ServerSettings(directory=tmp_path / "nats"))])
    try:
        yield fleet
    finally:
        fleet.close()


def test_a_fleet_without_certificates_gets_them_and_uses_them(fleet: Fleet, tmp_path: Path) -> None:
    keys = tmp_path / "home" / ".config" / "ccm" / "keys"
    told = fleet.ctl("init", "--security", "--server-name", "nats1.example.net")
    server = fleet.broker
    extra = "".join((keys / f"nats-{part}.conf").read_text() for part in ("security", "tls"))
    server.settings = msgspec.structs.replace(server.settings, extra=extra)
    server.start()
    url = server.url.replace("nats://", "tls://")
    fleet.environ |= {
        "NATS_URL": url,
        "CCM_CA": str(keys / "ca.pem"),
        "CCM_CREDS": str(keys / "tester.creds"),
    }
    made = fleet.ctl("init", "--security")
    creds = tmp_path / "web1.creds"
    creds.write_text(fleet.ctl("node", "add", "web1").out)
    creds.chmod(0o600)
    fleet.add("web1", nats={"url": url, "creds": str(creds), "tls": {"ca": str(keys / "ca.pem")}})

    pinged = fleet.ctl("ping", "--json")
    stranger = fleet.ctl("ping", environ={"CCM_CA": ""})

    assert (told.code, told.err) == (0, "")
    assert f"export CCM_CA={keys}/ca.pem" in told.out
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in keys.glob("*.key")} == {
        "ca.key": 0o600,
        "server.key": 0o600,
    }
    assert (made.code, made.err) == (0, "")
    assert [one["node"] for one in pinged.records if one["record"] == "reply"] == ["web1"]
    assert (stranger.code, "the TLS handshake with this broker failed" in stranger.err) == (1, True)
