"""`ccm ensure`: manage a single resource, with a command for each type that is made from the type itself."""

from __future__ import annotations

import os
from typing import Any

import click

from ccm_agent.cli import given as given_values
from ccm_agent.cli import options
from ccm_agent.cli.implicit import why_not_trusted
from ccm_agent.cli.terminal import Terminal, warn
from ccm_agent.model.codec import did_you_mean
from ccm_agent.model.errors import ManifestError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.outcome import Outcome, SessionSummary, TransactionEvent

DEFAULT_HIERA = ".hiera"
SHARED = ("noop", "session", "hiera", "read_env", "nats_context", "registration", "registration_settle")
"""Flags that may stand before the type's name or behind it."""


ENVIRONMENT = {"session": "CCM_SESSION_STORE", "hiera": "CCM_HIERA_DATA", "nats_context": "NATS_CONTEXT"}
"""Variables that stand in for flags that are not given."""


def shared_flags(function: Any) -> Any:
    """The flags of `SHARED`. None means not given, so that one place can win over the other."""
    decorators = (
        click.option("--noop", is_flag=True, default=None, help="Change nothing; show what would change."),
        click.option("--session", metavar="DIR", help="Session store. [CCM_SESSION_STORE]"),
        click.option("--hiera", metavar="URL", help="Hiera data for expressions. [CCM_HIERA_DATA]"),
        click.option(
            "--read-env/--no-read-env",
            default=None,
            help=options.READ_ENV,
        ),
        click.option("--context", "nats_context", metavar="NAME", help="NATS context. [NATS_CONTEXT]"),
        click.option("--registration", "-R", metavar="NAME", help="Registration stream."),
        options.settle_flag,
        *options.LOG_FLAGS,
    )
    return options.decorated(function, decorators)


class Types(options.NearGroup):
    """A command for each type that offers one, and `api`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*(kind.name for kind in _catalog().all() if kind.command.is_offered), "api"]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            known = self.list_commands(ctx)
            hint = did_you_mean(args[0], known) or f"; there are {', '.join(known)}"
            raise click.UsageError(f"unknown resource type `{args[0]}`{hint}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from ccm_agent.cli.ensure_api import api
        from ccm_agent.cli.ensure_type import command_for

        if cmd_name == "api":
            return api
        catalog = _catalog()
        try:
            kind = catalog.find(cmd_name)
        except ManifestError:
            aliased = [one for one in catalog.all() if cmd_name and one.command.alias == cmd_name]
            if not aliased:
                return None
            kind = aliased[0]
        return command_for(kind, _ensure) if kind.command.is_offered else None


@click.group(
    "ensure",
    cls=Types,
    epilog=options.examples(
        "ccm ensure file /etc/motd --content hello --owner root --group root --mode 0644",
        "ccm ensure package nginx latest --noop",
        "ccm ensure service nginx running --enable",
        "ccm ensure file --help",
    ),
)
@shared_flags
@click.pass_context
def command(context: click.Context, /, **given: Any) -> None:
    """Manage a single resource: ccm ensure TYPE NAME ..."""
    context.obj = given


def gather_shared(context: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """
    The shared flags, taken out of what a command was given; what stands behind the type's name wins.

    Raises:
        UsageError: The session store is named and empty.
    """
    before = context.obj or {}
    found = {name: given.pop(name, None) for name in SHARED}
    found = {name: before.get(name) if value is None else value for name, value in found.items()}
    if found["session"] == "":
        raise UsageError("--session is empty: name a directory, or make one with `ccm session new`")
    for name, variable in ENVIRONMENT.items():
        found[name] = found[name] or os.environ.get(variable) or None
    return found


def apply_options(shared: dict[str, Any], **more: Any) -> Any:
    """What the engine takes, from the shared flags."""
    from ccm_agent.app import ApplyOptions

    hiera = shared["hiera"]
    if hiera is None and os.path.exists(DEFAULT_HIERA):  # noqa: PTH110 - pathlib is slow to import
        hiera = _trusted_hiera()
    return ApplyOptions(
        noop=bool(shared["noop"]),
        hiera=(hiera,) if hiera else (),
        environ=given_values.environment(shared["read_env"]),
        session=shared["session"] or "",
        **more,
    )


def _trusted_hiera() -> str | None:
    why = why_not_trusted(DEFAULT_HIERA)
    if not why:
        return DEFAULT_HIERA
    warn(
        f"{os.path.abspath(DEFAULT_HIERA)} is not read: {why}; give it to root, or say --hiera {DEFAULT_HIERA}"  # noqa: PTH100
    )
    return None


async def exit_of(event: TransactionEvent, session: str | None) -> int:
    """
    The process's status after one resource.

    In a session it speaks for the session: a script that looks at its last command's status learns of every failure.
    """
    if event.outcome in (Outcome.FAILED, Outcome.UNMET):
        return Exit.FAILED
    if session:
        from ccm_agent.app import session_summary

        return session_exit(await session_summary(session))
    return Exit.OK


def session_exit(summary: SessionSummary) -> int:
    """The process's status for a session: 2 once a resource of it has failed or had an unmet requirement."""
    return Exit.FAILED if summary.failed_resources or summary.requirements_unmet_count else Exit.OK


def _ensure(type_name: str, properties: dict[str, Any], shared: dict[str, Any]) -> int:
    import asyncio

    if properties.get("require") and not shared["session"]:
        raise UsageError("--require looks into a session: name its store with --session or CCM_SESSION_STORE")
    terminal = Terminal()
    asked = apply_options(
        shared, on_note=lambda level, message, fields: terminal.note(level, message, dict(fields))
    )

    async def ensure() -> int:
        from ccm_agent.app import App

        app = App(
            os.environ,
            context=shared["nats_context"] or "CCM",
            stream=shared["registration"] or "",
            settle_s=options.settle_s(shared["registration_settle"]),
        )
        try:
            event = await app.engine().ensure(type_name, properties, asked)
            terminal.event(event)
            return await exit_of(event, shared["session"])
        finally:
            await app.close()

    return asyncio.run(ensure())


def _catalog() -> Any:
    from ccm_agent.resources.catalog import Catalog

    return Catalog()
