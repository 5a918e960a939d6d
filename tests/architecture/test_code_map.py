"""The contributors' code map names modules that exist."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PAGE = TOP / "docs/contributing/code-map.md"
MODULE = re.compile(r"`([\w/]+\.py)`")


def sections() -> list[str]:
    """The page's sections, each beginning with its title."""
    return PAGE.read_text().split("\n## ")[1:]


def candidates(room: str, before: str, name: str) -> list[str]:
    """Where a module may be: from the top, in the section's room, or beside the one named before it."""
    return [name, f"ccm_agent/{name}", f"{room}/{name}", f"{room}/{posixpath.dirname(before)}/{name}"]


def missing(section: str) -> list[str]:
    """The modules that a section names and that do not exist."""
    rooms = re.findall(r"`(ccm_\w+(?:/\w+)*)/`", section)
    found, before = [], ""
    for name in MODULE.findall(section):
        if not any((TOP / path).is_file() for path in candidates(rooms[0] if rooms else "", before, name)):
            found.append(name)
        before = name if "/" in name else before
    return found


def test_every_module_that_the_code_map_names_exists() -> None:
    gone = [name for section in sections() for name in missing(section)]

    assert len(sections()) > 8
    assert gone == []
