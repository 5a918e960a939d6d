"""Edits of real files with real checkers, on an apt and on a dnf system: stable, repaired, undone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest
import testenv

from tests.host.test_undo import IN_ONE_LINE, PROGRAM

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

OF_KIND = {"apt": "/etc/apt/apt.conf.d/90test", "dnf": "/etc/dnf/dnf.conf"}
"""A file that the package manager reads, and that it must still be able to read."""
CHECKS = {
    "apt": "apt-config -c %s dump",
    "dnf": "python3 -c 'import configparser, sys; configparser.ConfigParser().read(sys.argv[1])' %s",
}
LINES = {
    "apt": {"line": 'APT::Install-Recommends "false";', "match": "Install-Recommends"},
    "dnf": {"line": "installonly_limit=5", "match": r"^#?installonly_limit\b", "insert_after": r"^\[main\]"},
}
START = """
printf 'Acquire::Retries "1";\\nAPT::Install-Recommends "true";\\n' > /etc/apt/apt.conf.d/90test
printf '#!/bin/sh\\necho \\351 a\\n' > /root/job.sh
chmod 0750 /root/job.sh; chown daemon:daemon /root/job.sh
grep -q main /etc/dnf/dnf.conf || printf '[main]\\ngpgcheck=1\\n' > /etc/dnf/dnf.conf
"""
SHOW = "sha256sum {} /root/job.sh /root/new | cut -c1-8 | tr '\\n' ' '; stat -c %a:%U /root/job.sh"


def manifest(kind: str, *extra: dict[str, object]) -> str:
    edits = [
        {OF_KIND[kind]: {**LINES[kind], "validate": CHECKS[kind]}},
        {"job": {"path": "/root/job.sh", "block": "echo b\necho c\n", "validate": "/bin/sh -n %s"}},
        {"second": {"path": "/root/job.sh", "line": "echo d", "validate": "/bin/sh -n %s"}},
        {
            "/root/new": {
                "create": True,
                "edits": [{"line": "one"}, {"line": "zero", "insert_before": "^one"}],
            }
        },
        *extra,
    ]
    return json.dumps({"ccm": {"resources": [{"edit": edits}]}})


def apply(machine: testenv.Node, program: str) -> list[str]:
    """Apply the manifest; the names of the resources that changed; none failed."""
    machine.run("rm", "-f", "/root/events")
    machine.run(program, "apply", "/root/m.yaml", "--events", "/root/events", check=False, timeout=120)
    events = [json.loads(line) for line in machine.path("/root/events").read_text().splitlines()]
    resources = [one for one in events if one["protocol"].endswith("transaction.event")]
    assert [one["error"] for one in resources] == [[]] * len(resources)
    return [one["name"] for one in resources if one["changed"]]


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_edits_are_stable_repaired_and_undone(
    only: Callable[[str], testenv.Node], program: str, kind: str
) -> None:
    machine = only(kind)
    machine.run("sh", "-c", START)
    machine.path("/root/m.yaml").write_text(manifest(kind))
    before = machine.path("/root/job.sh").read_bytes()
    names = [OF_KIND[kind], "job", "second", "/root/new"]

    first, second = apply(machine, program), apply(machine, program)
    machine.run("sh", "-c", "sed -i '/echo c/d' /root/job.sh; sed -i /zero/d /root/new")
    third, fourth = apply(machine, program), apply(machine, program)

    assert (first, second, third, fourth) == (names, [], ["job", "/root/new"], [])
    assert machine.path("/root/new").read_bytes() == b"zero\none\n"
    assert machine.path("/root/job.sh").read_bytes() == (
        before + b"# BEGIN ccm: job\necho b\necho c\n# END ccm: job\necho d\n"
    )
    assert machine.run("stat", "-c", "%a:%U", "/root/job.sh").stdout == "750:daemon\n"
    assert LINES[kind]["line"] in machine.path(OF_KIND[kind]).read_text().splitlines()


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_an_undo_restores_all_files(only: Callable[[str], testenv.Node], kind: str) -> None:
    machine = only(kind)
    machine.run("sh", "-c", START + "rm -f /root/new; sed -i '/installonly/d' /etc/dnf/dnf.conf")
    machine.path("/root/m.yaml").write_text(manifest(kind))
    machine.path("/root/undo.py").write_text(PROGRAM)
    show = SHOW.format(OF_KIND[kind]) + " 2>&1"
    before = machine.run("sh", "-c", show + IN_ONE_LINE).stdout.strip()

    done = machine.run(sys.executable, "/root/undo.py", show + IN_ONE_LINE, timeout=240)

    states = [line.strip() for line in done.stdout.splitlines() if line and not line.startswith("[")]
    assert len(states) == 3, done.stdout
    assert states[1] == before, done.stdout
    assert states[0] == states[2] != before, done.stdout


def test_an_invalid_content_is_not_written(only: Callable[[str], testenv.Node], program: str) -> None:
    machine = only("apt")
    machine.run("sh", "-c", START)
    machine.run("rm", "-f", "/root/events")
    before = machine.path("/root/job.sh").read_bytes()
    edit = {"/root/job.sh": {"line": "if true", "validate": "/bin/sh -n %s"}}
    machine.path("/root/m.yaml").write_text(json.dumps({"ccm": {"resources": [{"edit": [edit]}]}}))

    machine.run(program, "apply", "/root/m.yaml", "--events", "/root/events", check=False)

    told = machine.path("/root/events").read_text()
    assert "the new content is not valid, so nothing was written: `/bin/sh` ended with exit code" in told
    assert "Syntax error" in told
    assert machine.path("/root/job.sh").read_bytes() == before
    assert machine.run("sh", "-c", "ls -A /root | grep -c ccm-", check=False).stdout == "0\n"


CONFIG = """
printf '# a\\nserver:\\n    port: 80 # p\\n' > /root/a.yaml
printf '[main]\\ngpgcheck=1\\n' > /root/a.ini
printf '# a\\n[server]\\nport = 80 # p\\n' > /root/a.toml
printf '{"server": {"port": 80}}\\n' > /root/a.json
chmod 0640 /root/a.*
"""
KEYS = {"yaml": "server.port", "toml": "server.port", "json": "server.port", "ini": "main.port"}
ALL = "cat /root/a.yaml /root/a.ini /root/a.toml /root/a.json"


def configs() -> str:
    check = {
        "json": "python3 -m json.tool %s",
        "toml": "python3 -c 'import sys, tomllib; tomllib.load(open(sys.argv[1], \"rb\"))' %s",
    }
    resources = [
        {
            f"/root/a.{name}": {
                "values": {key: 81, f"{key}s": "x"},
                "validate": check.get(name, "grep -q port %s"),
            }
        }
        for name, key in KEYS.items()
    ]
    return json.dumps({"ccm": {"resources": [{"config": resources}]}})


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_keys_are_stable_repaired_and_undone(
    only: Callable[[str], testenv.Node], program: str, kind: str
) -> None:
    machine = only(kind)
    machine.run("sh", "-c", CONFIG)
    machine.path("/root/m.yaml").write_text(configs())
    machine.path("/root/undo.py").write_text(PROGRAM)
    before = machine.run("sh", "-c", ALL + IN_ONE_LINE).stdout.strip()
    names = [f"/root/a.{name}" for name in KEYS]

    first, second = apply(machine, program), apply(machine, program)
    machine.run("sed", "-i", "s/81/90/", "/root/a.yaml", "/root/a.json")
    third, fourth = apply(machine, program), apply(machine, program)
    changed = machine.run("sh", "-c", ALL).stdout
    machine.run("sh", "-c", CONFIG)
    done = machine.run(sys.executable, "/root/undo.py", ALL + IN_ONE_LINE, timeout=240)

    assert (first, second, third, fourth) == (names, [], ["/root/a.yaml", "/root/a.json"], [])
    assert changed == (
        "# a\nserver:\n    port: 81 # p\n    ports: x\n"
        "[main]\ngpgcheck=1\nport=81\nports=x\n"
        '# a\n[server]\nport = 81 # p\nports = "x"\n'
        '{"server": {"port": 81, "ports": "x"}}\n'
    )
    states = [line.strip() for line in done.stdout.splitlines() if line and not line.startswith('["')]
    assert states[1] == before, done.stdout
    assert states[0] == states[2] != before, done.stdout
