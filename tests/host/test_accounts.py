"""Groups with the shadow tools of a Debian and of a dnf system."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
import testenv

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

KINDS = ["apt", "dnf"]

UNDO = """\
import asyncio, os
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
    source = ManifestSource(text=Path("/root/m.yaml").read_bytes(), name="m")
    for _ in range(2):  # the run and its undo
        run = new_id()
        await engine.apply(source, ApplyOptions(run=run, undo_log=store, on_event=lambda one: print(one.name, one.error)))
        source = ManifestSource(name="undo", undo=await store.find(run))


asyncio.run(main())
"""


def declare(machine: testenv.Node, resources: list[dict[str, Any]]) -> None:
    machine.path("/root/m.yaml").write_text(json.dumps({"ccm": {"resources": resources}}))


def apply(
    machine: testenv.Node, program: str, resources: list[dict[str, Any]], *options: str
) -> dict[str, Any]:
    """Apply resources; returns each one's error, or whether it changed, by `type#name`."""
    declare(machine, resources)
    machine.run(
        program, "apply", "/root/m.yaml", "--events", "/root/events", *options, check=False, timeout=120
    )
    events = [json.loads(line) for line in machine.path("/root/events").read_text().splitlines()]
    machine.path("/root/events").unlink()
    return {
        f"{one['type']}#{one['name']}": (one["error"] or one["changed"])
        for one in events
        if one["protocol"].endswith("transaction.event")
    }


def run_and_undo(machine: testenv.Node, resources: list[dict[str, Any]]) -> str:
    """Apply resources and undo that; returns the errors of both."""
    declare(machine, resources)
    machine.path("/root/undo.py").write_text(UNDO)
    return str(machine.run(sys.executable, "/root/undo.py", timeout=120).stdout)


def group_of(machine: testenv.Node, name: str) -> str:
    """The entry of a group; "" if there is none."""
    return str(machine.run("getent", "group", name, check=False).stdout).strip()


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_made_kept_repaired_and_removed(
    only: Callable[[str], testenv.Node], program: str, kind: str
) -> None:
    machine = only(kind)
    wanted = [{"group": [{"cm-web": {"gid": 4900, "members": ["daemon", "bin"]}}]}]

    planned = apply(machine, program, wanted, "--noop")
    assert (planned, group_of(machine, "cm-web")) == ({"group#cm-web": True}, "")
    assert apply(machine, program, wanted) == {"group#cm-web": True}
    assert group_of(machine, "cm-web") == "cm-web:x:4900:bin,daemon"
    assert apply(machine, program, wanted) == {"group#cm-web": False}

    machine.run("groupmod", "-g", "4901", "cm-web")
    machine.run("gpasswd", "-M", "games,bin", "cm-web")
    assert apply(machine, program, wanted) == {"group#cm-web": True}
    assert group_of(machine, "cm-web") == "cm-web:x:4900:games,bin,daemon"

    exact = [{"group": [{"cm-web": {"members": ["bin"], "members_exclusive": True}}]}]
    assert apply(machine, program, exact) == {"group#cm-web": True}
    assert group_of(machine, "cm-web") == "cm-web:x:4900:bin"

    gone = [{"group": [{"cm-web": {"ensure": "absent"}}]}]
    assert apply(machine, program, gone) == {"group#cm-web": True}
    assert apply(machine, program, gone) == {"group#cm-web": False}
    assert group_of(machine, "cm-web") == ""


@pytest.mark.parametrize("kind", KINDS)
def test_an_undo_restores_groups(only: Callable[[str], testenv.Node], program: str, kind: str) -> None:
    machine = only(kind)
    before = [
        {"group": [{"cm-old": {"gid": 4910, "members": ["bin"]}}, {"cm-kept": {"gid": 4911}}]},
    ]
    apply(machine, program, before)
    changes = [
        {"group": [
            {"cm-old": {"ensure": "absent"}},
            {"cm-kept": {"gid": 4912, "members": ["games"]}},
            {"cm-new": {"gid": 4913}},
        ]},
    ]  # fmt: skip

    told = run_and_undo(machine, changes)

    assert [group_of(machine, name) for name in ("cm-old", "cm-kept", "cm-new")] == [
        "cm-old:x:4910:bin", "cm-kept:x:4911:", "",
    ], told  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_tools_refuse_is_a_clear_error(
    only: Callable[[str], testenv.Node], program: str, kind: str
) -> None:
    machine = only(kind)
    before = machine.path("/etc/group").read_text()

    assert apply(machine, program, [{"group": [
        {"daemon": {"ensure": "absent"}},
        {"root": {"ensure": "absent"}},
        {"cm-taken": {"gid": 1}},
        {"bin": {"members": ["nobody-has-this-name"]}},
    ]}]) == {
        "group#daemon": ["could not remove the group daemon: groupdel: cannot remove the primary group of user 'daemon'"],
        "group#root": ["the group root has gid 0, so it is not removed"],
        "group#cm-taken": ["could not create the group cm-taken: groupadd: GID '1' already exists"],
        "group#bin": [
            "could not add nobody-has-this-name to the group bin: gpasswd: user 'nobody-has-this-name' does not exist"
        ],
    }  # fmt: skip
    assert machine.path("/etc/group").read_text() == before
