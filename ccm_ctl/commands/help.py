"""`ccmctl help`."""

from __future__ import annotations

import click

from ccm_agent.clikit.help_command import HELP_WORDS, show_help
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb


@verb(
    "help",
    examples=["ccmctl help", "ccmctl help apply", "ccmctl help run watch"],
    options=[click.Argument(["words"], nargs=-1, metavar=HELP_WORDS)],
)
def help(_application: Application, words: tuple[str, ...]) -> Exit:
    """Show the help of a command."""
    show_help(words)
    return Exit.OK
