"""`ccmctl completion`: print the completion script for a shell."""

from __future__ import annotations

import click

from ccm_agent.clikit.completion import SHELLS, script
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import PROGRAM, verb


@verb(
    "completion",
    examples=[
        "ccmctl completion bash > ~/.local/share/bash-completion/completions/ccmctl",
        "ccmctl completion zsh > ~/.zfunc/_ccmctl",
        "ccmctl completion fish > ~/.config/fish/completions/ccmctl.fish",
    ],
    options=[click.Argument(["shell"], type=click.Choice(SHELLS))],
)
def completion(application: Application, shell: str) -> Exit:
    """Print the completion script of a shell."""
    root = click.get_current_context().find_root().command
    application.terminal.raw(script(root, PROGRAM, shell))
    return Exit.OK
