"""Run a command line of `ccmctl`, and turn every error into a one-line message and an exit code."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ccm_agent.clikit.program import run_program
from ccm_agent.clikit.terminal import Terminal
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import PROGRAM, run_command_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from ccm_agent.bus.connection.settings import BusSettings
    from ccm_ctl.app import Broker


def main(
    argv: Sequence[str],
    verbs: Mapping[str, str],
    *,
    terminal: Terminal | None = None,
    environ: Mapping[str, str] | None = None,
    connect: Callable[[BusSettings], AbstractAsyncContextManager[Broker]] | None = None,
) -> int:
    """
    Run a command line of `ccmctl`.

    Args:
        argv: The arguments, without the program's name.
        verbs: The names of commands, each with its one-line description.
        terminal, environ, connect: Replacements for tests.

    Returns:
        The exit code.
    """
    environ = os.environ if environ is None else environ
    application = Application(terminal or Terminal(PROGRAM), environ, connect)
    return run_program(
        application.terminal,
        lambda: run_command_line(argv, verbs, application),
        lambda: application.debug,
    )
