"""The agent's room stays small enough to be understood: its modules, and those on the way of one assignment."""

from __future__ import annotations

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

from ccm_agent.app import App
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.model.outcome import SessionSummary
from tests.support.assignments import World

TOP = Path(__file__).resolve().parents[2]
ROOM = TOP / "ccm_agent/agent"

MODULES_LIMIT = 43
WALK_LIMIT = 19

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
