"""Commands without a shell: a program and its arguments."""

from __future__ import annotations

from ccm_agent.model.errors import CommandError, PropertyError
from ccm_agent.model.formats.shellwords import split_words
from ccm_agent.model.ports import Files, Runner
from ccm_agent.resources.contract import OutputCallback
from ccm_agent.resources.exec.providers.commands import Commands


class PosixExec(Commands):
    """Splits a command line into words. The first word is the program, and the others are its arguments. No word is expanded."""

    def __init__(
        self, runner: Runner, files: Files, say: OutputCallback, *, runs_guards: bool = True
    ) -> None:
        super().__init__(runner, files, say, _argv, runs_guards=runs_guards)


def _argv(line: str) -> tuple[str, ...]:
    try:
        words = split_words(line)
    except PropertyError as err:
        raise CommandError(err.message) from err
    if not words:
        raise CommandError("there is no command: the line is blank")
    return tuple(words)
