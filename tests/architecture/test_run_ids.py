"""Messages show a run's id in one length: that of `short_id`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
NAMES = frozenset(("run", "last_run", "undone", "_undone"))
WHOLE = {
    "ccm_agent/bus/subjects.py": "a malformed id",
    "ccm_agent/model/ids.py": "a malformed id",
    "ccm_ctl/commands/nodes/diagnosis.py": "a name, or what a text calls the run",
    "ccm_ctl/commands/nodes/node_removal.py": "a text about the last run",
    "ccm_ctl/commands/runs/run_list.py": "already short",
    "ccm_ctl/fleet/runs/history.py": "what the operator typed",
    "ccm_ctl/notify/happenings.py": "a key, not a message",
}
"""Modules with a text that may hold something else under such a name, with the reason."""


def whole_ids(source: str) -> Iterator[int]:
    """The lines of f-strings with words in which a run's id stands in its whole length."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        short = {
            name.id
            for one in ast.walk(function)
            if isinstance(one, ast.Assign) and "short_id" in ast.unparse(one.value)
            for target in one.targets
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
        for text in ast.walk(function):
            if not isinstance(text, ast.JoinedStr):
                continue
            words = "".join(str(part.value) for part in text.values if isinstance(part, ast.Constant))
            values = [part.value for part in text.values if isinstance(part, ast.FormattedValue)]
            if " " in words and any(_is_run(value, short) for value in values):
                yield text.lineno


def _is_run(value: ast.expr, short: set[str]) -> bool:
    if isinstance(value, ast.Attribute):
        return value.attr in NAMES
    return isinstance(value, ast.Name) and value.id in NAMES and value.id not in short


def test_messages_show_the_ids_of_runs_in_one_length() -> None:
    found = [
        f"{path.relative_to(TOP)}:{line}"
        for package in ("ccm_agent", "ccm_ctl")
        for path in sorted((TOP / package).rglob("*.py"))
        if str(path.relative_to(TOP)) not in WHOLE
        for line in whole_ids(path.read_text(encoding="utf-8"))
    ]

    assert found == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('raise RunError(f"{record.run}: has not ended")', [2]),
        ('raise RunError(f"{short_id(record.run)}: has not ended")', []),
        ('return f"{owner}.{run}.state"', []),
        ('run = short_id(record.run); return f"run {run} ended"', []),
    ],
)
def test_an_id_in_its_whole_length_is_found(line: str, found: list[int]) -> None:
    assert list(whole_ids(f"def told():\n    {line}\n")) == found
