"""Files that are mount points in a directory that is compared and made equal."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[3]
NEW = ["sub", "sub/b"]
"""What the source has."""

SCRIPT = """
import asyncio, subprocess, sys
from ccm_agent.model.ports import TreeSpec
from ccm_agent.system.trees.trees import SystemTrees
target, source, action, precious = sys.argv[1:]
if precious:
    subprocess.run(["mount", "--bind", precious, target + "/a"], check=True)
properties = {
    "write": {"source": source},
    "purge": {"source": source, "purge": True},
    "limit": {"max_age_s": 0.0, "now_s": 9e9},
    "modes": {"recurse": True, "file_mode": 0o600},
    "absent": {"is_absent": True},
}
trees, spec = SystemTrees(), TreeSpec(path=target, **properties[action])
(found,) = asyncio.run(trees.look([spec]))
if not found.error:
    asyncio.run(trees.sync(spec, found))
print([found.error.replace(target, "DIR"), list(found.kept), [one.path for one in found.changes]])
"""


class Tree:
    """A directory with the files `a` and `b`, a source with `sub/b`, and a file that can be mounted on `a`."""

    def __init__(self, folder: Path) -> None:
        # on one file system, so a device number does not show the mount; the name is escaped in the table of mounts
        self.target, self.source, self.precious = folder / "a #\\c", folder / "source", folder / "precious"
        for path in (self.target / "a", self.target / "b", self.source / "sub" / "b", self.precious):
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(path.name)

    def run(self, action: str, *, is_mounted: bool) -> str:
        precious = str(self.precious) if is_mounted else ""
        done = subprocess.run(
            [
                "unshare",
                "-m",
                sys.executable,
                "-c",
                SCRIPT,
                str(self.target),
                str(self.source),
                action,
                precious,
            ],
            env={"PYTHONPATH": str(TOP), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
        )
        if "mount: " in done.stderr or "unshare: " in done.stderr:
            pytest.skip(f"no file can be mounted here: {done.stderr}")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize(
    ("action", "has_a", "report"),
    [
        pytest.param(
            "write",
            True,
            [
                "DIR/a: is a mount point, but the source has an entry there; manage it as its own resource",
                [],
                [],
            ],
            id="a file of the source",
        ),
        pytest.param("purge", False, ["", ["a"], [*NEW, "b"]], id="purge"),
        pytest.param("limit", False, ["", ["a"], ["b"]], id="a limit"),
        pytest.param("modes", False, ["", ["a"], ["b"]], id="modes"),
        pytest.param(
            "absent",
            False,
            ["DIR/a: is a mount point; unmount it first", [], []],
            id="the directory is absent",
        ),
    ],
)
def test_a_file_that_is_a_mount_point_is_not_touched(
    tree: Tree, action: str, has_a: bool, report: list[object]
) -> None:
    if has_a:
        (tree.source / "a").write_text("new")

    assert tree.run(action, is_mounted=True) == str(report)

    assert tree.precious.read_text() == "precious"
    assert stat.S_IMODE(tree.precious.stat().st_mode) == 0o644
    assert (tree.target / "a").read_text() == "a"


def test_without_the_mount_it_is_purged(tree: Tree) -> None:
    assert tree.run("purge", is_mounted=False) == str(["", [], [*NEW, "b", "a"]])

    assert sorted(path.name for path in tree.target.iterdir()) == ["sub"]
