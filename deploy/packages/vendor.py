"""
The distributions that the programs need, out of the environment that the tests run in: what is packaged is what was tested.

An index is asked for another processor's modules alone. What a wheel was built for says which C library it needs at least.
"""

from __future__ import annotations

import ast
import os
import platform
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

OPTIONAL = {"joserfc", "pyrage"}
"""What the extras `oidc` and `age` bring: with cryptography 15 MB, and a node serves no dashboard and reads no file of age."""

PLATFORMS = ("manylinux2014_{}", "manylinux_2_28_{}", "manylinux_2_34_{}")
"""What wheels for another processor may be built for: C libraries up to that of Debian 12 and RHEL 9."""

NOTES = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
"""What pip notes about an installation; the package manager has its own."""


def needed(project: Path) -> list[metadata.Distribution]:
    """
    The distributions behind the dependencies of pyproject.toml, with what those need in turn, by name.

    Those of the extra `config` are among them: without them a node could not manage YAML and TOML files.
    """
    declared = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    todo = [*declared["dependencies"], *declared["optional-dependencies"]["config"]]
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


def for_machine(
    distributions: list[metadata.Distribution], project: Path, machine: str, folder: Path
) -> list[metadata.Distribution]:
    """
    The same distributions for another processor: what is compiled is downloaded into `folder`, at the version that the tests ran
    with and with a digest of `.ci/requirements.txt`.

    Raises:
        SystemExit: The list has another version, or a download failed.
    """
    compiled = {canonicalize_name(one.name): one for one in distributions if _is_compiled(one)}
    text = (project / ".ci/requirements.txt").read_text()
    blocks = re.findall(r"^(\S+)==(\S+)(.*\n(?: .*\n)*)", text, re.MULTILINE)
    listed = {name: (version, f"{name}=={version}{rest}") for name, version, rest in blocks}
    for name, one in compiled.items():
        if name not in listed or listed[name][0] != one.version:
            raise SystemExit(
                f"{name} {one.version} is not in .ci/requirements.txt; install with: make LOCKED=1"
            )
    wanted = folder / "requirements.txt"
    wanted.write_text("".join(listed[name][1] for name in compiled))
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    words += ["--require-hashes", "--only-binary=:all:", "--target", str(folder / "modules")]
    words += [word for tag in PLATFORMS for word in ("--platform", tag.format(machine))]
    done = subprocess.run([*words, "-r", str(wanted)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"no modules for {machine}:\n{done.stderr}")
    fetched = {
        canonicalize_name(one.name): one for one in metadata.distributions(path=[str(folder / "modules")])
    }
    return [fetched.get(canonicalize_name(one.name), one) for one in distributions]


def strip_program(machine: str) -> str:
    """
    The program that removes symbols from modules for this processor.

    Raises:
        SystemExit: It is not installed.
    """
    program, package = "strip", "binutils"
    if machine != platform.machine():
        program, package = f"{machine}-linux-gnu-strip", f"binutils-{machine}-linux-gnu"
    if not shutil.which(program):
        raise SystemExit(f"{program} is not installed; on Debian, apt-get install {package}")
    return program


def strip(library: Path, machine: str) -> None:
    """
    Remove the symbols of compiled modules that only a debugger uses.

    Raises:
        SystemExit: There is no program for it, or it failed.
    """
    program = strip_program(machine)
    modules = sorted(str(path) for path in library.rglob("*.so*"))
    done = subprocess.run(
        [program, "--strip-unneeded", *modules], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{program} failed:\n{done.stderr}")


def copy_ours(project: Path, to: Path) -> None:
    """Our own packages, links followed: the schemas are one."""
    for name in OURS:
        shutil.copytree(project / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))


def check_compiled(native: list[metadata.Distribution], library: Path) -> None:
    """
    Compare the compiled modules of a package for another processor, which cannot be imported here, with those for this one.

    Raises:
        SystemExit: A module is missing.
    """
    for one in native:
        for file in one.files or []:
            if file.suffix == ".so" and not any(
                (library / file.parent).glob(f"{file.name.partition('.')[0]}.*so")
            ):
                raise SystemExit(f"the package lacks {file}, which {one.name} has for this processor")


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
        raise SystemExit(f"the package lacks a module that its modules import:\n{done.stderr}")


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
    named = re.findall(r"manylinux_(\d+)_(\d+)_", "\n".join(_tags(distribution)))
    if named:
        return min((int(major), int(minor)) for major, minor in named)
    if not _is_compiled(distribution):
        return None
    # compiled on this machine, so for this machine's library
    major, minor, *_ = os.confstr("CS_GNU_LIBC_VERSION").removeprefix("glibc ").split(".")
    return int(major), int(minor)


def _tags(distribution: metadata.Distribution) -> list[str]:
    return [line for line in (distribution.read_text("WHEEL") or "").splitlines() if line.startswith("Tag:")]


def _is_compiled(distribution: metadata.Distribution) -> bool:
    return not all(tag.endswith("-any") for tag in _tags(distribution))
