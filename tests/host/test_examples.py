"""The documentation's examples that install packages and start services, in machines; tests/examples lists them."""

from __future__ import annotations

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
def test_an_example_goes_as_the_documentation_says(
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
