"""dnf and rpm themselves: versions, releases and epochs up and down, and a lock that another process holds."""

from __future__ import annotations

import json
from typing import Any

import pytest
import testenv

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

RESET = "p=$(rpm -qa 'cmtest-*' | grep -v cmtest-release); [ -z \"$p\" ] || rpm -e --noscripts --nodeps $p 2>/dev/null; true"


@pytest.fixture(autouse=True)
def clean(machine: testenv.Node) -> None:
    machine.run("sh", "-c", RESET)


def apply(
    machine: testenv.Node, program: str, name: str, ensure: str, *options: str
) -> tuple[int, dict[str, Any]]:
    """Apply one package; the exit status and its event."""
    resources = [{"package": [{name: {"ensure": ensure, "provider": "dnf"}}]}]
    machine.path("/root/m.yaml").write_text(json.dumps({"ccm": {"resources": resources}}))
    done = machine.run(
        program, "apply", "/root/m.yaml", "--events", "/root/events", *options, check=False, timeout=120
    )
    lines = machine.path("/root/events").read_text().splitlines()
    machine.path("/root/events").unlink()
    (event,) = (
        event for line in lines if (event := json.loads(line))["protocol"].endswith("transaction.event")
    )
    return done.returncode, event


def installed(machine: testenv.Node, name: str) -> str:
    """Epoch, version and release as rpm has them."""
    form = "%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}"
    done = machine.run("rpm", "-q", "--qf", form, name, check=False)
    return str(done.stdout.strip()) if done.returncode == 0 else ""


@pytest.mark.parametrize(
    ("name", "before", "ensure", "after"),
    [
        pytest.param("cmtest-tool", "", "1.0", "1.0-1", id="a version"),
        pytest.param("cmtest-tool", "", "1.0-1", "1.0-1", id="a version with its release"),
        pytest.param("cmtest-tool", "1.0-1", "2.0-1", "2.0-1", id="up, with the release"),
        pytest.param("cmtest-tool", "2.0-1", "1.1", "1.1-1", id="down"),
        pytest.param("cmtest-tool", "1.0-1", "latest", "2.0-1", id="latest upgrades"),
        pytest.param("cmtest-epoch", "0:3.0-1", "1.5", "1:1.5-1", id="up by an epoch that is not named"),
        pytest.param("cmtest-epoch", "1:1.5-1", "3.0", "3.0-1", id="down by an epoch that is not named"),
        pytest.param("cmtest-tilde", "1.0~rc1-1", "1.0", "1.0-1", id="up from a release candidate"),
        pytest.param("cmtest-tilde", "1.0-1", "1.0~rc1", "1.0~rc1-1", id="down to a release candidate"),
    ],
)
def test_versions_go_up_and_down(
    machine: testenv.Node, program: str, name: str, before: str, ensure: str, after: str
) -> None:
    if before:
        machine.run("dnf", "install", "-y", "-q", f"{name}-{before}")

    first, event = apply(machine, program, name, ensure)
    second, again = apply(machine, program, name, ensure)

    assert (first, event["changed"], event["error"]) == (0, True, [])
    assert (second, again["changed"], again["error"]) == (0, False, [])
    assert installed(machine, name).removeprefix("0:") == after


def test_a_removed_package_is_gone_and_stays_so(machine: testenv.Node, program: str) -> None:
    machine.run("dnf", "install", "-y", "-q", "cmtest-tool")

    first, event = apply(machine, program, "cmtest-tool", "absent")
    second, again = apply(machine, program, "cmtest-tool", "absent")

    assert (first, event["changed"], second, again["changed"]) == (0, True, 0, False)
    assert installed(machine, "cmtest-tool") == ""


def test_noop_reports_the_changes_and_makes_none(machine: testenv.Node, program: str) -> None:
    code, event = apply(machine, program, "cmtest-tool", "2.0", "--noop")

    assert (code, event["noop_message"]) == (0, "Would have installed version 2.0")
    assert installed(machine, "cmtest-tool") == ""


def test_a_lock_that_is_held_is_waited_for(machine: testenv.Node, program: str) -> None:
    """dnf gets no lock the first time; it is let go then."""
    lets_go = (
        '#!/bin/sh\necho "$1" >> /run/dnf-asked\n/usr/bin/dnf "$@"\ncode=$?\n'
        "rm -f /var/lib/dnf/rpmdb_lock.pid\nexit $code\n"
    )
    machine.path("/usr/local/bin/dnf").write_text(lets_go)
    machine.run("sh", "-c", "chmod 755 /usr/local/bin/dnf; mkdir -p /var/lib/dnf; rm -f /run/dnf-asked")
    holder = machine.popen("sh", "-c", "echo $$; exec sleep 120", stdout=testenv.subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        machine.path("/var/lib/dnf/rpmdb_lock.pid").write_text(holder.stdout.readline().strip())

        code, event = apply(machine, program, "cmtest-tool", "1.1")
    finally:
        holder.kill()
        holder.communicate()
        machine.run("rm", "-f", "/usr/local/bin/dnf")

    assert (code, event["changed"], event["error"]) == (0, True, [])
    assert machine.path("/run/dnf-asked").read_text() == "install\ninstall\n"
    assert installed(machine, "cmtest-tool") == "1.1-1"
