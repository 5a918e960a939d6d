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


CHANGES = "Ten changes"
FILES_LIMIT = 4
FILE = re.compile(r"`((?:ccm_agent|ccm_ctl|docs)/[^`]+|mkdocs\.yml)`")


def changes() -> dict[str, list[str]]:
    """The files that each change opens, as the page lists them."""
    section = next(text for text in sections() if text.startswith(CHANGES))
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| ")][1:]
    return {name.strip(): FILE.findall(files) for name, files in rows}


def test_a_change_opens_four_files_at_most() -> None:
    listed = changes()

    assert len(listed) == 10
    assert {name: files for name, files in listed.items() if not 1 <= len(files) <= FILES_LIMIT} == {}


def test_files_that_a_change_opens_exist() -> None:
    paths = [path for files in changes().values() for path in files if "<" not in path]

    assert len(paths) > 10
    assert [path for path in paths if not (TOP / path).is_file()] == []
