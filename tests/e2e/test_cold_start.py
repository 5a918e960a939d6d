"""
Each command starts in a process that has imported nothing of it.

Other tests run the programs as forks of a process that has imported everything (tests/support/processes.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ccm_agent.cli.program import VERBS as CCM_VERBS
from ccm_ctl.__main__ import VERBS as CCMCTL_VERBS
from tests.support.fleet import FILES, TOP, a_file, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

FORK_EACH = """
import asyncio, importlib, os, ssl, sys, yaml
import click, msgspec
assert not any(name.partition(".")[0] in ("ccm_agent", "ccm_ctl") for name in sys.modules)
module, *verbs = sys.argv[1:]
for verb in verbs:
    pid = os.fork()
    if not pid:
        sys.argv = [module, verb, "--help"]
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            code = importlib.import_module(f"{module}.__main__").main()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        os._exit(code or 0)
    if os.waitpid(pid, 0)[1]:
        print(verb)
"""
"""Prints the commands whose help cannot be shown; packages of others are imported once for all."""


@pytest.mark.parametrize(
    ("module", "verbs"),
    [
        pytest.param("ccm_agent", list(CCM_VERBS), id="ccm"),
        pytest.param("ccm_ctl", list(CCMCTL_VERBS), id="ccmctl"),
    ],
)
def test_each_command_starts_with_nothing_imported(module: str, verbs: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK_EACH, module, *verbs],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


APPLY = """
import os, runpy, sys
found, manifest = sys.argv[1:]
sys.argv = ["ccm", "apply", manifest]
def end(code):
    with open(found, "w") as file:
        file.write("\\n".join(sys.modules))
    leave(code)
leave, os._exit = os._exit, end
try:
    runpy.run_module("ccm_agent", run_name="__main__")
finally:
    end(0)
"""
"""Applies a manifest, and writes the names of the modules that were imported for it."""

OWN_MODULES = {"changed": 120, "stable": 112}
"""The most modules of ours for one file, with the empty ones of packages. The aim is 85: lower it with each cut."""

UNNEEDED = {
    "aiohttp",
    "difflib",
    "email",
    "http",
    "jinja2",
    "nats",
    "random",
    "rich",
    "secrets",
    "tempfile",
    "zoneinfo",
}
"""Libraries that one file does not need."""


def test_one_file_needs_few_modules(tmp_path: Path) -> None:
    path, found = tmp_path / "manifest.json", tmp_path / "modules"
    path.write_text(manifest(a_file("x")).replace(FILES, str(tmp_path)))

    for outcome, most in OWN_MODULES.items():
        done = subprocess.run(
            [sys.executable, "-c", APPLY, str(found), str(path)],
            cwd=TOP,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )

        modules = set(found.read_text().split())
        own = sorted(name for name in modules if name.startswith("ccm_agent"))
        assert f" {outcome} " in done.stdout
        assert "ccm_agent.resources.file.providers.posix" in own
        assert modules & UNNEEDED == set()
        assert len(own) <= most, own
