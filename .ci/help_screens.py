"""The help of every command of `ccm` and `ccmctl`, split into parts. Man pages and reference pages are made from them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import click

EXAMPLES = "Examples:\n"

EXIT_CODES = {
    "ccm": [
        ("0", "Success."),
        ("1", "The command could not run, or not to its end."),
        ("2", "A resource failed, or had an unmet requirement."),
    ],
    "ccmctl": [
        ("0", "Success."),
        ("1", "The command could not run: usage, no broker, no such target."),
        ("2", "A node failed or refused; a check found a problem."),
        ("3", "No node failed, but one was offline, unreachable, lost, expired or superseded."),
    ],
}
"""The exit codes of each program, with their meanings."""


class Screen(click.HelpFormatter):
    """
    A help screen that is split into parts while it is written.

    Attributes:
        path: The command with its program, such as `("ccmctl", "run", "list")`.
        sentence: Its description in the list of commands.
        usage: Its usage line, without the word `Usage`.
        paragraphs: Its paragraphs.
        sections: Arguments, options by group, and commands: names with their descriptions.
        examples: Command lines.
        notes: The text after the examples.
    """

    def __init__(self, path: Sequence[str], sentence: str) -> None:
        super().__init__(width=10_000)
        self.path = tuple(path)
        self.sentence = sentence
        self.usage = ""
        self.paragraphs: list[str] = []
        self.sections: dict[str, list[tuple[str, str]]] = {}
        self.examples: list[str] = []
        self.notes = ""
        self._title = ""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Store the usage."""
        self.usage = f"{prog} {args}".strip()

    def write_text(self, text: str) -> None:
        """Store the paragraphs. A `\\b` keeps the line breaks of a paragraph."""
        for part in text.split("\n\n"):
            lines = part.removeprefix("\b").strip("\n")
            self.paragraphs.append(lines if part.startswith("\b") else " ".join(lines.split()))

    @contextlib.contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Store the title for the rows that follow."""
        self._title = name
        yield

    def write_dl(self, rows: Sequence[tuple[str, str]], *widths: Any, **settings: Any) -> None:
        """Store the rows."""
        self.sections[self._title] = [(name.strip(), " ".join(text.split())) for name, text in rows]

    def write(self, string: str) -> None:
        """Store the examples, unchanged."""
        text = string.strip("\n")
        if text.startswith(EXAMPLES):
            self.examples = [line.strip() for line in text.removeprefix(EXAMPLES).splitlines()]
        elif text:
            self.notes = text

    @property
    def name(self) -> str:
        """The command as it is entered."""
        return " ".join(self.path)


def screens() -> Iterator[Screen]:
    """Return the help of every command of both programs, parents before children."""
    from ccm_agent.cli.program import program
    from ccm_ctl.__main__ import VERBS
    from ccm_ctl.commands.command_tree import CtlProgram

    yield from _below(program, None, ["ccm"], "manage this host with Choria CCM manifests")
    yield from _below(CtlProgram(VERBS), None, ["ccmctl"], "manage a fleet of agents over NATS")


def _below(
    command: click.Command, parent: click.Context | None, path: list[str], sentence: str
) -> Iterator[Screen]:
    settings = {**(parent.command.context_settings if parent else command.context_settings)}
    with click.Context(command, info_name=path[-1], parent=parent, **settings) as context:
        screen = Screen(path, sentence)
        command.format_help(context, screen)
        yield screen
        if not isinstance(command, click.Group):
            return
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                short = re.sub(r"\.$", "", child.get_short_help_str(limit=1_000))
                yield from _below(child, context, [*path, name], short[:1].lower() + short[1:])
