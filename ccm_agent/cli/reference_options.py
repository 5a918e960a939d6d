"""Options of the original Choria CCM program, for existing scripts. `ccm` has commands for the same purposes."""

from __future__ import annotations

import click

from ccm_agent.cli.terminal import PROGRAM
from ccm_agent.clikit.completion import script


def hidden_options() -> list[click.Option]:
    """Return `--help-long`, `--completion-script-bash` and `--completion-script-zsh`. Each prints its text and exits."""
    names = ["--help-long", "--completion-script-bash", "--completion-script-zsh"]
    return [
        click.Option(
            [name], is_flag=True, is_eager=True, expose_value=False, hidden=True, callback=_print_text
        )
        for name in names
    ]


def _print_text(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if not value:
        return
    name = parameter.opts[0]
    if name == "--help-long":
        _print_help(ctx)
    else:
        click.echo(script(ctx.command, PROGRAM, name.rpartition("-")[2]), nl=False)
    ctx.exit()


def _print_help(ctx: click.Context) -> None:
    """Print the help screens of a command and of all its subcommands."""
    click.echo(ctx.get_help())
    if not isinstance(ctx.command, click.Group):
        return
    for name in ctx.command.list_commands(ctx):
        command = ctx.command.get_command(ctx, name)
        if command is not None and not command.hidden:
            click.echo()
            with click.Context(
                command, info_name=name, parent=ctx, **ctx.command.context_settings
            ) as context:
                _print_help(context)
