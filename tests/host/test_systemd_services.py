"""systemd itself: units that start, stop, fail, wait, are masked or new, each twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import testenv

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

UNIT = "[Service]\nExecStart={start}\n{more}[Install]\nWantedBy=multi-user.target\n"


def unit(machine: testenv.Node, name: str, start: str = "/bin/sleep infinity", more: str = "") -> None:
    """A unit file, as a manifest before would have laid it: systemd is not told."""
    machine.path(f"/etc/systemd/system/{name}.service").write_text(UNIT.format(start=start, more=more))


def apply(machine: testenv.Node, program: str, *services: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """Apply services; the exit status and the events."""
    resources = [{"service": [{service.pop("name"): service} for service in services]}]
    machine.path("/root/m.yaml").write_text(json.dumps({"ccm": {"resources": resources}}))
    done = machine.run(program, "apply", "/root/m.yaml", "--events", "/root/events", check=False, timeout=120)
    lines = machine.path("/root/events").read_text().splitlines()
    machine.path("/root/events").unlink()
    events = [json.loads(line) for line in lines]
    return done.returncode, [event for event in events if event["protocol"].endswith("transaction.event")]


def state(machine: testenv.Node, name: str) -> tuple[str, str]:
    """What systemd says: is-active, is-enabled."""
    words = [
        machine.run("systemctl", question, name, check=False).stdout.strip()
        for question in ("is-active", "is-enabled")
    ]
    return words[0], words[1]


@contextmanager
def counted(machine: testenv.Node) -> Iterator[list[str]]:
    """The first argument of each call of systemctl; filled at the end."""
    calls: list[str] = []
    program = '#!/bin/sh\\necho "$1" >> /run/calls\\nexec /usr/bin/systemctl "$@"\\n'
    path = "/usr/local/bin/systemctl"
    machine.run(
        "sh", "-c", f"printf '{program}' > {path}; chmod 755 {path}; rm -f /run/calls; touch /run/calls"
    )
    try:
        yield calls
        calls += machine.path("/run/calls").read_text().split()
    finally:
        machine.run("rm", "-f", path)


@pytest.mark.parametrize("enable", [True, False, None])
@pytest.mark.parametrize("ensure", ["running", "stopped"])
@pytest.mark.parametrize(
    "before", [("start", "enable"), ("start", "disable"), ("stop", "enable"), ("stop", "disable")]
)
def test_a_unit_comes_from_any_state_to_any_other(
    machine: testenv.Node, program: str, before: tuple[str, str], ensure: str, enable: bool | None
) -> None:
    unit(machine, "t-any")
    machine.run("systemctl", "daemon-reload")
    for verb in before:
        machine.run("systemctl", verb, "t-any")
    was = state(machine, "t-any")
    wanted: dict[str, Any] = {"ensure": ensure} | ({} if enable is None else {"enable": enable})

    first, (event,) = apply(machine, program, {"name": "t-any", **wanted})
    second, (again,) = apply(machine, program, {"name": "t-any", **wanted})

    active = "active" if ensure == "running" else "inactive"
    enabled = was[1] if enable is None else "enabled" if enable else "disabled"
    assert state(machine, "t-any") == (active, enabled)
    assert (first, event["changed"]) == (0, was != (active, enabled))
    assert (second, again["changed"]) == (0, False)


def test_a_masked_unit_fails_with_systemds_message(machine: testenv.Node, program: str) -> None:
    machine.path("/usr/lib/systemd/system/t-masked.service").write_text(
        UNIT.format(start="/bin/sleep infinity", more="")
    )
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "mask", "t-masked")

    code, (event,) = apply(machine, program, {"name": "t-masked", "ensure": "running"})

    assert code == 2
    assert "service is stopped, expected running" in event["error"][0]
    assert "masked" in event["error"][0]


def test_a_unit_that_fails_at_once_is_a_failure(machine: testenv.Node, program: str) -> None:
    unit(machine, "t-fails", "/bin/false", "Type=oneshot\n")

    code, (event,) = apply(machine, program, {"name": "t-fails", "ensure": "running"})

    assert (code, event["failed"]) == (2, True)
    assert "service is stopped, expected running" in event["error"][0]


def test_a_unit_that_waits_for_its_restart_counts_as_running(machine: testenv.Node, program: str) -> None:
    unit(machine, "t-waits", "/bin/false", "Restart=always\nRestartSec=3600\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "t-waits")
    machine.run(
        "sh", "-c", "until systemctl show -P SubState t-waits | grep -q auto-restart; do sleep 0.05; done"
    )

    code, (event,) = apply(machine, program, {"name": "t-waits", "ensure": "running"})

    assert (code, event["changed"], event["final_ensure"]) == (0, False, "running")


def test_a_unit_that_does_not_exist_is_named(machine: testenv.Node, program: str) -> None:
    code, (event,) = apply(machine, program, {"name": "t-nowhere", "ensure": "running"})

    assert code == 2
    assert event["error"] == ["service t-nowhere not found: systemd has no unit of that name"]


def test_new_services_need_three_calls_each_and_one_more_for_a_unit_that_stays_loaded(
    machine: testenv.Node, program: str
) -> None:
    names = ["t-new1", "t-held", "t-new2"]
    for name in names:
        unit(machine, name)
    # systemd keeps a unit that a loaded one names, and its boot state as first read
    unit(machine, "t-holder", more="[Unit]\nAfter=t-held.service\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "t-holder")

    with counted(machine) as calls:
        code, events = apply(
            machine, program, *({"name": name, "ensure": "running", "enable": True} for name in names)
        )

    assert (code, [event["changed"] for event in events]) == (0, [True] * 3)
    assert [state(machine, name) for name in names] == [("active", "enabled")] * 3
    each = ["start", "enable", "show"]
    assert calls == ["show", *each, *each, "is-enabled", *each, "daemon-reload"]


def test_changed_unit_files_are_read_by_one_reload_for_all(machine: testenv.Node, program: str) -> None:
    for name in ("t-one", "t-two", "t-three"):
        unit(machine, name)
    machine.run("systemctl", "daemon-reload")
    for name in ("t-one", "t-two", "t-three"):
        machine.run("systemctl", "start", name)
        unit(machine, name, more="Environment=A=B\n")

    with counted(machine) as calls:
        code, events = apply(
            machine, program, *({"name": name, "ensure": "running"} for name in ("t-one", "t-two", "t-three"))
        )

    assert (code, [event["changed"] for event in events]) == (0, [False, False, False])
    assert calls.count("daemon-reload") == 1
    assert machine.run("systemctl", "show", "-P", "NeedDaemonReload", "t-one").stdout.strip() == "no"
