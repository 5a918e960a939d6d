"""`ccmctl`: runs a command line and turns every error into one line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ccm_agent.model.errors import CcmError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import run_command_line
from ccm_ctl.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from ccm_agent.bus.settings import BusSettings
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
        verbs: Names of commands, each with its line of help.
        terminal, environ, connect: Replacements for the real ones, for tests.

    Returns:
        The exit code.
    """
    environ = os.environ if environ is None else environ
    application = Application(terminal or Terminal(), environ, connect)
    try:
        return run_command_line(argv, verbs, application)
    except CcmError as err:
        if application.debug:
            raise
        application.terminal.fail(err)
        return Exit.COULD_NOT_RUN
    except BrokenPipeError:
        # The reader of our output (`| head`) closed the pipe; the interpreter would fail when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.COULD_NOT_RUN
    except Exception as err:
        if application.debug:
            raise
        text = f"internal error: {type(err).__name__}: {err}; rerun with --debug for a traceback"
        application.terminal.fail(CcmError(text))
        return Exit.COULD_NOT_RUN
