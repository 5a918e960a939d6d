"""Flags that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

WHOLE = 1_000
"""Longer than any sentence of help."""

READ_ENV = (
    "Read environment variables from .env in the working directory. "
    "[yes, unless root runs this and another user could have written the file]"
)


class SuggestingGroup(click.Group):
    """Verbs below a verb: one that is not there is answered with the one that is near."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            from ccm_agent.model.suggestions import did_you_mean

            near = did_you_mean(args[0], self.list_commands(ctx))
            raise click.UsageError(f"unknown command `{args[0]}`{near}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Names and the whole first sentence of each: click would cut it off at the width of the terminal."""
        below = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(limit=WHOLE)) for name, one in below if one])


def examples(*lines: str) -> str:
    """What help shows below everything else, as it is typed."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def decorated(made: Any, decorators: tuple[Callable[[Any], Any], ...]) -> Any:
    """A function or command with options added, so that help shows them in this order."""
    for decorate in decorators if isinstance(made, click.Command) else reversed(decorators):
        made = decorate(made)
    return made


def log_flags(function: F) -> F:
    """`--debug` and `--info`, which every verb takes, before its name or behind it."""
    flags: F = decorated(function, LOG_FLAGS)
    return flags


def context_flag(function: F) -> F:
    """`--context`: which context of the `nats` program to connect with."""
    return click.option(
        "--context",
        "nats_context",
        envvar="NATS_CONTEXT",
        default="CCM",
        metavar="NAME",
        help="NATS context.",
    )(function)


def env_flag(function: F) -> F:
    """`--read-env`."""
    return click.option(
        "--read-env/--no-read-env",
        default=None,
        help=READ_ENV,
    )(function)


def registration_flag(function: F) -> F:
    """`--registration`, which CCM has everywhere."""
    return click.option(
        "--registration",
        "-R",
        default="REGISTRATION",
        metavar="NAME",
        help="Registration stream.",
    )(function)


def settle_flag(function: F) -> F:
    """`--registration-settle`: how long an answer in which somebody is missing is doubted."""
    return click.option(
        "--registration-settle",
        metavar="DURATION",
        help="How long after a broker outage missing services still count as registered; 0s disables this. [10m]",
    )(function)


def settle_s(written: str | None) -> float | None:
    """
    What `--registration-settle` says in seconds; None when it says nothing.

    Raises:
        UsageError: It is not a duration.
    """
    from ccm_agent.model.durations import parse_duration
    from ccm_agent.model.errors import DocumentError, UsageError

    if not written:
        return None
    try:
        seconds = parse_duration(written)
    except DocumentError as err:
        raise UsageError(f"--registration-settle: {err.message}") from err
    if seconds < 0:
        raise UsageError(f"--registration-settle {written}: write 0s or more")
    return seconds


def _set_level(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def set_level(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if not value:
            return
        import logging

        level = logging.DEBUG if name == "debug" else logging.INFO
        logging.basicConfig(level=level, format="%(levelname)-5s %(name)s: %(message)s")
        context.find_root().meta[f"ccm.{name}"] = True

    return set_level


LOG_FLAGS: tuple[Callable[[Any], Any], ...] = tuple(
    click.option(
        f"--{name}", is_flag=True, expose_value=False, callback=_set_level(name), help=help_text, hidden=True
    )
    for name, help_text in (
        ("info", "Write informational log messages."),
        ("debug", "Write debug log messages and show tracebacks."),
    )
)
