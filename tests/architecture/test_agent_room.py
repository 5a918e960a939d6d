"""The agent's room stays small enough to be understood: its modules, and those on the way of one assignment."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ccm_agent.app import App
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.model.outcome import SessionSummary
from tests.architecture.test_layout import import_graph
from tests.support.assignments import World

TOP = Path(__file__).resolve().parents[2]
ROOM = TOP / "ccm_agent/agent"

MODULES_LIMIT = 47
WALK_LIMIT = 20

LAYERS = ("events", "state", "trust", "cache", "runs", "desired", "requests", "node", "process")
"""The folders of the room from the bottom up: each imports itself and those before it, at the top of a module, in a function, or
for the type checker only."""

PARAMETERS_LIMIT = 6
MORE_PARAMETERS = {
    "RunReport": "the report of one run is all of its options",
    "MissedSchedules": "it needs the bus, the clock, the disk, the scopes, the ledger and the queue",
}
"""Classes whose constructors have more, each with the reason."""

BESIDE = {
    "publisher",
    "progress",
    "heartbeat",
    "subscriptions",
    "missed_schedules",
    "requests",
    "maintenance",
}
"""Services that run beside the walk: they publish what it did, and listen for other things. Their tasks are not on it."""


UNDRAWN = {"dashboard", "studio", "top"}
"""Folders of the controller that the page leaves out: they show what `fleet` and `render` make."""


class ModuleTrace:
    """Records which modules of the room are entered, in the tasks of the walk, their callbacks and their threads."""

    def __init__(self) -> None:
        self.entered: set[str] = set()
        self.is_on = False

    def __enter__(self) -> ModuleTrace:
        # threads take it when they start, so it is installed before there are any
        threading.setprofile(self._on_call)
        sys.setprofile(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _on_call(self, frame: FrameType, event: str, _arg: Any) -> None:
        path = frame.f_code.co_filename
        if self.is_on and event == "call" and path.startswith(f"{ROOM}/") and not _is_beside():
            self.entered.add(str(Path(path).relative_to(ROOM)))


def _is_beside() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.get_name().removeprefix("agent:") in BESIDE


class Engine:
    """The engine of this host, which calls a function when a run is over."""

    def __init__(self, folder: Path, on_applied: Callable[[], None]) -> None:
        self._engine = App({**os.environ, "XDG_STATE_HOME": str(folder)}, directory="/").engine()
        self._on_applied = on_applied

    async def apply(self, source: ManifestSource, options: ApplyOptions) -> SessionSummary:
        summary = await self._engine.apply(source, options)
        self._on_applied()
        return summary


def a_manifest(path: Path) -> str:
    """A manifest of one file that this user may write."""
    owner = {"owner": str(os.getuid()), "group": str(os.getgid()), "mode": "0644"}
    resources = [{"file": [{str(path): {"ensure": "present", "content": "converged", **owner}}]}]
    return json.dumps({"ccm": {"resources": resources}})


def layer(name: str) -> int:
    """The place of a module's folder in the order; above all for a module in no folder of it."""
    folder = name.removeprefix("ccm_agent.agent.").split(".")[0]
    return LAYERS.index(folder) if folder in LAYERS else len(LAYERS)


def upward_imports(top: Path) -> list[str]:
    """Imports of a module in a higher layer; modules in no layer are named, too."""
    graph = import_graph([top / "ccm_agent/agent"], top)
    upward = [
        f"{name} -> {other}"
        for name, others in graph.items()
        for other in others
        if layer(other) > layer(name)
    ]
    unplaced = [name for name in graph if layer(name) == len(LAYERS) and name != "ccm_agent.agent"]
    return sorted(upward + unplaced)


def test_no_layer_imports_a_higher_one() -> None:
    assert upward_imports(TOP) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("runs/queue.py", "def f():\n    from ccm_agent.agent.desired import loop\n"),
        ("runs/queue.py", "if TYPE_CHECKING:\n    from ccm_agent.agent.desired.loop import Loop\n"),
        ("queue.py", ""),
    ],
    ids=["in a function", "for the type checker", "in no layer"],
)
def test_a_higher_layer_is_found(module: str, line: str, tmp_path: Path) -> None:
    """The check itself."""
    room = tmp_path / "ccm_agent/agent"
    for path, text in {"desired/loop.py": "class Loop: ...\n", module: line}.items():
        (room / path).parent.mkdir(parents=True, exist_ok=True)
        (room / path).write_text(text)

    assert len(upward_imports(tmp_path)) == 1


def constructor_parameters() -> dict[str, int]:
    """How many parameters the constructor of each class of the room has; those of structs are fields."""
    found = {}
    for path in ROOM.rglob("*.py"):
        for kind in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(kind, ast.ClassDef):
                for one in kind.body:
                    if isinstance(one, ast.FunctionDef) and one.name == "__init__":
                        found[kind.name] = len(one.args.args) - 1 + len(one.args.kwonlyargs)
    return found


def test_a_service_gets_few_parameters() -> None:
    """No service gets all that the agent has: what it needs is named in its constructor."""
    many = {name for name, count in constructor_parameters().items() if count > PARAMETERS_LIMIT}

    assert many == MORE_PARAMETERS.keys()


def test_architecture_page_draws_the_layers_in_order() -> None:
    page = (TOP / "docs/contributing/architecture.md").read_text(encoding="utf-8")

    assert tuple(re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)) == LAYERS


def test_room_has_few_modules() -> None:
    modules = sorted(str(path.relative_to(ROOM)) for path in ROOM.rglob("*.py") if path.name != "__init__.py")

    assert len(modules) <= MODULES_LIMIT, modules


def test_architecture_page_names_every_folder() -> None:
    page = (TOP / "docs/contributing/architecture.md").read_text(encoding="utf-8")
    folders = {f"{path.name}/" for path in ROOM.iterdir() if (path / "__init__.py").exists()}
    modules = {path.name for path in ROOM.glob("*.py")} - {"__init__.py"}
    rooms = {
        path.parent.name
        for path in [*TOP.glob("ccm_agent/*/__init__.py"), *TOP.glob("ccm_ctl/*/__init__.py")]
    }

    named = set(re.findall(r"`(?:ccm_agent/|ccm_ctl/)?([\w./]+)`", page))

    assert (folders | modules | rooms) - named - UNDRAWN == set()


async def test_assignment_reaches_a_converged_file_through_few_modules(tmp_path: Path) -> None:
    trace, wanted = ModuleTrace(), tmp_path / "wanted"

    def on_applied() -> None:
        trace.is_on = False

    with trace:
        world = World(tmp_path / "state")
        world.engine = Engine(tmp_path, on_applied)  # type: ignore[assignment]
        async with world.agent():
            trace.is_on = True
            await world.operator.assign("site", a_manifest(wanted))
            await world.operator.stands("site", "changed")

    assert await asyncio.to_thread(wanted.read_text) == "converged"
    assert {"desired/loop.py", "runs/run_executor.py"} <= trace.entered
    assert len(trace.entered) <= WALK_LIMIT, sorted(trace.entered)
