"""The command tree of `ccm`: a table of verbs, each imported when it is used."""

from __future__ import annotations

import gc
import importlib
import logging
import sys
from collections.abc import Sequence

import click

from ccm_agent.cli.options import examples, log_flags
from ccm_agent.cli.terminal import complain
from ccm_agent.model.exits import Exit
from ccm_agent.version import VERSION

VERBS = {
    "agent": ("agent", "Run the agent, or control the one that is running."),
    "apply": ("apply", "Apply a manifest."),
    "dev": ("dev", "Create the source files of a new resource type."),
    "ensure": ("ensure", "Manage a single resource."),
    "eval": ("evaluate", "Evaluate an expression."),
    "facts": ("facts", "Show this host's facts."),
    "hiera": ("hiera", "Resolve hierarchical data."),
    "lint": ("lint", "Check manifests without applying them."),
    "registration": ("registration", "Manage service registrations."),
    "schema": ("schema", "Print the JSON Schema of manifests or of a type."),
    "session": ("session", "Let several `ccm ensure` commands depend on each other."),
    "status": ("status", "Show the state of a resource."),
}
"""Verb, the module that holds it, and what it is for; help needs no import of any."""

ALIASES = {"info": "status", "r": "registration", "reg": "registration"}


class Verbs(click.Group):
    """Looks a verb up in the table and imports its module then."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in VERBS:
            return None
        if name != "apply":
            gc.enable()
        command: click.Command = importlib.import_module(f"ccm_agent.cli.{VERBS[name][0]}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from ccm_agent.model.suggestions import did_you_mean

        if args and args[0] not in ALIASES and args[0] not in VERBS and not args[0].startswith("-"):
            raise click.UsageError(f"unknown command `{args[0]}`{did_you_mean(args[0], VERBS)}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, about) for name, (_, about) in VERBS.items()])


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "ccm apply site.yaml --noop", "ccm ensure package nginx latest", "ccm status service nginx"
    ),
)
@click.version_option(VERSION, message="%(version)s")
@log_flags
def program() -> None:
    """Manage this host with Choria CCM manifests, on its own or as part of a fleet."""


def invoke(arguments: Sequence[str]) -> int:
    """
    Run a command line.

    Returns:
        The process's exit status; 1 for a command line that is wrong, which has been complained about.
    """
    # what goes wrong is told by this program's own lines; a warning that nobody handles would be printed bare beside them
    logging.getLogger("ccm_agent").addHandler(logging.NullHandler())
    try:
        result = program.main(list(arguments), prog_name="ccm", standalone_mode=False)
    except click.exceptions.Exit as err:
        return err.exit_code
    except click.ClickException as err:
        _show_usage(err)
        return Exit.COULD_NOT_RUN
    except click.Abort:
        complain("interrupted")
        return Exit.COULD_NOT_RUN
    return int(result) if isinstance(result, int) else Exit.OK


def _show_usage(err: click.ClickException) -> None:
    if isinstance(err, click.exceptions.NoArgsIsHelpError):
        sys.stderr.write(f"{err.format_message()}\n")
        return
    if isinstance(err, click.UsageError) and err.ctx is not None:
        sys.stderr.write(f"{err.ctx.get_usage()}\n")
    complain(_sentence(err))


def _sentence(err: click.ClickException) -> str:
    """What is wrong with a command line, in one line of ours."""
    where = err.ctx.command_path if isinstance(err, click.UsageError) and err.ctx else "ccm"
    if isinstance(err, click.NoSuchOption):
        from ccm_agent.model.suggestions import nearest

        # the dashes, which all of them have, make none of them near
        known = {one.removeprefix("--"): one for one in err.possibilities or [] if one.startswith("--")}
        near = nearest(err.option_name.removeprefix("--"), known)
        hint = f", did you mean `{known[near]}`?" if near else f"; `{where} --help` lists them"
        return f"unknown option `{err.option_name}`{hint}"
    if isinstance(err, click.MissingParameter):
        message = " ".join(err.format_message().split()).rstrip(".")
        return f"{message[:1].lower()}{message[1:]}; see `{where} --help`"
    return err.format_message()
