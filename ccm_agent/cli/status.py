"""`ccm status`: show the state of a resource, which is selected by its type and name."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import msgspec

from ccm_agent.app import App, ApplyOptions
from ccm_agent.cli import inputs, options
from ccm_agent.clikit import records
from ccm_agent.clikit.commands import examples
from ccm_agent.model import codec
from ccm_agent.model.errors import ManifestError
from ccm_agent.resources.contract import AnyType


@click.command(
    "status",
    cls=options.CcmCommand,
    epilog=examples("ccm status file /etc/motd", "ccm status service nginx --json"),
)
@click.argument("type_name", metavar="TYPE")
@click.argument("name", metavar="NAME")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of YAML.")
def command(type_name: str, name: str, as_json: bool) -> None:
    """Show the current state of a resource."""
    import asyncio

    app = App(os.environ)
    kind = app.catalog.find(type_name)
    if not kind.can_status:
        # The exit code stays 0, as in Choria CCM.
        why = f"the status of `{kind.name}` resources is not supported: {kind.why_no_status}"
        sys.stdout.write(
            records.record(records.ERROR, code=ManifestError.code, message=why) if as_json else f"{why}\n"
        )
        return
    found = asyncio.run(_status(app, kind, name))
    shown: Any = getattr(found, "metadata", None) or found
    if as_json:
        sys.stdout.write(codec.encode_json(shown, indent=2).decode() + "\n")
    else:
        sys.stdout.write(_as_yaml(msgspec.to_builtins(shown)) + "\n")


async def _status(app: Any, kind: AnyType, name: str) -> Any:
    try:
        return await app.engine().status(kind.name, name, ApplyOptions(environ=inputs.environment(False)))
    finally:
        await app.close()


def _as_yaml(values: dict[str, Any]) -> str:
    """Format a mapping as YAML, keeping its order."""
    return "".join(codec.encode_yaml({key: value}) for key, value in values.items())
