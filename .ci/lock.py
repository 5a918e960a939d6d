"""
Write the lists of what CI installs: every distribution at one version, with the digests of all its files.

    make lock               after a change of pyproject.toml; other versions stay
    make lock UPGRADE=1     take the newest versions

uv resolves for every platform and for each supported version of Python at once, which pip does not.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
LISTS = {".ci/requirements-build.txt": [], ".ci/requirements.txt": ["pyproject.toml", "--all-extras"]}
"""The lists, and what is resolved for each; nothing stands for what builds a source distribution."""

UV = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
FORM = ["--generate-hashes", "--no-annotate", "--custom-compile-command", "make lock"]


def main() -> int:
    """Write both lists; the exit status."""
    if not shutil.which("uv"):
        sys.stderr.write("there is no uv here; install it with: pipx install uv\n")
        return 1
    build = tomllib.loads((TOP / "pyproject.toml").read_text())["build-system"]["requires"]
    for name, source in LISTS.items():
        command = [*UV, *FORM, *sys.argv[1:], "--output-file", name, *(source or ["-"])]
        subprocess.run(command, cwd=TOP, input="\n".join(build), text=True, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
