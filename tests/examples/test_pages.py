"""
Every example of Choria CCM's public documentation that concerns what is here, and what we run in its place.

`pages/` lists them: a file for each page, the page's fenced blocks counted from 1, and for each what it shows and how ours is
tried. The constructs are the documentation's (keys, functions, flags); words and values are our own.

    run        the steps are run in a folder of their own and end as they say
    machine    likewise, in each of the machines that `machines` names, with a package manager and systemd of its own:
               tests/host/test_examples.py
    broker     likewise, with a broker that the context CCM leads to: tests/nats/test_examples.py
    elsewhere  `also` names the test
    later      not built yet; the number is that of the issue
    prose      nothing to run: what the reference prints, its source, a drawing, another program's command

`differs` says where the page is not what the reference does, and what we do then.
"""

import getpass
import grp
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.examples import Ground, read_pages

HERE = Path(__file__).parent
TOP = HERE.parents[1]
HOWS = ("run", "machine", "broker", "elsewhere", "later", "prose")
MACHINES = {"apt", "dnf"}
KEYS = {
    "heading",
    "blocks",
    "shows",
    "how",
    "machines",
    "differs",
    "also",
    "issue",
    "files",
    "pack",
    "steps",
    "after",
    "env",
}


PAGES = read_pages()
EXAMPLES = [
    pytest.param(example, id=f"{page}-{'-'.join(map(str, example['blocks']))}")
    for page, listed in PAGES.items()
    for example in listed["examples"]
    if example["how"] == "run"
]
LATER = {
    "cli/plugins": [1, 2, 3, 4, 5, 6],
}


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_is_listed_once(page: str) -> None:
    listed = PAGES[page]

    blocks = [number for example in listed["examples"] for number in example["blocks"]]

    assert sorted(blocks) == list(range(1, listed["blocks"] + 1))
    for example in listed["examples"]:
        assert example["how"] in HOWS
        assert example["shows"]
        assert set(example) <= KEYS
        assert ("steps" in example) == (example["how"] in ("run", "machine", "broker"))
        assert bool(MACHINES & {*example.get("machines", [])}) == (example["how"] == "machine")
        assert {*example.get("machines", [])} <= MACHINES
        assert example["how"] == "machine" or not any(
            name.startswith("/") for name in example.get("files", {})
        )
        assert ("also" in example) or example["how"] != "elsewhere"
        assert ("issue" in example) == (example["how"] == "later")


def test_missing_features_are_listed() -> None:
    later = {
        page: sorted(
            n for example in listed["examples"] if example["how"] == "later" for n in example["blocks"]
        )
        for page, listed in PAGES.items()
    }

    assert {page: numbers for page, numbers in later.items() if numbers} == LATER


def test_every_test_that_is_named_exists() -> None:
    named = {
        also
        for listed in PAGES.values()
        for example in listed["examples"]
        for also in example.get("also", [])
    }

    missing = []
    for also in sorted(named):
        path, _, test = also.partition("::")
        found = (TOP / path).is_file() and f"def {test}(" in (TOP / path).read_text(encoding="utf-8")
        if (test and not found) or not (TOP / path).exists():
            missing.append(also)
    assert missing == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs_as_documented(
    example: dict[str, Any], tmp_path: Path, ccm: Path, served: str
) -> None:
    def run(command: Sequence[str], stdin: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        path = f"{ccm.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return subprocess.run(
            [ccm, *command[1:]] if command[0] == "ccm" else command,
            cwd=tmp_path,
            input=stdin,
            env={
                "PATH": path,
                "HOME": str(tmp_path),
                "TMPDIR": str(tmp_path),
                "XDG_STATE_HOME": str(tmp_path / "state"),
                **env,
            },
            capture_output=True,
            text=True,
            check=False,
        )

    ground = Ground(str(tmp_path), Path, run, {
        "@USER@": getpass.getuser(),
        "@GROUP@": grp.getgrgid(os.getgid()).gr_name,
        "@UID@": str(os.getuid()),
        "@GID@": str(os.getgid()),
        "@WEB@": served,
        "@PORT@": served.rpartition(":")[2],
    })  # fmt: skip

    assert ground.play(example) == []
