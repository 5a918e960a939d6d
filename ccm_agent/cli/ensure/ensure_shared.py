"""Code that the commands below `ccm ensure` share: their flags, the engine's options and the exit code."""

from __future__ import annotations

import os
from typing import Any

import click
import msgspec

from ccm_agent.app import ApplyOptions, session_summary
from ccm_agent.cli import inputs, options
from ccm_agent.cli.implicit import why_not_trusted
from ccm_agent.cli.terminal import warn
from ccm_agent.clikit.commands import Option
from ccm_agent.clikit.options import Options
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.outcome import Outcome, SessionSummary, TransactionEvent

DEFAULT_HIERA = ".hiera"


class EnsureSharedOptions(Options, frozen=True, kw_only=True):
    """
    Options that may precede or follow the name of the type.

    None means that an option is not given, so that options at one position can override those at the other.
    """

    noop: bool | None
    diff: bool | None
    as_json: bool | None
    session: str | None
    hiera: str | None
    read_env: bool | None
    nats_context: str | None
    registration: str | None
    registration_settle: str | None

    def over(self, before: EnsureSharedOptions | None) -> EnsureSharedOptions:
        """
        Return these options, completed by the options before the type's name and then by environment variables.

        Raises:
            UsageError: The session store is named and empty.
        """
        given = {
            name: getattr(before, name, None) if (value := getattr(self, name)) is None else value
            for name in self.__struct_fields__
        }
        found = EnsureSharedOptions(**given)
        if found.session == "":
            raise UsageError("--session is empty; give a directory, or create one with `ccm session new`")
        return msgspec.structs.replace(
            found,
            session=found.session or os.environ.get("CCM_SESSION_STORE") or None,
            hiera=found.hiera or os.environ.get("CCM_HIERA_DATA") or None,
        )


def shared_flags(function: Any) -> Any:
    """Add the flags of `EnsureSharedOptions`."""
    decorators = (
        click.option("--noop", is_flag=True, default=None, help="Change nothing; show what would change."),
        click.option("--diff", is_flag=True, default=None, help="Show what changes, line by line."),
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            default=None,
            help="Print the outcome as JSON.",
        ),
        click.option("--session", metavar="DIR", help="Session store. [CCM_SESSION_STORE]"),
        click.option(
            "--data",
            "-d",
            "hiera",
            cls=Option,
            former=options.FORMER_DATA,
            metavar="URL",
            help="Hiera data for expressions. [CCM_HIERA_DATA]",
        ),
        click.option(
            "--read-env/--no-read-env",
            default=None,
            help=options.READ_ENV,
        ),
        click.option("--context", "nats_context", metavar="NAME", help=options.CONTEXT_HELP),
        click.option("--registration", "-R", metavar="NAME", help="Registration stream."),
        options.settle_flag,
    )
    return options.add_options(function, decorators)


def apply_options(shared: EnsureSharedOptions, **more: Any) -> Any:
    """Return the engine's options from the shared flags."""
    hiera = shared.hiera
    if hiera is None and os.path.exists(DEFAULT_HIERA):  # noqa: PTH110 - pathlib is slow to import
        hiera = _trusted_hiera()
    return ApplyOptions(
        noop=bool(shared.noop),
        diff=bool(shared.diff),
        hiera=(hiera,) if hiera else (),
        environ=inputs.environment(shared.read_env),
        session=shared.session or "",
        **more,
    )


def _trusted_hiera() -> str | None:
    why = why_not_trusted(DEFAULT_HIERA)
    if not why:
        return DEFAULT_HIERA
    warn(
        f"{os.path.abspath(DEFAULT_HIERA)} was not read: {why}; fix its owner and mode, or pass --data {DEFAULT_HIERA}"  # noqa: PTH100
    )
    return None


async def exit_of(event: TransactionEvent, session: str | None) -> int:
    """
    Return the process's exit status after one resource.

    In a session, the status covers the whole session, so a script needs to check only its last command.
    """
    if event.outcome in (Outcome.FAILED, Outcome.UNMET):
        return Exit.FAILED
    if session:
        return session_exit(await session_summary(session))
    return Exit.OK


def session_exit(summary: SessionSummary) -> int:
    """Return the process's exit status for a session: 2 if a resource failed or had an unmet requirement."""
    return Exit.FAILED if summary.failed_resources or summary.requirements_unmet_count else Exit.OK
