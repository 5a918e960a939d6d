"""`ccm completion`: print the completion script for a shell."""

from __future__ import annotations

import sys

import click

from ccm_agent.cli import options
from ccm_agent.cli.terminal import PROGRAM
from ccm_agent.clikit.commands import examples
from ccm_agent.clikit.completion import SHELLS, script


@click.command(
    "completion",
    cls=options.CcmCommand,
    epilog=examples(
        "ccm completion bash > ~/.local/share/bash-completion/completions/ccm",
        "ccm completion zsh > ~/.zfunc/_ccm",
        "ccm completion fish > ~/.config/fish/completions/ccm.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion script of a shell."""
    sys.stdout.write(script(click.get_current_context().find_root().command, PROGRAM, shell))
