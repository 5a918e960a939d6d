"""
The distributions that the programs need, out of the environment that the tests run in: what is packaged is what was tested.

No index is asked. What a wheel was built for says which C library it needs at least.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS = ("ccm_agent", "ccm_ctl")
LEFT_OUT = {".pyc", ".pyx", ".pxd", ".c", ".h"}
"""Files that are compiled again, or that only a compiler uses."""

UNUSED = {"pygments", "markdown-it-py", "mdurl"}
"""What rich shows code and Markdown with, of which we show none: a quarter of all files. `check` says when we do."""

OPTIONAL = {"joserfc"}
"""What the extra `oidc` brings. With cryptography it takes 15 MB, and a node serves no dashboard."""

NOTES = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
"""What pip notes about an installation; the package manager has its own."""


def needed(project: Path) -> list[metadata.Distribution]:
    """The distributions behind the dependencies of pyproject.toml, with what those need in turn, by name."""
    todo = list(tomllib.loads((project / "pyproject.toml").read_text())["project"]["dependencies"])
    found: dict[str, metadata.Distribution] = {}
    while todo:
        requirement = Requirement(todo.pop())
        name = canonicalize_name(requirement.name)
        if name in found or name in UNUSED or not _applies(requirement):
            continue
        found[name] = metadata.distribution(name)
        todo += [_with_extras(text, requirement.extras) for text in found[name].requires or []]
    return [found[name] for name in sorted(found)]


def _applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def _with_extras(text: str, extras: set[str]) -> str:
    """A requirement of a distribution of which these extras are wanted: theirs stand without the condition."""
    requirement = Requirement(text)
    if requirement.marker and any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
        requirement.marker = None
    return str(requirement)


def copy_needed(distributions: list[metadata.Distribution], to: Path) -> None:
    """Their modules and licences, without their programs."""
    for distribution in distributions:
        for file in distribution.files or []:
            if ".." in file.parts or file.suffix in LEFT_OUT or _is_note(file):
                continue
            target = to / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target)


def _is_note(file: PurePosixPath) -> bool:
    return file.parts[0].endswith(".dist-info") and file.name in NOTES


def strip(library: Path) -> None:
    """
    Remove the symbols of compiled modules that only a debugger uses: a third of their size.

    Raises:
        SystemExit: There is no program for it, or it failed.
    """
    program = shutil.which("strip")
    if program is None:
        raise SystemExit("there is no strip here; on Debian, apt-get install binutils")
    modules = sorted(str(path) for path in library.rglob("*.so*"))
    done = subprocess.run(
        [program, "--strip-unneeded", *modules], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"strip failed:\n{done.stderr}")


def copy_ours(project: Path, to: Path) -> None:
    """Our own packages, links followed: the schemas are one."""
    for name in OURS:
        shutil.copytree(project / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))


def check(library: Path) -> None:
    """
    Import whatever our modules import, wherever in them they do, with nothing at hand but the package and Python's own library.
    `OPTIONAL` is left out.

    Raises:
        SystemExit: Something is missing.
    """
    paths = [path for name in OURS for path in sorted((library / name).rglob("*.py"))]
    wanted = {name for path in paths if "testing" not in path.parts for name in _imported(path)}
    wanted = {name for name in wanted if name.partition(".")[0] not in OPTIONAL}
    script = "import importlib, sys; sys.path.append(sys.argv[1]); [importlib.import_module(n) for n in sys.argv[2:]]"
    words = [sys.executable, "-ISB", "-c", script, str(library), *sorted(wanted)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the package lacks something that its modules import:\n{done.stderr}")


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def c_library(distributions: list[metadata.Distribution]) -> str:
    """The oldest version of the GNU C library that all of them run with, such as "2.34"; "" when nothing is compiled."""
    versions = [wanted for one in distributions if (wanted := _c_library_of(one))]
    return ".".join(map(str, max(versions))) if versions else ""


def _c_library_of(distribution: metadata.Distribution) -> tuple[int, int] | None:
    tags = [line for line in (distribution.read_text("WHEEL") or "").splitlines() if line.startswith("Tag:")]
    named = re.findall(r"manylinux_(\d+)_(\d+)_", "\n".join(tags))
    if named:
        return min((int(major), int(minor)) for major, minor in named)
    if all(tag.endswith("-any") for tag in tags):
        return None
    # compiled on this machine, so for this machine's library
    major, minor, *_ = os.confstr("CS_GNU_LIBC_VERSION").removeprefix("glibc ").split(".")
    return int(major), int(minor)
