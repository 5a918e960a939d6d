"""The threat model names tests: each is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PAGE = TOP / "docs/concepts/threat-model.md"


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "::" in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_each_row_of_the_table_names_a_test() -> None:
    table = PAGE.read_text().split("## What a stolen key allows")[1].split("##")[0]
    written = [line for line in table.splitlines() if line.startswith("| ")][1:]

    assert len(rows()) == len(written) >= 10


def test_each_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text()))
    missing = [f"{path}::{name}" for path, name in sorted(named) if name not in functions(TOP / path)]

    assert named
    assert missing == []


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
