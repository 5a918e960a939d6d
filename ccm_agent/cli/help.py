"""`ccm help`."""

from __future__ import annotations

import click

from ccm_agent.cli import options
from ccm_agent.clikit.commands import examples
from ccm_agent.clikit.help_command import HELP_WORDS, show_help


@click.command(
    "help", cls=options.CcmCommand, epilog=examples("ccm help", "ccm help apply", "ccm help ensure file")
)
@click.argument("words", nargs=-1, metavar=HELP_WORDS)
def command(words: tuple[str, ...]) -> None:
    """Show the help of a command."""
    show_help(words)
