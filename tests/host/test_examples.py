"""The documentation's examples that install packages and start services, in machines; tests/examples lists them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import testenv

from tests.support.examples import Ground, read_pages

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

EXAMPLES = [
    pytest.param(kind, example, id=f"{kind}-{page}-{'-'.join(map(str, example['blocks']))}")
    for kind in ("apt", "dnf")
    for page, listed in read_pages().items()
    for example in listed["examples"]
    if kind in example.get("machines", [])
]
TOOLS = {
    "apt": {
        "put-package": 'apt-get install -y -q --allow-downgrades "$1=$2" >/dev/null',
        "show-package": """\
            set -- $(dpkg-query -W -f='${Version} ${db:Status-Status}' "$1" 2>/dev/null)
            [ "$2" = installed ] && echo "$1" || echo absent""",
        "reset": """\
            p=$(dpkg-query -W -f='${Package} ' 'cmtest-*' 2>/dev/null)
            [ -z "$p" ] || dpkg --purge --force-all $p >/dev/null""",
    },
    "dnf": {
        "put-package": 'dnf install -y -q "$1-$2" >/dev/null',
        "show-package": """\
            shown=$(rpm -q --qf '%{VERSION}-%{RELEASE}' "$1") && echo "$shown" || echo absent""",
        "reset": """\
            p=$(rpm -qa 'cmtest-*' | grep -v cmtest-release)
            [ -z "$p" ] || rpm -e --noscripts --nodeps $p""",
    },
}
"""What examples may call on a machine besides its own programs; a package that is not installed shows as `absent`."""
NO_UNITS = """\
    systemctl stop 'example-*'
    rm -f /etc/systemd/system/example-* /etc/systemd/system/*/example-*
    systemctl daemon-reload
"""


def lay_tools(machine: testenv.Node, kind: str) -> None:
    for name, script in TOOLS[kind].items():
        path = machine.path(f"/usr/local/bin/{name}")
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


@pytest.mark.parametrize(("kind", "example"), EXAMPLES)
def test_an_example_runs_as_documented(
    only: Callable[[str], testenv.Node], program: str, kind: str, example: dict[str, Any]
) -> None:
    machine = only(kind)
    folder = machine.run("mktemp", "-d").stdout.strip()
    lay_tools(machine, kind)
    machine.run("sh", "-c", f"{NO_UNITS}\nreset")
    path = f"{Path(program).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

    def run(command: Sequence[str], stdin: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        variables = [f"{name}={value}" for name, value in {"PATH": path, **env}.items()]
        done: subprocess.CompletedProcess[str] = machine.run(
            "env", "-C", folder, *variables, *command, check=False, timeout=120, input=stdin
        )
        return done

    ground = Ground(folder, machine.path, run, {"@USER@": "root", "@GROUP@": "root"})

    assert ground.play(example) == []


DOCS = Path(__file__).parents[2] / "docs/resources"
MANIFEST = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_documented_package_example_reports_its_plan(
    only: Callable[[str], testenv.Node], program: str
) -> None:
    machine = only("apt")
    (manifest,) = MANIFEST.findall((DOCS / "package.md").read_text())
    machine.path("/root/m.yaml").write_text(manifest)

    done = machine.run(program, "apply", "--noop", "/root/m.yaml")

    assert re.findall(r"(package#\S+ \w+) .* noop=(.*)", done.stdout) == [
        ("package#zsh changed", '"Would have installed version present"'),
        ("package#nginx changed", '"Would have installed version 1.22.1-9"'),
        ("package#telnet stable", "true"),
        ("package#curl changed", '"Would have installed latest"'),
    ]


def test_the_documented_service_example_restarts_after_a_file_changes(
    only: Callable[[str], testenv.Node], program: str
) -> None:
    machine = only("apt")
    (manifest,) = MANIFEST.findall((DOCS / "service.md").read_text())
    machine.path("/root/m.yaml").write_text(manifest)
    machine.path("/etc/systemd/system/nginx.service").write_text(
        "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
    )
    machine.run("mkdir", "-p", "/etc/nginx")

    summaries = []
    for change in ("true", "true", "echo changed > /etc/nginx/nginx.conf"):
        machine.run("sh", "-c", change)
        done = machine.run(program, "apply", "/root/m.yaml")
        summaries += [
            line.strip()
            for line in done.stdout.splitlines()
            if line.strip().startswith(("Changed", "Refreshed"))
        ]

    assert summaries == [
        "Changed Resources: 2", "Refreshed Resources: 0",
        "Changed Resources: 0", "Refreshed Resources: 0",
        "Changed Resources: 2", "Refreshed Resources: 1",
    ]  # fmt: skip
