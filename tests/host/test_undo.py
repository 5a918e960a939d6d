"""Packages and services come back to what they were before a run, with apt, dnf and systemd."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest
import testenv

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

PROGRAM = """\
import asyncio, json, os, sys
from pathlib import Path

from ccm_agent.app import App
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.engine.run import LocalEngine
from ccm_agent.model.ids import new_id
from ccm_agent.storage.undo_store import UndoStore
from ccm_agent.system.clock import SystemClock


async def main() -> None:
    store = UndoStore(Path("/root/undo"), SystemClock(), keep_s=86400, limit_bytes=1 << 20)
    store.open()
    engine = LocalEngine(App(os.environ, directory="/").deps())
    events = []
    source = ManifestSource(text=Path("/root/m.yaml").read_bytes(), name="m")
    for _ in range(3):  # the run, its undo, and the undo of that
        run = new_id()
        await engine.apply(source, ApplyOptions(run=run, undo_log=store, on_event=events.append))
        print(json.dumps([f"{one.name} {one.outcome.value} {one.error}" for one in events]), flush=True)
        os.system(sys.argv[1])
        events.clear()
        source = ManifestSource(name="undo", undo=await store.find(run))


asyncio.run(main())
"""

IN_ONE_LINE = " | sort | tr '\\n' ' '; echo"
VERSIONS = {
    "apt": "dpkg-query -W -f='${db:Status-Abbrev} ${Package}=${Version}\\n' 'cmtest-*' | sed -n 's/^ii *//p'",
    "dnf": "rpm -qa --qf '%{NAME}=%{VERSION}-%{RELEASE}\\n' 'cmtest-*' | grep -v cmtest-release",
}
BEFORE = {
    "apt": "apt-get install -y -q cmtest-tool=1.0-1 cmtest-tilde=1.0-1 >/dev/null",
    "dnf": "dnf -q -y install cmtest-tool-1.0-1 cmtest-tilde-1.0-1 >/dev/null 2>&1",
}


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_versions_come_back_and_the_undo_can_be_undone(
    only: Callable[[str], testenv.Node], kind: str
) -> None:
    machine = only(kind)
    machine.run("sh", "-c", BEFORE[kind])
    packages = [
        {"cmtest-tool": {"ensure": "2.0-1"}},
        {"cmtest-tilde": {"ensure": "absent"}},
        {"cmtest-epoch": {"ensure": "present"}},
    ]
    machine.path("/root/m.yaml").write_text(json.dumps({"ccm": {"resources": [{"package": packages}]}}))
    machine.path("/root/undo.py").write_text(PROGRAM)

    done = machine.run(sys.executable, "/root/undo.py", VERSIONS[kind] + IN_ONE_LINE, timeout=240)

    told = [line for line in done.stdout.splitlines() if line and not line.startswith("[")]
    first, undone, again = [line.split() for line in told]
    assert [one.partition("=")[0] for one in first] == ["cmtest-epoch", "cmtest-tool"], done.stdout
    assert "cmtest-tool=2.0-1" in first
    assert undone == ["cmtest-tilde=1.0-1", "cmtest-tool=1.0-1"], done.stdout
    assert again == first, done.stdout


@pytest.mark.parametrize(
    ("before", "properties", "states"),
    [
        ("enable --now", {"ensure": "stopped", "enable": False}, ["inactive disabled", "active enabled"]),
        ("disable --now", {"ensure": "running", "enable": True}, ["active enabled", "inactive disabled"]),
        ("disable --now", {"ensure": "running"}, ["active disabled", "inactive disabled"]),
    ],
)
def test_services_come_back_and_the_undo_can_be_undone(
    machine: testenv.Node, before: str, properties: dict[str, object], states: list[str]
) -> None:
    unit = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
    machine.path("/etc/systemd/system/t-undo.service").write_text(unit)
    machine.run("sh", "-c", f"systemctl daemon-reload; systemctl {before} t-undo 2>&1")
    resources = [{"service": [{"t-undo": properties}]}]
    machine.path("/root/m.yaml").write_text(json.dumps({"ccm": {"resources": resources}}))
    machine.path("/root/undo.py").write_text(PROGRAM)

    done = machine.run(
        sys.executable, "/root/undo.py", "echo $(systemctl is-active t-undo; systemctl is-enabled t-undo)"
    )

    told = [line for line in done.stdout.splitlines() if line and not line.startswith("[")]
    assert told == [*states, states[0]], done.stdout
