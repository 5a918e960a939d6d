"""Machines of the tests' own making with one package manager; resources on them: applied, undone, drifted and repaired."""

from __future__ import annotations

import json
import sys
from typing import Any

import testenv
from msgspec import Struct

HIDDEN = {"apt": ["dnf", "rpm"], "dnf": ["apt-get", "apt-cache", "apt-mark", "dpkg-query"]}
"""Programs that a machine of a kind does not have; the base holds both package managers."""
MAKE_FEDORA = """\
set -e
rm -rf /var/lib/dpkg /etc/debian_version /etc/os-release
printf 'ID=fedora\\nVERSION_ID=42\\nNAME="Fedora Linux"\\n' >/etc/os-release
echo 'Fedora release 42 (Adams)' | tee /etc/fedora-release >/etc/redhat-release
"""


def make_kind(node: testenv.Node, kind: str) -> None:
    """Leave a machine with one package manager, and with the release files of its distribution."""
    node.run("sh", "-c", 'cd /usr/bin && rm -f "$@"', "-", *HIDDEN[kind])
    if kind == "dnf":
        node.run("sh", "-c", MAKE_FEDORA)


PROGRAM = """\
import asyncio, json, os, subprocess, sys
from pathlib import Path

from ccm_agent.app import App
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.engine.run import LocalEngine
from ccm_agent.model.ids import new_id
from ccm_agent.storage.undo_store import UndoStore
from ccm_agent.system.clock import SystemClock

MANIFEST, OBSERVE, DRIFT = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


def show(events):
    seen = subprocess.run(["sh", "-c", OBSERVE], capture_output=True, text=True).stdout
    shown = [[one.name, one.outcome.value, *one.error] for one in events]
    print(json.dumps({"events": shown, "seen": seen}), flush=True)
    events.clear()


async def main():
    store = UndoStore(Path("/root/undo"), SystemClock(), keep_s=86400, limit_bytes=1 << 20)
    store.open()
    engine = LocalEngine(App(os.environ, directory="/").deps())
    events = []

    async def run(source):
        number = new_id()
        await engine.apply(source, ApplyOptions(run=number, undo_log=store, on_event=events.append))
        show(events)
        return number

    manifest = ManifestSource(text=MANIFEST.read_bytes(), name="m")
    show(events)
    first = await run(manifest)
    await run(ManifestSource(name="undo", undo=await store.find(first)))
    await run(manifest)
    await run(manifest)
    subprocess.run(["sh", "-c", DRIFT], check=True)
    show(events)
    await run(manifest)


asyncio.run(main())
"""


class Phase(Struct):
    """
    One phase.

    Attributes:
        events: Name, outcome and errors of each resource; none if nothing was applied.
        seen: What the observing command printed after it.
    """

    events: list[list[str]]
    seen: str

    @property
    def outcomes(self) -> set[str]:
        """The outcomes of all resources."""
        return {one[1] for one in self.events}


class Phases(Struct):
    """The machine before, after the first apply, its undo, two more applies, a drift, and an apply that repairs it."""

    before: Phase
    applied: Phase
    undone: Phase
    reapplied: Phase
    stable: Phase
    drifted: Phase
    repaired: Phase


def run_phases(machine: testenv.Node, resources: list[dict[str, Any]], *, observe: str, drift: str) -> Phases:
    """
    Go through all phases.

    Args:
        machine: A booted machine with the program.
        resources: The resources of the manifest.
        observe, drift: Shell commands that print the state of the machine, and change it by hand.
    """
    machine.path("/root/m.yaml").write_text(json.dumps({"ccm": {"resources": resources}}))
    machine.path("/root/phases.py").write_text(PROGRAM)
    done = machine.run(sys.executable, "/root/phases.py", "/root/m.yaml", observe, drift, timeout=240)
    shown = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(shown) == 7, done.stdout + done.stderr
    return Phases(*(Phase(**one) for one in shown))


def check_phases(phases: Phases, *, has_undo: bool = True) -> None:
    """Every apply works and the second one changes nothing; the undo restores, if the type has one, and drift is repaired."""
    problems = [one for phase in (phases.applied, phases.repaired) for one in phase.events if one[2:]]
    assert problems == []
    assert phases.applied.outcomes == {"changed"}, phases
    if has_undo:
        assert phases.undone.outcomes == {"changed"}, phases.undone
    else:
        assert ["are not recorded" in " ".join(one) for one in phases.undone.events] == [True], phases.undone
    assert phases.undone.seen == (phases.before if has_undo else phases.applied).seen
    assert phases.reapplied.seen == phases.applied.seen
    assert phases.stable.outcomes == {"stable"}, phases.stable
    assert phases.drifted.seen != phases.stable.seen
    assert phases.repaired.seen == phases.applied.seen
