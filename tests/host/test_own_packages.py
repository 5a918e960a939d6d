"""Our own packages: what installing, upgrading and removing them does, and how a fleet upgrades itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import testenv

from ccm_agent.version import VERSION
from tests.support.own_packages import NEWER, PYTHON, Desk, Host, build, join, make_desk

pytestmark = [pytest.mark.host, pytest.mark.timeout(480)]

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
    """A node of the fleet with a package manager, created at its first use."""
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


CONTROL = "Package: wrong\nVersion: 1-1\nArchitecture: all\nMaintainer: X <x@localhost>\nDescription: wrong\n"


def lintian_errors(package: Path) -> list[str]:
    """What Debian's checker of packages reports as errors."""
    command = ["lintian", "--allow-root", "--no-tag-display-limit", "--fail-on", "none", str(package)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if line.startswith("E: ")]


@pytest.mark.skipif(not shutil.which("lintian"), reason="no lintian; on Debian: apt-get install lintian")
def test_lintian_finds_no_error_in_the_package(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong/DEBIAN").mkdir(parents=True)
    (tmp_path / "wrong/DEBIAN/control").write_text(CONTROL)
    command = ["dpkg-deb", "--root-owner-group", "--build", str(tmp_path / "wrong"), str(tmp_path)]
    subprocess.run(command, capture_output=True, check=True)

    assert "E: wrong: bogus-mail-host Maintainer x@localhost" in lintian_errors(
        tmp_path / "wrong_1-1_all.deb"
    )

    (package,) = (packages / "1").glob("ccm-agent_*.deb")
    assert lintian_errors(package) == []


def a_file(name: str) -> dict[str, Any]:
    """A file in root's home."""
    body = {"ensure": "present", "content": "x", "owner": "root", "group": "root", "mode": "0644"}
    return {"file": [{f"/root/{name}": body}]}


def manifest(*resources: dict[str, Any]) -> str:
    """A manifest of resources."""
    return json.dumps({"ccm": {"resources": resources}})


TYPE_OF_OUR_OWN = """
mkdir -p /usr/local/lib/ccm-agent/own-1.dist-info && cd /usr/local/lib/ccm-agent
printf 'Metadata-Version: 2.1\\nName: own\\nVersion: 1\\n' > own-1.dist-info/METADATA
printf '[ccm.types]\\nown = own_types:TYPE\\n' > own-1.dist-info/entry_points.txt
cat > own_types.py <<X
from msgspec.structs import replace
from ccm_agent.resources.file import TYPE as FILE
TYPE = replace(FILE, name="own")
X
"""

COMPILED = "cd /usr/lib/ccm-agent && diff <(find . -name '*.py' | wc -l) <(find . -name '*.pyc' | wc -l)"
"""Each module has byte code."""

CONTENTS = "cd /usr/lib/ccm-agent && find . -type f | sort | sha256sum"


@KINDS
def test_a_package_brings_all_that_it_needs_and_its_life_is_the_nodes(host: Host) -> None:
    """One machine, for each unpacking of thousands of files costs seconds."""
    host.manage("install")
    works_alone(host)
    assert host.service == ("inactive", "disabled")
    assert host.sh("stat -c '%a %U:%G' /etc/choria/ccm/config.yaml").stdout == "640 root:root\n"

    host.offer(2)
    host.manage("upgrade")
    assert (host.installed, host.service) == (NEWER, ("inactive", "disabled"))

    host.configure(identity="web1", connect_spread="0s", nats={"url": "nats://127.0.0.1:1"})
    host.sh("systemctl enable --now ccm-agent")
    old = host.pid
    host.manage("reinstall")
    host.wait_for(
        lambda: host.log.count(f"the agent has started node=web1 version={NEWER}") == 2, "the next agent"
    )
    assert (host.service, host.pid != old) == (("active", "enabled"), True)

    identity = host.node.path("/var/lib/ccm/identity").read_text()
    host.manage("remove")
    config = {"apt": "config.yaml", "dnf": "config.yaml.rpmsave"}[host.kind]
    assert (host.installed, host.service[0]) == ("", "inactive")
    assert host.sh("! ls -d /usr/*/ccm*").stdout == ""
    assert "web1" in host.node.path(f"/etc/choria/ccm/{config}").read_text()
    assert host.node.path("/var/lib/ccm/identity").read_text() == identity

    if host.kind == "apt":
        host.node.path("/etc/choria/ccm/node.creds").write_text("secret")
        host.manage("purge")
        left = host.sh("find /etc /var/lib /usr -xdev -path '*ccm*'").stdout
        assert left.split() == ["/etc/choria/ccm", "/etc/choria/ccm/node.creds"]


def works_alone(host: Host) -> None:
    """Both programs work, whatever lies about, and leave nothing behind."""
    host.sh(COMPILED)
    contents = host.sh(CONTENTS).stdout
    host.node.path("/root/m.yaml").write_text(manifest(a_file("made")))
    # a module that anybody can put in the way of a program that is not isolated
    host.sh(
        "mkdir evil && for name in json click msgspec; do echo 'raise SystemExit(66)' > evil/$name.py; done"
    )

    done = host.sh(
        "cd evil && export PYTHONPATH=$PWD && ccm apply ../m.yaml && ccm --version && ccmctl --version"
    )

    line = rf"{re.escape(VERSION)} \([0-9a-f]{{8}}\)\n"
    assert re.search(rf"ccm {line}ccmctl {line}\Z", done.stdout)
    assert host.node.path("/root/made").read_text() == "x"
    assert host.sh(CONTENTS).stdout == contents
    host.sh(TYPE_OF_OUR_OWN)
    assert '"own"' in host.sh("ccm schema own && rm -r /usr/local/lib/ccm-agent").stdout
    assert (
        "_ccm_completion" in host.sh(". /usr/share/bash-completion/completions/ccm; complete -p ccm").stdout
    )
    zsh = {"apt": "vendor-completions", "dnf": "site-functions"}[host.kind]
    for program in ("ccm", "ccmctl"):
        host.sh(f"grep -q 'compdef {program}$' /usr/share/zsh/{zsh}/_{program}")
        host.sh(
            f"grep -q 'complete .*--command {program}' /usr/share/fish/vendor_completions.d/{program}.fish"
        )
        # the file system of the machines leaves man pages out when Debian's packages are unpacked
        listed = host.sh({"apt": "dpkg -L ccm-agent", "dnf": "rpm -ql ccm-agent"}[host.kind]).stdout.split()
        assert f"/usr/share/man/man1/{program}.1.gz" in listed


@KINDS
def test_from_nothing_to_a_converged_node_by_the_quickstart(
    desk: Desk, member: Callable[[str], Host], kind: str
) -> None:
    node, motd = member(kind), member(kind).node.path("/etc/motd")

    said = desk.follow_last(f"web-{kind}")

    assert re.search(rf"^web-{kind} +[a-z]+ +present ", said, re.MULTILINE), said
    assert re.search(rf"^web-{kind} +converged ", said, re.MULTILINE), said
    assert motd.read_text() == "A web server, by its role\n"
    assert node.node.path("/etc/choria/ccm/node.creds").stat().st_mode & 0o777 == 0o600


@KINDS
def test_the_fleet_upgrades_its_agents_in_mid_run_and_the_run_comes_to_its_end(
    desk: Desk, member: Callable[[str], Host], kind: str
) -> None:
    node, name = member(kind), f"web-{kind}"
    node.offer(2)
    node.have(VERSION)
    old = node.pid
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
    assert summary["start_time"] == events[0]["timestamp"]
    assert (summary["total_resources"], summary["changed_resources"], summary["stable_resources"]) == (
        5,
        4,
        1,
    )
    assert node.node.path("/root/counted").read_text() == "x\n"
    assert node.node.path("/root/last").read_text() == "x"
    assert (node.installed, node.pid != old) == (NEWER, True)


def test_an_assignment_that_upgrades_the_agent_has_the_next_one_do_the_rest(
    desk: Desk, member: Callable[[str], Host]
) -> None:
    node = member("apt")
    node.offer(2)
    node.have(VERSION)
    text = manifest({"package": [{"ccm-agent": {"ensure": "latest"}}]}, a_file("assigned"))
    desk.host.node.path("/root/assigned.yaml").write_text(text)
    seen: set[str] = set()

    def converged() -> bool:
        records = desk.ccmctl("assignment", "status", "upgrade", check=False)
        seen.update(one["state"] for one in records if one["record"] == "standing")
        return "converged" in seen

    desk.ccmctl("assign", "upgrade", "assigned.yaml", "--targets", "node=web-apt", "--yes")
    node.wait_for(converged, "the node to be as assigned")
    desk.ccmctl("unassign", "upgrade", "--yes")

    assert seen <= {"waiting", "offline", "converged"}
    assert (node.installed, node.node.path("/root/assigned").read_text()) == (NEWER, "x")
