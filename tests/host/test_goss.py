"""Goss rules about packages and services, asked of dpkg, rpm and systemd themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import testenv

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

OK, CRITICAL = 0, 2
UNIT = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
FAILING = "[Service]\nType=oneshot\nExecStart=/bin/false\n"
INSTALL = {
    "apt": "apt-get install -y -q cmtest-tool=1.1-1 cmtest-epoch=1:1.5-1 cmtest-tilde=1.0~rc1-1",
    "dnf": "dnf install -y -q cmtest-tool-1.1-1 cmtest-epoch-1:1.5-1 cmtest-tilde-1.0~rc1-1",
}
LEAVE_CONFIGURATION = {
    "apt": "apt-get install -y -q cmtest-lib; apt-get remove -y -q cmtest-lib",
    "dnf": "dnf install -y -q cmtest-lib; dnf remove -y -q cmtest-lib",
}
PACKAGES = [
    ("installed", {"cmtest-tool": {"installed": True}}, OK),
    ("wrongly wanted away", {"cmtest-tool": {"installed": False}}, CRITICAL),
    ("removed, configuration left", {"cmtest-lib": {"installed": False}}, OK),
    ("removed, wanted", {"cmtest-lib": {"installed": True}}, CRITICAL),
    ("never heard of", {"cmtest-nowhere": {"installed": False}}, OK),
    ("its version", {"cmtest-tool": {"installed": True, "versions": ["1.1-1"]}}, OK),
    ("another version", {"cmtest-tool": {"installed": True, "versions": ["2.0-1"]}}, CRITICAL),
    ("a version with an epoch", {"cmtest-epoch": {"installed": True, "versions": ["1:1.5-1"]}}, OK),
    ("a version with a tilde", {"cmtest-tilde": {"installed": True, "versions": ["1.0~rc1-1"]}}, OK),
    ("one of several", {"cmtest-tool": {"installed": True, "versions": {"or": [["1.0-1"], ["1.1-1"]]}}}, OK),
    ("the first is right, the second is not", {
        "cmtest-tool": {"installed": True}, "cmtest-nowhere": {"installed": True},
    }, CRITICAL),
]  # fmt: skip
SERVICES = [
    ("runs and starts at boot", {"t-up": {"enabled": True, "running": True}}, OK),
    ("should not run", {"t-up": {"running": False}}, CRITICAL),
    ("neither", {"t-down": {"enabled": False, "running": False}}, OK),
    ("should run", {"t-down": {"running": True}}, CRITICAL),
    ("should start at boot", {"t-down": {"enabled": True}}, CRITICAL),
    ("has failed", {"t-failed": {"running": False}}, OK),
    ("masked", {"t-masked": {"enabled": False, "running": False}}, OK),
    ("static", {"t-static": {"enabled": True}}, OK),
    ("never heard of", {"t-nowhere": {"enabled": False, "running": False}}, OK),
    ("never heard of, wanted", {"t-nowhere": {"running": True}}, CRITICAL),
]


def statuses(machine: testenv.Node, program: str, kind: str, rules: list[Any]) -> dict[str, int]:
    """What checks of nothing but these rules come to, by their names."""
    resources = [
        {
            f"/bin/true {number}": {
                "refreshonly": True,
                "health_checks": [{"name": name, "goss_rules": {kind: rule}}],
            }
        }
        for number, (name, rule, _) in enumerate(rules)
    ]
    machine.path("/root/m.yaml").write_text(json.dumps({"ccm": {"resources": [{"exec": resources}]}}))
    done = machine.run(program, "apply", "/root/m.yaml", "--monitor-only", "--events", "-", check=False)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return {
        check["name"]: check["status"]
        for event in events
        if event["protocol"].endswith("transaction.event")
        for check in event["health_check"]
    }


@pytest.mark.parametrize("manager", ["apt", "dnf"])
def test_rules_about_packages_are_asked_of_the_systems_own_database(
    only: Callable[[str], testenv.Node], program: str, manager: str
) -> None:
    machine = only(manager)
    machine.run("sh", "-c", f"{LEAVE_CONFIGURATION[manager]}; {INSTALL[manager]}")

    found = statuses(machine, program, "package", PACKAGES)

    assert found == {name: wanted for name, _, wanted in PACKAGES}


def test_a_held_package_is_installed(only: Callable[[str], testenv.Node], program: str) -> None:
    machine = only("apt")
    machine.run("sh", "-c", "apt-get install -y -q cmtest-native; apt-mark hold cmtest-native")
    rules = [("held", {"cmtest-native": {"installed": True, "versions": ["1.10"]}}, OK)]

    assert statuses(machine, program, "package", rules) == {"held": OK}


def test_rules_about_services_are_asked_of_systemd(only: Callable[[str], testenv.Node], program: str) -> None:
    machine = only("apt")
    for name in ("t-up", "t-down", "t-masked"):
        machine.path(f"/usr/lib/systemd/system/{name}.service").write_text(UNIT)
    for name in ("t-failed", "t-static"):
        machine.path(f"/usr/lib/systemd/system/{name}.service").write_text(FAILING)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--now", "t-up")
    machine.run("systemctl", "mask", "t-masked")
    machine.run("systemctl", "start", "t-failed", check=False)

    found = statuses(machine, program, "service", SERVICES)

    assert found == {name: wanted for name, _, wanted in SERVICES}
