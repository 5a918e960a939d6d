"""
A public class name means one thing in the tree: a reader who finds it in a message, a search or an import needs no context.

The template languages are left out: each has an AST of its own, whose nodes are called what every language calls them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
LANGUAGES = TOP / "ccm_agent/templates"
LANGUAGE_MODULES = ("nodes.py", "lexer.py")


def public_classes(path: Path) -> list[str]:
    body = ast.parse(path.read_text()).body
    return [one.name for one in body if isinstance(one, ast.ClassDef) and not one.name.startswith("_")]


def test_each_public_class_name_is_defined_once() -> None:
    modules = defaultdict(list)
    for package in ("ccm_agent", "ccm_ctl"):
        for path in sorted((TOP / package).rglob("*.py")):
            if path.is_relative_to(LANGUAGES) and path.name in LANGUAGE_MODULES:
                continue
            for name in public_classes(path):
                modules[name].append(str(path.relative_to(TOP)))

    assert {name: found for name, found in modules.items() if len(found) > 1} == {}
