"""Texts for people are free of phrases that a reader has to decode: messages, help, `make`, packages, pages and the dashboard."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]

PHRASES = {
    r"shows? which there are": "see `COMMAND`",
    r"what became of it": "result",
    r"bring it back:": "restore:",
    r"who has converged:": "check progress:",
    r"counts on .* then": "is used by",
    r"converges? on it no more": "stop converging on it",
    r"no nodes named": "no nodes selected",
    r"has not taken it yet": "has not started",
    r"no layer that counts": "no matching layer",
    r"A list equals each": "A list matches if any item does",
    r"says what came of it": "reports the result",
    r"applies what .* ask of": "runs requests",
    r"cannot be caged": "is not sandboxed",
    r"which file is right": "checks this file",
    r"in unsigned operation$": "accept unsigned requests",
    r"it repeats no ": "it does not repeat",
    r"what you (wrote|typed)": "your text",
    r"\b(is|are) (kept|in \S+) no longer": "is no longer",
    r"\b(bundles|keys|runs) begin so\b": "start with this",
    r"has (ever )?come to (this broker|its end)": "connected, completed",
    r"last heard of at|heartbeat came": "last heartbeat",
    r"of the time of one\b": "from a version with",
    r"gives? orders? all the time": "keep arriving",
    r"the body calls itself": "the body has the protocol",
    r"\bstands? after the command": "is after the command",
    r"credentials stay good": "remain valid",
    r"gets its turn by itself": "is included",
    r"it did not say why": "no reason was given",
    r"address that opens once": "one-time URL",
    r"no honest writer": "malformed",
    r"layer that counts": "matching layer",
    r"get one back as files": "extract",
    r"nodes from making changes": "pause changes on nodes",
    r"copies slow a busy": "replication slows a busy",
    r"takes? the node for lost": "is reported as lost",
    r"The wish of a": "a registration for",
    r"something stands first": "comes first",
    r"that can have tried": "that are reachable have tried",
}
"""Phrases, with what to write instead."""

FILES = (
    "Makefile",
    "*.md",
    ".ci/*.py",
    "ccm_ctl/dashboard/static/*.js",
    "deploy/**/*",
    "docs/*.md",
    "docs/[!a]*/**/*.md",
    "tests/conformance/DIFFERENCES.md",
)
"""Other files that people read. The changelog's earlier entries stay as they were, and so do the decisions in docs/adr."""

FOUND = re.compile("|".join(f"(?:{phrase})" for phrase in PHRASES), re.IGNORECASE)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The strings of a module, of f-strings the constant parts, without docstrings of anything but commands."""
    tree = ast.parse(source)
    notes = {
        id(node.value)
        for block in ast.walk(tree)
        if isinstance(block, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if not getattr(block, "decorator_list", [])
        for node in block.body
        if isinstance(node, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (str(one.value) if isinstance(one, ast.Constant) else "X" for one in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in notes:
            yield node.lineno, node.value


def test_messages_and_help_can_be_read_at_once() -> None:
    found = [
        f"{path.relative_to(TOP)}:{line}: {text}"
        for package in ("ccm_agent", "ccm_ctl")
        for path in sorted((TOP / package).rglob("*.py"))
        for line, text in texts(path.read_text(encoding="utf-8"))
        if FOUND.search(text)
    ]

    assert found == []


def test_make_packages_pages_and_the_dashboard_can_be_read_at_once() -> None:
    paths = [path for pattern in FILES for path in sorted(TOP.glob(pattern)) if path.is_file()]
    found = [
        f"{path.relative_to(TOP)}:{number}: {line}"
        for path in paths
        if path.suffix not in (".pyc", ".png", ".gz") and path.name != "CHANGELOG.md"
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if FOUND.search(line)
    ]

    assert (len(paths) > 5, found) == (True, [])


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('raise E(f"{name}: there is no such node; `x` shows which there are")', True),
        ('def f():\n    """Say what became of it."""', False),
        ('@verb("x")\ndef f():\n    """Show what became of it."""', True),
        ('raise E(f"{name}: there is no such node; see `x`")', False),
    ],
)
def test_phrase_is_found_in_what_people_read_only(source: str, found: bool) -> None:
    assert any(FOUND.search(text) for _, text in texts(source)) is found
