"""The command line of `ccm`."""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.cli.program import run_command_line
from ccm_agent.cli.terminal import PROGRAM
from ccm_agent.clikit.program import run_program
from ccm_agent.clikit.terminal import Terminal


def run(arguments: Sequence[str]) -> int:
    """
    Run a command line.

    Returns:
        The process's exit status: 0 for success, 1 if the command could not run, 2 if a resource failed.
    """
    terminal = Terminal(PROGRAM, json="--json" in arguments)
    return run_program(
        terminal, lambda: run_command_line(arguments, terminal), lambda: "--debug" in arguments
    )
