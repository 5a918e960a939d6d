"""
Write the lists of packages that CI installs: each distribution in one version, with the digests of all its files.

    make lock               after a change of pyproject.toml; keeps the other versions
    make lock UPGRADE=1     uses the newest versions

uv resolves for every platform and every supported Python version together, which pip cannot do.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
LISTS = {".ci/requirements-build.txt": [], ".ci/requirements.txt": ["pyproject.toml", "--all-extras"]}
"""The lists, and the inputs that are resolved for each. An empty input: the packages that build a source distribution."""

UV = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
FORM = ["--generate-hashes", "--no-annotate", "--custom-compile-command", "make lock"]


def main() -> int:
    """Write both lists, and return the exit status."""
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
