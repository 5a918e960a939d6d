"""`ccm import` on machines with apt, with dnf and with systemd: the manifest changes nothing there, and restores what is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import testenv

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

UNIT = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
INSTALL = {
    "apt": "apt-get install -y -q cmtest-tool=1.0-1 >/dev/null",
    "dnf": "dnf -q -y install cmtest-tool-1.0-1 >/dev/null 2>&1",
}
REMOVE = {"apt": "apt-get remove -y -q cmtest-tool >/dev/null", "dnf": "rpm -e cmtest-tool"}


def events_of_plan(machine: testenv.Node, program: str) -> list[dict[str, Any]]:
    """Plan the manifest that was written; the event of each resource."""
    plan = machine.run(program, "apply", "/root/site/manifest.yaml", "--noop", "--json")
    return [line["event"] for line in map(json.loads, plan.stdout.splitlines()) if line["record"] == "event"]


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_an_import_is_stable_and_restores(
    only: Callable[[str], testenv.Node], program: str, kind: str
) -> None:
    machine = only(kind)
    machine.run("sh", "-c", INSTALL[kind])
    machine.run("mkdir", "-p", "/etc/app")
    machine.path("/etc/app/app.conf").write_text("listen 80\n")
    machine.path("/etc/app/key.pem").write_text("-----BEGIN PRIVATE KEY-----\nhidden\n")
    machine.run("ln", "-s", "app.conf", "/etc/app/current")
    machine.run("chmod", "0644", "/etc/app/app.conf", "/etc/app/key.pem")
    machine.path("/etc/systemd/system/t-app.service").write_text(UNIT)
    machine.path("/etc/systemd/system-preset").mkdir(exist_ok=True)
    machine.path("/etc/systemd/system-preset/10-t.preset").write_text("disable t-app.service\n")
    machine.run("sh", "-c", "systemctl daemon-reload; systemctl enable --now t-app 2>&1")

    done = machine.run(
        program,
        "import",
        "package,service,file:/etc/app,file:/etc/debian_version",
        "-o",
        "/root/site",
        "--json",
    )

    told = json.loads(done.stdout)
    found = {(one["type"], one["name"]) for one in told["resources"]}
    assert {
        ("package", "cmtest-tool"),
        ("service", "t-app"),
        ("file", "/etc/app"),
        ("file", "/etc/app/app.conf"),
        ("symlink", "/etc/app/current"),
    } <= found
    assert ("file", "/etc/app/key.pem") not in found
    # it belongs to a package; only dpkg knows it as unchanged
    assert (("file", "/etc/debian_version") in found) is (kind == "dnf")
    assert "/etc/app/key.pem" in {one["name"] for one in told["left_out"]}
    assert machine.run("grep", "-rl", "hidden", "/root/site", check=False).stdout == ""

    events = events_of_plan(machine, program)
    assert len(events) == len(found)
    assert not any(event["changed"] or event["failed"] for event in events)

    machine.run("sh", "-c", REMOVE[kind])
    machine.run("sh", "-c", "systemctl disable --now t-app 2>&1; rm -r /etc/app")
    assert len([event for event in events_of_plan(machine, program) if event["changed"]]) == 5
    machine.run(program, "apply", "/root/site/manifest.yaml", timeout=120)

    assert machine.path("/etc/app/app.conf").read_text() == "listen 80\n"
    assert machine.run("readlink", "/etc/app/current").stdout == "app.conf\n"
    assert machine.run("systemctl", "is-active", "t-app").stdout.strip() == "active"
    assert not any(event["changed"] for event in events_of_plan(machine, program))
