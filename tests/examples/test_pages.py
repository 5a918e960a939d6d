"""
Every example of Choria CCM's public documentation that concerns what is here, and what we run in its place.

`pages/` lists them: a file for each page, the page's fenced blocks counted from 1, and for each what it shows and how ours is
tried. The constructs are the documentation's (keys, functions, flags); words and values are our own.

    run        the steps are run in a folder of their own and end as `wants` says
    load       checked and resolved, for what would change a machine; `also` names the test that does it on one
    elsewhere  `also` names the test
    later      not built yet; the number is that of the issue
    prose      nothing to run: what the reference prints, its source, a drawing, another program's command

`differs` says where the page is not what the reference does, and what we do then.
"""

import getpass
import grp
import json
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

HERE = Path(__file__).parent
TOP = HERE.parents[1]
HOWS = ("run", "load", "elsewhere", "later", "prose")
KEYS = {
    "heading",
    "blocks",
    "shows",
    "how",
    "differs",
    "also",
    "issue",
    "files",
    "pack",
    "steps",
    "after",
    "env",
}


def read() -> dict[str, dict[str, Any]]:
    """Each page by its name."""
    texts = {
        path.stem.replace("+", "/"): path.read_text(encoding="utf-8") for path in HERE.glob("pages/*.yaml")
    }
    return {name: yaml.safe_load(text) for name, text in sorted(texts.items())}


PAGES = read()
EXAMPLES = [
    pytest.param(example, id=f"{page}-{'-'.join(map(str, example['blocks']))}")
    for page, listed in PAGES.items()
    for example in listed["examples"]
    if example["how"] in ("run", "load")
]
LATER = {
    "cli/plugins": [1, 2, 3, 4, 5, 6],
    "registration/_index": list(range(1, 27)),
    "agent/_index": [1, 2],
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
        assert ("steps" in example) == (example["how"] in ("run", "load"))
        assert ("also" in example) or example["how"] != "elsewhere"
        assert ("issue" in example) == (example["how"] == "later")


def test_what_is_not_built_yet_is_known() -> None:
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


class Ground:
    """A folder with the example's files, and what stands for @DIR@, @USER@, @GROUP@, @WEB@ and so on in all its texts."""

    def __init__(self, folder: Path, ccm: Path, web: str) -> None:
        self.folder, self.ccm = folder, ccm
        self.words = {
            "@DIR@": str(folder),
            "@USER@": getpass.getuser(),
            "@GROUP@": grp.getgrgid(os.getgid()).gr_name,
            "@UID@": str(os.getuid()),
            "@GID@": str(os.getgid()),
            "@WEB@": web,
            "@PORT@": web.rpartition(":")[2],
        }

    def text(self, text: str) -> str:
        return re.sub(r"@[A-Z]+@", lambda found: self.words.get(found[0], found[0]), text)

    def lay(self, example: dict[str, Any]) -> None:
        for name, content in example.get("files", {}).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text(content), encoding="utf-8")
        for name, source in example.get("pack", {}).items():
            with tarfile.open(self.folder / name, "w:gz") as tar:
                tar.add(self.folder / source, arcname=".")

    def run(self, step: dict[str, Any], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        path = f"{self.ccm.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        command = (
            ["sh", "-euc", self.text(step["sh"])] if "sh" in step else ["ccm", *map(self.text, step["ccm"])]
        )
        return subprocess.run(
            command if "sh" in step else [self.ccm, *command[1:]],
            cwd=self.folder,
            input=self.text(step.get("stdin", "")),
            env={"PATH": path, "HOME": str(self.folder), "TMPDIR": str(self.folder), **env},
            capture_output=True,
            text=True,
            check=False,
        )

    def problems(self, after: dict[str, Any]) -> list[str]:
        """What is not as `after` says: a text, null for nothing there, or {mode: …}, {link: …}."""
        found = []
        for name, wanted in after.items():
            path = self.folder / name
            if wanted is None:
                wrong = path.exists() or path.is_symlink()
            elif isinstance(wanted, dict):
                wrong = not path.exists() or f"{path.stat().st_mode & 0o7777:04o}" != wanted["mode"]
            else:
                wrong = not path.is_file() or path.read_text(encoding="utf-8") != self.text(wanted)
            if wrong:
                found.append(f"{name}: {path.read_text() if path.is_file() else path.exists()!r}")
        return found


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_goes_as_the_documentation_says(
    example: dict[str, Any], tmp_path: Path, ccm: Path, served: str
) -> None:
    ground = Ground(tmp_path, ccm, served)
    ground.lay(example)

    for step in example["steps"]:
        done = ground.run(step, {name: ground.text(value) for name, value in example.get("env", {}).items()})

        said = f"{step}\n{done.stdout}{done.stderr}"
        assert done.returncode == step.get("exit", 0), said
        for wanted in step.get("says", []):
            assert ground.text(wanted) in done.stdout + done.stderr, said
        if "prints" in step:
            assert done.stdout == ground.text(step["prints"]), said
        if "json" in step:
            assert holds(json.loads(done.stdout), json.loads(ground.text(json.dumps(step["json"])))), said
        assert ground.problems(step.get("after", {})) == [], said
    assert ground.problems(example.get("after", {})) == []


def holds(found: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there; what else a mapping holds is its own affair."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            key in found and holds(found[key], wanted[key]) for key in wanted
        )
    return bool(found == wanted)
