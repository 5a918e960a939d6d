"""Run a command line, and turn errors, interruptions and closed pipes into exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from ccm_agent.clikit.completion import answer, variable
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.errors import CcmError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.patterns import lazy_pattern


def run_program(terminal: Terminal, run: Callable[[], int], is_debug: Callable[[], bool]) -> int:
    """
    Run a command line, and turn every error into one sentence and an exit code.

    Args:
        terminal: The terminal for the sentence.
        run: Runs the command.
        is_debug: Whether to raise errors, so that a traceback is printed.

    Returns:
        The exit code.
    """
    if variable(terminal.program) in os.environ:
        return _answer_silently(run)
    try:
        code = run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        terminal.break_off()
        terminal.fail_with("interrupted")
    except BrokenPipeError:
        # The reader of the output, such as `head`, closed the pipe. The interpreter would fail when it flushes the output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except CcmError as err:
        if is_debug():
            raise
        terminal.fail(err)
    except Exception as err:  # the last handler that can report an error
        if is_debug():
            raise
        terminal.fail(
            CcmError(f"internal error: {type(err).__name__}: {err}; rerun with --debug for a traceback")
        )
    else:
        return code
    return Exit.COULD_NOT_RUN


def _answer_silently(run: Callable[[], int]) -> int:
    """Reply to a shell that completes a word. Errors and interruptions print nothing, because the user is typing a command."""
    try:
        return run()
    except (KeyboardInterrupt, Exception):  # noqa: BLE001 - whatever it is, the shell offers nothing
        return Exit.COULD_NOT_RUN


def invoke(root: click.Command, arguments: Sequence[str], terminal: Terminal, **context: Any) -> int:
    """
    Parse a command line and call its command.

    Args:
        root: The program's root command.
        arguments: The command line, without the program's name.
        terminal: The terminal for the help screen if no command is named.
        context: Arguments of click's outermost context.

    Returns:
        The exit code of the command.

    Raises:
        UsageError: The command line is wrong.
        CcmError: The command failed.
    """
    if instruction := os.environ.get(variable(terminal.program)):
        terminal.raw(answer(root, terminal.program, instruction, context))
        return Exit.OK
    try:
        done = root.main(
            list(arguments),
            prog_name=terminal.program,
            standalone_mode=False,
            windows_expand_args=False,
            **context,
        )
    except click.exceptions.NoArgsIsHelpError as err:
        terminal.note(err.format_message())
        return Exit.COULD_NOT_RUN
    except click.exceptions.Exit as err:
        return err.exit_code
    except click.UsageError as err:
        raise UsageError(usage_sentence(err, terminal.program)) from err
    except click.ClickException as err:
        raise UsageError(err.format_message()) from err
    except click.Abort:
        raise KeyboardInterrupt from None
    return int(done) if isinstance(done, int) else Exit.OK


_NUMBERS = (
    (lazy_pattern(r"'([^']*)' is not a valid (?:integer|int)(?: range)?"), r"`\1` is not a whole number"),
    (lazy_pattern(r"'([^']*)' is not a valid float(?: range)?"), r"`\1` is not a number"),
    (lazy_pattern(r"(?<!\S)(\S++) is not in the range (\d+)<=x<=(\d+)"), r"\1 is not between \2 and \3"),
    (lazy_pattern(r"(?<!\S)(\S++) is not in the range x>=(\d+)"), r"\1 is less than \2"),
)


def usage_sentence(err: click.UsageError, program: str) -> str:
    """Describe the mistake in a command line, in one sentence that ends with a suggestion or a reference to the help."""
    if isinstance(err, click.NoSuchOption):
        from ccm_agent.model.suggestions import nearest

        # options begin with dashes, which would make all of them similar, so they are compared without dashes
        known = {one.removeprefix("--"): one for one in err.possibilities or [] if one.startswith("--")}
        near = nearest(err.option_name.removeprefix("--"), known)
        hint = f", did you mean `{known[near]}`?" if near else ""
        message = f"unknown option `{err.option_name}`{hint}"
    elif isinstance(err, click.BadOptionUsage) and err.message.endswith("requires an argument."):
        message = f"option `{err.option_name}` needs a value"
    else:
        message = _plain(" ".join(err.format_message().split()).rstrip("."))
    where = err.ctx.command_path if err.ctx else program
    told = "" if message.endswith("?") else f"; see `{where} --help`"
    return f"{message[:1].lower()}{message[1:]}{told}"


def _plain(message: str) -> str:
    """Translate click's messages about numbers into plain language."""
    for pattern, words in _NUMBERS:
        message = pattern.sub(words, message)
    return message
