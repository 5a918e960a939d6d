"""A copy of the tree whose checks can be taken out one by one, without writing it again for each."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.checks import CALL, Check, iterate_by_module

HERE = Path(__file__).parent
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "site", "dist", "node_modules", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info"
)
PROBE, SESSION = "ccm_check_probe", "ccm_check_session"
"""Modules at the top of the copy."""


def make_copy(top: Path, copy: Path, checks: Sequence[Check]) -> None:
    """Copy a tree, and put a probe around each check."""
    shutil.copytree(top, copy, symlinks=True, ignore=LEFT_OUT)
    (copy / f"{PROBE}.py").write_text((HERE / "probe.py").read_text())
    (copy / f"{SESSION}.py").write_text((HERE / "session.py").read_text())
    for path, found in iterate_by_module(checks):
        module = copy / path
        module.write_bytes(_probed(module.read_bytes(), found))


def _probed(source: bytes, checks: Sequence[Check]) -> bytes:
    """A module with its checks in probes. Lines stay where they are."""
    lines = source.split(b"\n")
    inserts: list[tuple[int, int, int, bytes]] = []
    for one in checks:
        line, column, end_line, end_column = one.span
        size = (end_line - line) * 100_000 + end_column - column
        if one.kind == CALL:
            before, after = f"_ccm_check({one.number}, {one.becomes}, True) and ", ""
        else:
            before, after = f"_ccm_check({one.number}, {one.becomes}, ", ")"
        # of two that begin at the same place the longer one is outside; of two that end there, too
        inserts.append((line, column, -size, before.encode()))
        inserts.append((end_line, end_column, size - 10_000_000, after.encode()))
    for line, column, _, text in sorted(inserts, key=lambda one: one[:3], reverse=True):
        old = lines[line - 1]
        lines[line - 1] = old[:column] + text + old[column:]
    place = _import_line(source)
    imported = f"from {PROBE} import check as _ccm_check".encode()
    lines[place - 1] = lines[place - 1] + b"; " + imported if place else imported + b"; " + lines[0]
    return b"\n".join(lines)


def _import_line(source: bytes) -> int:
    """The last line of the docstring or of the imports from the future; 0: there is none."""
    place = 0
    for number, node in enumerate(ast.parse(source).body):
        is_docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        place = node.end_lineno or 0
    return place
