"""
Each command starts in a process that has imported nothing of it.

Other tests run the programs as forks of a process that has imported everything (tests/support/processes.py).
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from ccm_agent.cli.program import VERBS as CCM_VERBS
from ccm_ctl.__main__ import VERBS as CCMCTL_VERBS
from tests.support.fleet import TOP

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
