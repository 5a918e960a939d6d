"""`make house` counts imports, circles, arrows, protocols and options wherever they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]

MODULES = {
    "ccm_agent/__init__.py": "",
    "ccm_agent/agent/__init__.py": "",
    "ccm_agent/agent/runs/__init__.py": "",
    "ccm_agent/agent/desired/__init__.py": "",
    "ccm_agent/agent/runs/queue.py": """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from ccm_agent.agent.desired.loop import Loop
""",
    "ccm_agent/agent/desired/loop.py": """
def start():
    'A docstring of
    two lines.'
    def later():
        from ccm_agent.agent.runs import queue

    return later  # a comment
""".replace("'", '"' * 3),
    "ccm_agent/clock.py": """
from typing import Protocol


class Clock(Protocol):
    zone: str

    def now(self) -> float: ...


class HostClock:
    def __init__(self) -> None:
        self.zone = "UTC"

    def now(self) -> float:
        return 1.0


class Other:
    def now(self) -> float:
        return 2.0
""",
    "ccm_ctl/__init__.py": "",
    "ccm_ctl/apply.py": """
@verb("apply", options=[])
def apply(path: str, **words: Any) -> None:
    copied = {**words, "path": path}
    send(copied, {"noop": True})


def send(named: Mapping[str, Any], sent: dict[str, Any]) -> None:
    print(named["noop"], named.get("fail_fast"), sent["noop"])
""",
}


def table(top: Path, *options: str) -> dict[str, str]:
    """The rows that the program prints for a tree, by title; places belong to the row above them."""
    done = subprocess.run(
        [sys.executable, str(TOP / ".ci/house.py"), str(top), *options],
        capture_output=True,
        text=True,
        check=True,
    )
    rows: dict[str, str] = {}
    for line in done.stdout.splitlines():
        title, _, value = (
            line.partition("  ") if not line.startswith("  ") else (next(reversed(rows)), "", line)
        )
        rows[title] = f"{rows.get(title, '')}{value.strip()}" if value else ""
    return rows


def test_figures_of_a_small_tree(tmp_path: Path) -> None:
    for name, text in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"))

    assert table(tmp_path) == {
        "lines": "38",
        "lines of code, without imports and docstrings": "21",
        "lines of docstrings": "2",
        "lines of imports": "4",
        "imports in functions": "1",
        "files with TYPE_CHECKING": "1",
        "files in the largest folders": (
            "ccm_agent 2 · ccm_agent/agent/desired 2 · ccm_agent/agent/runs 2 · ccm_ctl 2 · ccm_agent/agent 1"
        ),
        "circles of imports (modules in them)": "1 (2)",
        "upward arrows between the agent's folders": "1 of 2",
        "protocols with one implementation / and without a fake": "1 / 1 of 1",
        "options of commands as dict[str, Any] / reads by text key": "2 / 2",
    }
    fake = tmp_path / "tests/fake_clock.py"
    fake.parent.mkdir()
    fake.write_text("class FakeClock:\n    zone = 'UTC'\n\n    def now(self):\n        return 3.0\n")
    assert table(tmp_path)["protocols with one implementation / and without a fake"] == "1 / 0 of 1"
    listed = table(tmp_path, "--list")
    assert listed["circles of imports (modules in them)"].endswith(
        "ccm_agent.agent.desired.loop ccm_agent.agent.runs.queue"
    )
