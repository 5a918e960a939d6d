"""The commit in sdists and wheels; everything else is in pyproject.toml."""

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

TOP = Path(__file__).resolve().parent
COMMIT_FILE = "ccm_agent/commit.txt"


def write_commit(folder: str) -> None:
    """Write the commit of the checkout; an unpacked sdist has it already."""
    if (TOP / ".git").exists():
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=TOP, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            path = Path(folder) / COMMIT_FILE
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(done.stdout)


class BuildPy(build_py):
    """Adds the commit to a wheel."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write_commit(self.build_lib)


class Sdist(sdist):
    """Adds the commit to an sdist."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        write_commit(base_dir)


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
