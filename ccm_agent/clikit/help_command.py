"""`help [COMMAND]`: show the help screen of a command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ccm_agent.clikit.completion import offer

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


HELP_WORDS = "[COMMAND]..."
"""The metavar of the arguments."""


def show_help(words: Sequence[str]) -> None:
    """
    Print the help screen of the named command, or of the program if there are no words. Does not return.

    Raises:
        UsageError: There is no such command.
    """
    root = click.get_current_context().find_root()
    with root.command.make_context(root.info_name, [*words, "--help"], obj=root.obj) as context:
        root.command.invoke(context)


def offer_commands(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the names of the commands below the command that the previous words select."""
    root = ctx.find_root()
    command: click.Command | None = root.command
    for word in ctx.params.get("words") or ():
        command = command.get_command(root, word) if isinstance(command, click.Group) else None
    return offer(command.list_commands(root) if isinstance(command, click.Group) else (), incomplete)
