"""The command tree of `ccm`: a table of commands. The module of a command is imported when the command is used."""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping, Sequence

import click

from ccm_agent.cli.options import CcmGroup
from ccm_agent.cli.reference_options import hidden_options
from ccm_agent.cli.terminal import PROGRAM
from ccm_agent.clikit.commands import HELP_NAMES, LazyGroup, examples, imported, version_option
from ccm_agent.clikit.program import invoke
from ccm_agent.clikit.terminal import Terminal

VERBS = {
    "agent": "Run or control the agent.",
    "apply": "Apply a manifest.",
    "completion": "Print the completion script of a shell.",
    "dev": "Create the source files of a new resource type.",
    "ensure": "Manage a single resource.",
    "eval": "Evaluate an expression.",
    "facts": "Show this host's facts.",
    "fmt": "Format manifests and hiera data.",
    "help": "Show the help of a command.",
    "hiera": "Resolve hierarchical data.",
    "import": "Write a manifest of this host's current state.",
    "init": "Write a first manifest.",
    "join": "Join a fleet with a token.",
    "leave": "Leave the fleet.",
    "lint": "Check manifests without applying them.",
    "registration": "Manage service registrations.",
    "schema": "Print the JSON Schema of manifests or of a type.",
    "session": "Let several `ccm ensure` commands depend on each other.",
    "status": "Show the state of a resource.",
}
"""Commands and their descriptions. Help does not import the commands."""

TASKS = {
    "Most used commands": ("apply", "lint", "ensure", "status", "facts", "agent"),
    "Write manifests": ("init", "import", "fmt", "eval", "hiera", "schema"),
    "Other commands": ("join", "leave", "session", "registration", "dev", "completion", "help"),
}
"""The commands by task, in the order of the help screen."""

ALIASES = {"info": "status", "r": "registration", "reg": "registration"}

FOLDERS = {
    "agent": ("agent",),
    "ensure": ("ensure",),
    "manifests": ("dev", "eval", "fmt", "hiera", "import", "init", "lint", "schema"),
    "services": ("registration",),
}
"""Commands by the folder of their module. All other modules are in the folder of this file."""

MODULES = {"eval": "evaluate", "import": "import_host"}
"""Modules whose names differ from the names of their commands."""


class CcmProgram(CcmGroup, LazyGroup):
    """`ccm` itself."""

    aliases: Mapping[str, str] = ALIASES

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command of `ccm` or of a plugin."""
        if (verb := super().get_command(ctx, cmd_name)) is not None:
            return verb
        from ccm_agent.cli.plugins import plugin_command

        return plugin_command(cmd_name)

    def unknown(self, name: str, known: Sequence[str]) -> str:
        """Return the error for a name that is not a command."""
        from ccm_agent.cli.plugins import warn_of_broken_plugins

        warn_of_broken_plugins()
        return super().unknown(name, known)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by task, then the commands of plugins."""
        from ccm_agent.cli.plugins import plugin_rows

        super().format_commands(ctx, formatter)
        if rows := plugin_rows():
            with formatter.section("Plugins"):
                formatter.write_dl(rows)


def _load(verb: str) -> click.Command:
    if verb != "apply":
        gc.enable()
    folder = next((f".{folder}" for folder, verbs in FOLDERS.items() if verb in verbs), "")
    return imported(f"ccm_agent.cli{folder}.{MODULES.get(verb, verb)}", "command")


def _show_version(_ctx: click.Context) -> None:
    from ccm_agent.version import version_line

    click.echo(version_line(PROGRAM))


program = CcmProgram(
    PROGRAM,
    table=VERBS,
    load=_load,
    tasks=TASKS,
    params=[
        version_option(_show_version),
        *hidden_options(),
    ],
    help="Manage this host with Choria CCM manifests, on its own or as part of a fleet.",
    no_args_is_help=True,
    context_settings=HELP_NAMES,
    epilog=examples(
        "ccm apply site.yaml --noop", "ccm ensure package nginx latest", "ccm status service nginx"
    ),
)


def run_command_line(arguments: Sequence[str], terminal: Terminal) -> int:
    """
    Run a command line.

    Returns:
        The process's exit status.

    Raises:
        CcmError: The command line is wrong, or the command fails.
    """
    # This program prints errors itself. Without a handler, Python would also print warnings to standard error.
    logging.getLogger("ccm_agent").addHandler(logging.NullHandler())
    return invoke(program, arguments, terminal)
