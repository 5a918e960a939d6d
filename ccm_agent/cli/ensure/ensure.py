"""`ccm ensure`: manage a single resource. The command of each type is generated from the type."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import click

from ccm_agent.app import App
from ccm_agent.cli import options
from ccm_agent.cli.ensure.ensure_api import api
from ccm_agent.cli.ensure.ensure_shared import EnsureSharedOptions, apply_options, exit_of, shared_flags
from ccm_agent.cli.ensure.ensure_type import command_for
from ccm_agent.cli.terminal import HostTerminal
from ccm_agent.clikit.commands import examples
from ccm_agent.clikit.options import takes
from ccm_agent.clikit.properties import Properties
from ccm_agent.model.errors import ManifestError, UsageError
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.resources.catalog import Catalog


class Types(options.CcmGroup):
    """A group with a command for each type that can be managed this way, and the command `api`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*(kind.name for kind in _catalog().all() if kind.command.is_offered), "api"]

    def unknown(self, name: str, known: Sequence[str]) -> str:
        hint = did_you_mean(name, known) or f"; known types: {', '.join(known)}"
        return f"unknown resource type `{name}`{hint}"

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
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
    epilog=examples(
        "ccm ensure file /etc/motd --content hello --owner root --group root --mode 0644 --diff",
        "ccm ensure package nginx latest --noop",
        "ccm ensure service nginx running --enable",
        "ccm ensure file --help",
    ),
)
@shared_flags
@click.pass_context
@takes(EnsureSharedOptions)
def command(context: click.Context, given: EnsureSharedOptions) -> None:
    """Manage a single resource: ccm ensure TYPE NAME ..."""
    context.obj = given


def _ensure(type_name: str, properties: Properties, shared: EnsureSharedOptions) -> int:
    if properties.get("require") and not shared.session:
        raise UsageError("--require needs a session; select it with --session or CCM_SESSION_STORE")
    terminal = HostTerminal(json=bool(shared.as_json))
    asked = apply_options(
        shared,
        on_note=lambda level, message, fields: terminal.report(level, message, dict(fields)),
        on_diff=terminal.on_diff if terminal.has_reader else None,
    )

    async def ensure() -> int:
        app = App(
            os.environ,
            context=shared.nats_context or "",
            stream=shared.registration or "",
            settle_s=options.settle_s(shared.registration_settle),
        )
        try:
            event = await app.engine().ensure(type_name, properties, asked)
            terminal.event(event)
            code = await exit_of(event, shared.session)
            terminal.end(code)
            return code
        finally:
            await app.close()

    return asyncio.run(ensure())


def _catalog() -> Any:
    return Catalog()
