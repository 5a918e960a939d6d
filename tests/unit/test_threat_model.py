"""The threat model names tests: each is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PAGE = TOP / "docs/contributing/threat-model.md"


SECTIONS = {
    "What can be done to the audit trail": 4,
    "What a stolen key allows": 10,
    "What diffs and saved plans add": 4,
    "What other attackers can do": 12,
}
"""Sections with a table of keys, and the least number of rows in each."""


@pytest.mark.parametrize("section", SECTIONS)
def test_each_row_of_a_table_names_a_test(section: str) -> None:
    table = PAGE.read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]

    assert [row for row in rows if "::" not in row] == []
    assert len(rows) >= SECTIONS[section]


def test_each_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text()))
    missing = [f"{path}::{name}" for path, name in sorted(named) if name not in functions(TOP / path)]

    assert named
    assert missing == []


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
