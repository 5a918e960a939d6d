"""Machines of the tests' own making: real systemd, apt and dnf."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import testenv

from tests.support.machine import make_kind

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def base() -> Path:
    """The file system that all machines share."""
    if why := testenv.missing():
        if os.environ.get("CM_TESTENV_REQUIRED"):
            pytest.fail(f"machines cannot run here: {why}")
        pytest.skip(why)
    return testenv.ensure_base()


@pytest.fixture(scope="session")
def lab(base: Path) -> Iterator[testenv.Lab]:
    """A bridge with machines on it."""
    with testenv.Lab(base) as made:
        yield made


@pytest.fixture(scope="session")
def debian_packages(base: Path) -> Path:
    """A repository with some of Debian's own packages."""
    script = Path(testenv.__file__).parent / "packages/fetch-debs.sh"
    done = subprocess.run(["bash", script, base], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="session")
def program_binds() -> dict[str, str]:
    """What a machine needs of this one to run `ccm`: the virtual environment, its Python and the project, at their own places."""
    # machines have Debian's own Python, and programs of their own below /usr
    prefixes = {sys.prefix, sys.base_prefix, str(TOP)} - {"/usr"}
    return {
        path: path for path in sorted(prefixes) if not any(path.startswith(f"{other}/") for other in prefixes)
    }


@pytest.fixture(scope="session")
def program() -> str:
    """Path of `ccm`, the same here and in a machine."""
    return str(Path(sys.executable).parent / "ccm")


@pytest.fixture(scope="module")
def podman_only(
    base: Path, program_binds: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[Callable[[str], testenv.Node]]:
    """Machines with podman and quadlet, by their package manager, each with the image `localhost/box`, which is busybox."""
    binds = dict(program_binds)
    if sys.base_prefix == "/usr":
        # Debian 13 has another Python than this host
        python, library = sysconfig.get_config_var("BINDIR"), sysconfig.get_path("stdlib")
        binds |= {str(Path(sys.executable).resolve()): f"{python}/python3", library: library}
    made: dict[str, testenv.Node] = {}
    module = request.module.__name__.rpartition(".")[2].removeprefix("test_").replace("_", "-")[:15]
    with testenv.Lab(testenv.ensure_base(script="build-podman.sh")) as lab:

        def machine(kind: str) -> testenv.Node:
            if kind not in made:
                made[kind] = lab.create(f"{module}-{kind}", binds).start()
                make_kind(made[kind], kind)
                made[kind].run("sh", "-c", MAKE_BOX)
            return made[kind]

        yield machine


@pytest.fixture(scope="module")
def podman_machine(
    podman_only: Callable[[str], testenv.Node], request: pytest.FixtureRequest
) -> testenv.Node:
    """A machine with podman: of Debian, or of the kind that a test is parametrized with."""
    return podman_only(getattr(request, "param", "apt"))


MAKE_BOX = """\
mkdir -p /root/box/bin /root/box/tmp && cp /usr/bin/busybox /root/box/bin
for name in sh sleep test cat id env httpd; do ln -s busybox /root/box/bin/$name; done
printf '#!/bin/sh\\ntrap "exit 0" TERM\\nsleep infinity & wait\\n' > /root/box/bin/serve
chmod 755 /root/box/bin/serve
tar -C /root/box -c . | podman import - localhost/box:1
"""


@pytest.fixture(scope="module")
def only(
    lab: testenv.Lab, program_binds: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[Callable[[str], testenv.Node]]:
    """Machines with one package manager, by its name: each is booted when it is asked for and serves a whole module."""
    made: dict[str, testenv.Node] = {}
    module = request.module.__name__.rpartition(".")[2].removeprefix("test_").replace("_", "-")[:15]

    def machine(kind: str) -> testenv.Node:
        if kind not in made:
            made[kind] = lab.create(f"{module}-{kind}", program_binds).start()
            make_kind(made[kind], kind)
        return made[kind]

    yield machine
    for node in made.values():
        lab.remove(node)


@pytest.fixture(scope="module")
def machine(
    lab: testenv.Lab, program_binds: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[testenv.Node]:
    """One booted machine for the tests of a module."""
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_").replace("_", "-")[:20]
    node = lab.create(name, program_binds).start()
    yield node
    lab.remove(node)
