"""The pages' files are complete, come from nowhere else, and are those that are recorded."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from ccm_ctl.dashboard.static_files import read_static

TOP = Path(__file__).resolve().parents[4]
VENDORED = [TOP / "ccm_ctl/dashboard/static/vendor", TOP / "tests/dashboard/vendor"]
IMPORT = re.compile(r"""^(?:import|export)\b[^"']*?from\s*["']([^"']+)["']""", re.MULTILINE)


@pytest.mark.parametrize("folder", VENDORED, ids=lambda folder: folder.parts[-3])
def test_vendored_files_are_those_that_the_script_wrote(folder: Path) -> None:
    recorded = {}
    for package in json.loads((folder / "VERSIONS.json").read_text()):
        recorded |= package["files"]

    there = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "VERSIONS.json"
    }

    assert there == recorded


def test_every_module_that_is_imported_is_served() -> None:
    served = read_static()

    missing = [
        (name, target)
        for name, file in served.items()
        if name.endswith(".js")
        for target in IMPORT.findall(file.content.decode())
        if str(Path(name).parent / target) not in served
    ]

    assert missing == []


def test_no_file_names_another_host_or_makes_markup_of_text() -> None:
    own = {
        name: file.content.decode() for name, file in read_static().items() if not name.startswith("vendor/")
    }
    words = (
        "https://",
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
    )

    found = [(name, word) for name, text in own.items() for word in words if word in text]

    assert found == []
    assert not any("http://" in text.replace("http://www.w3.org/2000/svg", "") for text in own.values())


def test_page_has_no_inline_script_or_style() -> None:
    page = read_static()["index.html"].content.decode()

    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=", page)
