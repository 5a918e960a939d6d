import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm_agent.agent.process.main import SystemdNotifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(tmp_path / "notify"))
        one.settimeout(5)
        yield one


def notifier(manager: socket.socket, **environ: str) -> SystemdNotifier:
    return SystemdNotifier({"NOTIFY_SOCKET": manager.getsockname(), **environ})


def test_the_service_manager_is_reported(manager: socket.socket) -> None:
    one = notifier(manager)

    one.ready("node web1")
    one.status("busy")
    one.alive()
    one.stopping()

    assert [manager.recv(1000).decode() for _ in range(4)] == [
        "READY=1\nSTATUS=node web1",
        "STATUS=busy",
        "WATCHDOG=1",
        "STOPPING=1",
    ]


def test_a_reload_reports_when_it_began(manager: socket.socket) -> None:
    notifier(manager).reloading()

    state, _, since = manager.recv(1000).decode().partition("\nMONOTONIC_USEC=")
    assert (state, since.isdecimal()) == ("RELOADING=1", True)


def test_an_abstract_socket_is_targeted_by_an_at_sign() -> None:
    name = f"ccm-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        manager.settimeout(5)

        SystemdNotifier({"NOTIFY_SOCKET": f"@{name}"}).alive()

        assert manager.recv(100) == b"WATCHDOG=1"


def test_without_a_service_manager_nothing_happens(tmp_path: Path) -> None:
    SystemdNotifier({}).ready("x")
    SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("x")


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "no"}, 0.0),
    ],
    ids=["none", "on", "for us", "for another process", "nonsense"],
)
def test_the_watchdog_is_fed_when_it_is_ours(environ: dict[str, str], seconds: float) -> None:
    assert SystemdNotifier(environ).watchdog_s == seconds
