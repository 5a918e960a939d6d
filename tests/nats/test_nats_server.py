"""The tool that tests and the demo start servers with."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from ccm_agent.model.errors import BusSetupError, BusUnavailableError
from ccm_agent.testing import nats_server
from ccm_agent.testing.nats_server import (
    NatsServer,
    ServerSettings,
    find_server,
    free_ports,
    server_version,
    temporary_server,
)
from tests.support.nats_server import require_server, running_cluster, running_server

pytestmark = pytest.mark.nats


def answers(server: NatsServer) -> bool:
    """Somebody takes connections at a server's port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), timeout=1):
        return True
    return False


def test_a_started_server_takes_connections_and_a_stopped_one_does_not(tmp_path) -> None:
    with running_server(tmp_path) as server:
        assert answers(server)
        assert server.pid

        server.stop()

        assert not answers(server)
        assert server.pid == 0


def test_a_killed_server_comes_back_at_the_same_address(tmp_path) -> None:
    with running_server(tmp_path) as server:
        url, pid = server.url, server.pid

        server.kill()
        server.start()

        assert server.url == url
        assert server.pid != pid
        assert answers(server)


def test_a_server_cannot_be_started_twice(tmp_path) -> None:
    with running_server(tmp_path) as server, pytest.raises(BusSetupError):
        server.start()


def test_a_temporary_server_leaves_nothing_behind() -> None:
    require_server()

    with temporary_server() as server:
        directory = server.settings.directory
        assert directory.is_dir()

    assert not directory.exists()
    assert not answers(server)


def test_a_server_that_fails_to_start_reports_why(tmp_path) -> None:
    require_server()
    server = NatsServer(ServerSettings(directory=tmp_path, extra="no such: setting ["))

    with pytest.raises(BusUnavailableError, match="line 5"):
        server.start()
    assert server.pid == 0


def test_a_running_server_takes_another_configuration(tmp_path) -> None:
    with running_server(tmp_path) as server:
        server.reload("debug: true")

        with pytest.raises(BusUnavailableError, match="did not reload"):
            server.reload("debug: [")


def test_two_servers_get_different_ports(tmp_path) -> None:
    with running_server(tmp_path / "a") as one, running_server(tmp_path / "b") as other:
        assert one.port != other.port


def test_three_servers_make_a_cluster(tmp_path) -> None:
    with running_cluster(tmp_path) as servers:
        assert len({server.port for server in servers}) == 3
        assert all(answers(server) for server in servers)


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20


def test_the_server_that_is_named_is_taken(monkeypatch, tmp_path) -> None:
    named = tmp_path / "my-server"
    named.write_text("#!/bin/sh\n")
    named.chmod(0o755)
    monkeypatch.setenv("NATS_SERVER", str(named))

    assert find_server() == named


def test_a_named_server_that_is_not_a_program_is_an_error(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("NATS_SERVER", str(tmp_path / "missing"))

    with pytest.raises(BusSetupError, match="NATS_SERVER"):
        find_server()


@pytest.mark.parametrize(("version", "taken"), [("v2.9.10", False), ("v2.14.0", True), ("v3.0.1", True)])
def test_an_old_server_on_the_path_is_skipped(monkeypatch, tmp_path, version, taken) -> None:
    on_path = tmp_path / "nats-server"
    on_path.write_text(f"#!/bin/sh\necho nats-server: {version}\n")
    on_path.chmod(0o755)
    cached = tmp_path / "cached"
    cached.write_text("")
    cached.chmod(0o755)
    monkeypatch.delenv("NATS_SERVER", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(nats_server, "CACHED", cached)

    assert find_server() == (on_path if taken else cached)


def test_the_version_of_a_real_server_is_known() -> None:
    require_server()

    assert server_version(find_server()) >= nats_server.MINIMUM_VERSION
