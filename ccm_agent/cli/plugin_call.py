"""Call a command of a plugin: show its banner, ask its question, run its program or form."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from getpass import getpass
from pathlib import Path
from typing import Any

import click

from ccm_agent.cli.terminal import PROGRAM
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.clikit.text import safe
from ccm_agent.model.codec import encode_json
from ccm_agent.model.errors import CommandError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.durations import format_duration
from ccm_agent.plugins.definition import PluginCommand
from ccm_agent.plugins.form import FormReader
from ccm_agent.plugins.program import HELPER, PluginProgram, is_dry_run, pauses, prepare
from ccm_agent.plugins.rendering import PluginRenderer


def call_plugin(
    command: PluginCommand, arguments: Mapping[str, Any], flags: Mapping[str, Any], *, is_asked: bool | None
) -> Exit:
    """
    Run a command of the type `exec` or `form`.

    Args:
        command: The plugin's command.
        arguments: The values of the command's arguments.
        flags: The values of the command's flags.
        is_asked: Whether to ask the command's question first; None if the command has no question.

    Raises:
        CommandError: The program cannot be started, or fails.
        InputError: A text of the command cannot be rendered, or the rendered command cannot be run.
    """
    terminal = Terminal(PROGRAM)
    prompt = {} if is_asked is None else {"prompt": is_asked}
    with _helper_file() as helper:
        renderer = PluginRenderer(
            arguments,
            {**flags, **prompt},
            environ=os.environ,
            folder=str(Path(command.file).parent),
            helper=helper,
        )
        if banner := renderer.render(command.spec.banner, "banner"):
            terminal.show(f"{banner}\n")
        if is_asked and not asyncio.run(
            terminal.ask(command.spec.confirm_prompt, otherwise="use --no-prompt")
        ):
            terminal.note("nothing was run")
            return Exit.COULD_NOT_RUN
        if command.spec.type == "form":
            terminal.raw(_form_answers(command, renderer))
            return Exit.OK
        program = prepare(command, renderer, os.environ)
        if is_dry_run():
            terminal.note(f"BUILDER_DRY_RUN is set, so this was not run: {shlex.join(program.argv)}")
            return Exit.COULD_NOT_RUN
        sys.stdout.flush()
        asyncio.run(_run(command, program, terminal))
        return Exit.OK


def _form_answers(command: PluginCommand, renderer: PluginRenderer) -> str:
    """
    Ask the questions of a form, and return the answers as JSON.

    Raises:
        UsageError: Standard input is not a terminal.
    """
    if not sys.stdin.isatty():
        raise UsageError(f"`{command.spec.name}` prompts for input, but standard input is not a terminal")
    user = FormTerminal()
    if command.spec.description:
        user.show(renderer.render(command.spec.description, "description"))
    answers = FormReader(user, renderer).read(command.spec.properties)
    return encode_json(answers, indent=2, sort_keys=True).decode() + "\n"


class FormTerminal:
    """Asks questions on the terminal. Questions go to standard error, so that a file or pipe receives only the answers."""

    def show(self, text: str) -> None:
        """Show a text before a question."""
        sys.stderr.write(f"\n{safe(text.strip())}\n\n")

    def ask(self, question: str, *, otherwise: str = "", about: str = "", is_secret: bool = False) -> str:
        """Return an answer of one line. `?` shows the help."""
        while True:
            hint = f" ({otherwise})" if otherwise else ""
            answer = self._line(f"{safe(question + hint)}: ", is_secret=is_secret)
            if answer != "?" or not about:
                return answer or otherwise
            self.show(about)

    def _line(self, prompt: str, *, is_secret: bool) -> str:
        if is_secret:
            return getpass(prompt)
        sys.stderr.write(prompt)
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise click.Abort
        return line.strip()


async def _run(command: PluginCommand, program: PluginProgram, terminal: Terminal) -> None:
    """
    Run a program. If it fails, repeat it as `backoff` specifies.

    Raises:
        CommandError: The program cannot be started, or the last try failed.
    """
    waits = [*pauses(command), None]
    for number, wait in enumerate(waits, 1):
        code = await _run_once(program, number)
        if code == 0:
            return
        how = f"`{program.argv[0]}` ended with " + (f"exit status {code}" if code > 0 else f"signal {-code}")
        if wait is None:
            raise CommandError(how)
        terminal.note(
            f"{how} in attempt {number} of {len(waits)}; the next attempt starts in {format_duration(wait)}"
        )
        await asyncio.sleep(wait)


async def _run_once(program: PluginProgram, number: int) -> int:
    """Run a program on this terminal, without a shell, and return its exit status; -N if signal N ended it."""
    try:
        process = await asyncio.create_subprocess_exec(
            *program.argv, env={**program.environ, "BUILDER_TRY": str(number)}, cwd=program.directory
        )
    except OSError as err:
        raise CommandError(f"`{program.argv[0]}` cannot be started: {err.filename}: {err.strerror}") from err
    try:
        return await process.wait()
    finally:
        if process.returncode is None:  # interrupted
            process.terminate()
            await process.wait()


@contextlib.contextmanager
def _helper_file() -> Iterator[Callable[[], str]]:
    """Yield a function that writes the file of shell functions on its first call. The file is removed at the end."""
    written: list[str] = []

    def path() -> str:
        if not written:
            with tempfile.NamedTemporaryFile("w", prefix="ccm-plugin-", suffix=".sh", delete=False) as file:
                file.write(HELPER)
            written.append(file.name)
        return written[0]

    try:
        yield path
    finally:
        for one in written:
            Path(one).unlink(missing_ok=True)
