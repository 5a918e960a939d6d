"""Our own packages: what installing, upgrading and removing them does, and how a fleet upgrades itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import testenv

from ccm_agent.version import VERSION
from tests.support.own_packages import NEWER, PYTHON, Desk, Host, build, join, make_desk

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

KINDS = pytest.mark.parametrize("kind", ["apt", "dnf"])


@pytest.fixture(scope="module")
def packages(lab: testenv.Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Repositories with our packages."""
    if sys.version_info[:2] != PYTHON:
        pytest.skip(f"the machines have Python {PYTHON}, and packages are for the Python that makes them")
    return build(lab, tmp_path_factory.getbasetemp() / "own-packages")


@pytest.fixture(scope="module")
def desk(lab: testenv.Lab, packages: Path) -> Iterator[Desk]:
    """A broker with credentials and its operator."""
    made = make_desk(lab, packages)
    made.follow()
    yield made
    lab.remove(made.host.node)


@pytest.fixture(scope="module")
def member(lab: testenv.Lab, packages: Path, desk: Desk) -> Callable[[str], Host]:
    """A node of the fleet with a package manager, made by the page when somebody asks for it first."""
    made: dict[str, Host] = {}

    def find(kind: str) -> Host:
        if kind not in made:
            made[kind] = join(lab, packages, desk, kind, f"web-{kind}")
        return made[kind]

    return find


@pytest.fixture
def host(lab: testenv.Lab, packages: Path, kind: str) -> Iterator[Host]:
    """A machine with nothing of ours on it."""
    made = Host(lab, packages, kind, f"fresh-{kind}")
    yield made
    lab.remove(made.node)


def a_file(name: str) -> dict[str, Any]:
    """A file in root's home."""
    body = {"ensure": "present", "content": "x", "owner": "root", "group": "root", "mode": "0644"}
    return {"file": [{f"/root/{name}": body}]}


def manifest(*resources: dict[str, Any]) -> str:
    """A manifest of resources."""
    return json.dumps({"ccm": {"resources": resources}})


CONTENTS = "cd /usr/lib/ccm-agent && find . -type f | sort | sha256sum"


@KINDS
def test_what_is_installed_works_alone_and_starts_nothing(host: Host) -> None:
    host.manage("install")
    contents = host.sh(CONTENTS).stdout
    host.node.path("/root/m.yaml").write_text(manifest(a_file("made")))
    # a module that anybody can put in the way of a program that is not isolated
    host.sh(
        "mkdir evil && for name in json click msgspec; do echo 'raise SystemExit(66)' > evil/$name.py; done"
    )

    done = host.sh(
        "cd evil && export PYTHONPATH=$PWD && ccm apply ../m.yaml && ccm --version && ccmctl --version"
    )

    assert done.stdout.endswith(f"{VERSION}\nccmctl {VERSION}\n")
    assert host.node.path("/root/made").read_text() == "x"
    assert host.service == ("inactive", "disabled")
    assert host.sh(CONTENTS).stdout == contents
    assert (
        "_ccm_completion" in host.sh(". /usr/share/bash-completion/completions/ccm; complete -p ccm").stdout
    )


@KINDS
def test_upgrades_restart_who_runs_and_removal_keeps_what_makes_the_node(host: Host) -> None:
    host.manage("install")
    host.configure(identity="web1", connect_spread="0s", nats={"url": "nats://127.0.0.1:1"})
    host.sh("systemctl enable --now ccm-agent")
    old = host.pid

    host.offer(2)
    host.manage("upgrade")
    host.wait_for(lambda: f"node=web1 version={NEWER}" in host.log, "the new agent to be up")

    assert (host.installed, host.service, host.pid != old) == (NEWER, ("active", "enabled"), True)
    assert host.log.count("the agent is up") == 2

    host.sh("systemctl stop ccm-agent")
    host.manage("reinstall")

    assert (host.installed, host.service) == (NEWER, ("inactive", "enabled"))

    host.sh("systemctl start ccm-agent")
    identity = host.node.path("/var/lib/ccm/identity").read_text()
    host.manage("remove")

    config = {"apt": "config.yaml", "dnf": "config.yaml.rpmsave"}[host.kind]
    assert (host.installed, host.service[0], host.sh("! ls -d /usr/*/ccm* 2>&1").returncode) == (
        "",
        "inactive",
        0,
    )
    assert "web1" in host.node.path(f"/etc/choria/ccm/{config}").read_text()
    assert host.node.path("/var/lib/ccm/identity").read_text() == identity

    if host.kind == "apt":
        host.node.path("/etc/choria/ccm/node.creds").write_text("secret")
        host.manage("purge")

        left = host.sh("find /etc /var/lib /usr -xdev -path '*ccm*'").stdout
        assert left.split() == ["/etc/choria/ccm", "/etc/choria/ccm/node.creds"]


@KINDS
def test_the_fleet_upgrades_its_agents_in_mid_run_and_the_run_comes_to_its_end(
    desk: Desk, member: Callable[[str], Host], kind: str
) -> None:
    node, name = member(kind), f"web-{kind}"
    old = node.pid
    node.offer(2)
    node.node.path("/root/stays").write_text("x")
    count = {"exec": [{"count": {"command": "/bin/sh -c 'echo x >> /root/counted'", "provider": "shell"}}]}
    package = {"package": [{"ccm-agent": {"ensure": "latest"}}]}
    text = manifest(count, a_file("stays"), package, a_file("after"), a_file("last"))
    desk.host.node.path("/root/upgrade.yaml").write_text(text)

    told = desk.ccmctl("apply", "upgrade.yaml", "--targets", f"node={name}", "--yes", check=False)

    (result,) = (one for one in told if one["record"] == "result")
    events = [one["event"] for one in told if one["record"] == "event"]
    resources = [(one["name"], one["changed"], one["error"]) for one in events if "requested_ensure" in one]
    assert (result["node"], result["state"], result.get("reason", "")) == (name, "changed", ""), node.log[
        -3000:
    ]
    assert [name for name, _, _ in resources] == ["count", "ccm-agent", "/root/after", "/root/last"]
    assert all(changed and not error for _, changed, error in resources)
    assert [one["number"] for one in events] == [1, 2, 3, 4, 5, 6]
    summary = events[-1]
    assert (summary["total_resources"], summary["changed_resources"], summary["stable_resources"]) == (
        5,
        4,
        1,
    )
    assert node.node.path("/root/counted").read_text() == "x\n"
    assert node.node.path("/root/last").read_text() == "x"
    assert (node.installed, node.pid != old) == (NEWER, True)
