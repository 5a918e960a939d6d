"""Flags that several commands share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ccm_agent.clikit.commands import BaseCommand, Group, Option
from ccm_agent.model.errors import DocumentError, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

READ_ENV = (
    "Read environment variables from .env in the working directory. "
    "[yes, unless root runs this and another user could have written the file]"
)


FORMER_DATA = ("--hiera", "--hiera-data")
"""Other spellings of `--data`: Choria CCM's, and the name of its environment variable."""

CONTEXT_HELP = "NATS context. [NATS_CONTEXT, CCM, or the selected context; NATS_URL sets a server instead]"


class CcmCommand(BaseCommand):
    """A command of `ccm`. It accepts `--debug` and `--info`."""

    def shared_params(self, ctx: click.Context) -> Sequence[click.Parameter]:
        """Return the logging options. They are hidden to keep help screens short."""
        return [_log_option(name, about) for name, about in LOG_OPTIONS.items()]

    def offer(self, ctx: click.Context, metavar: str, incomplete: str) -> list[CompletionItem]:
        """
        Return files, types, states and names on this host as completions. They are loaded only when an operator presses Tab.
        """
        from ccm_agent.cli.completion_values import complete

        return complete(ctx, metavar, incomplete)


class CcmGroup(CcmCommand, Group):
    """A command of `ccm` with subcommands."""

    command_class = CcmCommand


def add_options(made: Any, decorators: tuple[Callable[[Any], Any], ...]) -> Any:
    """Add options to a function or command so that help shows them in the order of `decorators`."""
    for decorate in decorators if isinstance(made, click.Command) else reversed(decorators):
        made = decorate(made)
    return made


def context_flag(function: F) -> F:
    """Add `--context`: the context of the `nats` program for the connection."""
    return click.option(
        "--context",
        "nats_context",
        default="",
        metavar="NAME",
        help=CONTEXT_HELP,
    )(function)


def env_flag(function: F) -> F:
    """Add `--read-env`."""
    return click.option(
        "--read-env/--no-read-env",
        default=None,
        help=READ_ENV,
    )(function)


def registration_flag(function: F) -> F:
    """Add `--registration`, which all commands of Choria CCM accept."""
    return click.option(
        "--registration",
        "-R",
        default="REGISTRATION",
        metavar="NAME",
        help="Registration stream.",
    )(function)


def settle_flag(function: F) -> F:
    """Add `--registration-settle`: how long to wait for missing nodes to register again."""
    return click.option(
        "--registration-settle",
        metavar="DURATION",
        help="How long missing services are treated as registered after a broker outage; 0s disables this. [10m]",
    )(function)


def settle_s(written: str | None) -> float | None:
    """
    Return the value of `--registration-settle` in seconds; None if it is not given.

    Raises:
        UsageError: The value is not a duration.
    """
    from ccm_agent.model.formats.durations import parse_duration

    if not written:
        return None
    try:
        seconds = parse_duration(written)
    except DocumentError as err:
        raise UsageError(f"--registration-settle: {err.message}") from err
    if seconds < 0:
        raise UsageError(f"--registration-settle {written}: must be 0s or more")
    return seconds


def _set_level(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def set_level(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if not value:
            return

        level = logging.DEBUG if name == "debug" else logging.INFO
        logging.basicConfig(level=level, format="%(levelname)-5s %(name)s: %(message)s")
        context.find_root().meta[f"ccm.{name}"] = True

    return set_level


LOG_OPTIONS = {
    "info": "Write informational log messages.",
    "debug": "Write debug log messages and show tracebacks.",
}


def _log_option(name: str, about: str) -> click.Option:
    return click.Option(
        [f"--{name}"], is_flag=True, expose_value=False, callback=_set_level(name), help=about, hidden=True
    )


def selection_flags(function: F) -> F:
    """Add `--only`, `--tags` and `--skip-tags`: the part of the manifest to apply."""
    from ccm_agent.clikit.selection import SELECTION

    for name, more in reversed(SELECTION.items()):
        function = click.option(name, cls=Option, multiple=True, section="Resources", **more)(function)
    return function
