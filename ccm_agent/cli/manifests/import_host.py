"""`ccm import`: write a manifest of this host's existing resources."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec import Struct

from ccm_agent.app import App, ApplyOptions
from ccm_agent.app_import import find_existing
from ccm_agent.cli import options
from ccm_agent.cli.terminal import PROGRAM
from ccm_agent.clikit.commands import examples
from ccm_agent.clikit.options import Options, takes
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.clikit.text import plural
from ccm_agent.model.errors import ManifestError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.host_import import LeftOutResource, holds_template
from ccm_agent.resources.existing import ExistingResource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ccm_agent.cli.manifests.import_site import HostSiteWriter
    from ccm_agent.model.outcome import TransactionEvent

BETWEEN_TYPES = re.compile(r",(?=[a-z][a-z0-9_]*(?:[:,]|$))")
FIRST = ("repository", "package", "group", "user")
"""Types that other types depend on. Their resources are written first."""
LAST = ("config", "edit", "container", "service")
"""Types that depend on others, such as services on their units and files. Their resources are written last, in this order."""


class ImportFlags(Options, frozen=True, kw_only=True):
    """The options of `ccm import`."""

    types: tuple[str, ...]
    out: str
    as_json: bool


class ImportedResources(Struct, kw_only=True):
    """
    The resources that were found for the requested types.

    Attributes:
        resources: The resources by type and name, in the order of the manifest.
        left_out: The resources that are not in the manifest, with the reasons.
    """

    resources: dict[tuple[str, str], ExistingResource] = {}
    left_out: list[LeftOutResource] = []


@click.command(
    "import",
    cls=options.CcmCommand,
    epilog=examples(
        "ccm import package,service,file:/etc/nginx --out site",
        "ccm import group,user,cron,sysctl,kernel_module,mount --out site",
        "ccm import repository,host,system,systemd_unit,directory:/srv/www --out site",
        "ccm import container,config:/etc/app.yaml,edit:/etc/hosts --out site",
    ),
)
@click.argument("types", metavar="TYPE[:ARGUMENT]...", nargs=-1, required=True)
@click.option(
    "--out",
    "-o",
    required=True,
    metavar="DIR",
    help="Directory to write. It must be empty or must not exist.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@takes(ImportFlags)
def command(given: ImportFlags) -> Exit:
    """
    Write a manifest of this host's current state.

    Omits resources that the distribution installs by default. Omits and lists resources that may contain secrets. Finally,
    plans the manifest and omits resources that an apply would change.
    """
    import asyncio

    from ccm_agent.cli.manifests.import_site import HostSiteWriter

    words = sorted((word for text in given.types for word in BETWEEN_TYPES.split(text)), key=_rank)
    writer = HostSiteWriter(given.out, f"Written by `ccm import {' '.join(words)}` on {os.uname().nodename}.")
    imported = asyncio.run(_import(App(os.environ), words, writer))
    terminal = Terminal(PROGRAM)
    if given.as_json:
        found = {
            "out": given.out,
            "resources": [{"type": kind, "name": name} for kind, name in imported.resources],
            "left_out": [msgspec.structs.asdict(one) for one in imported.left_out],
        }
        terminal.raw(f"{json.dumps(found)}\n")
    else:
        terminal.show(_report(imported, os.path.normpath(given.out)))
    return Exit.OK


def _rank(word: str) -> int:
    kind = word.partition(":")[0]
    if kind in FIRST:
        return FIRST.index(kind)
    return len(FIRST) + (LAST.index(kind) + 1 if kind in LAST else 0)


async def _import(app: App, words: Sequence[str], writer: HostSiteWriter) -> ImportedResources:
    imported = ImportedResources()
    try:
        for word in words:
            kind, _, argument = word.partition(":")
            found = await find_existing(app, kind, argument)
            imported.left_out += found.left_out
            for resource in found.resources:
                _add(imported, resource.kind or kind, resource)
        # several arguments may find the same file
        imported.left_out = list(dict.fromkeys(imported.left_out))
        with writer:
            writer.write(imported.resources)
            if imported.resources:
                await _leave_out_changes(app, imported, writer)
            if not imported.resources:
                raise UsageError(
                    "\n".join(["nothing to import, so nothing was written", *_left_out(imported)])
                )
            writer.finish()
    finally:
        await app.close()
    return imported


def _add(imported: ImportedResources, kind: str, resource: ExistingResource) -> None:
    # lists are checked too, because users write their own SSH keys
    if holds_template([resource.name, resource.properties]):
        reason = "has text that would be read as a template"
        imported.left_out.append(LeftOutResource(type=kind, name=resource.name, reason=reason))
    else:
        imported.resources.setdefault((kind, resource.name), resource)


async def _leave_out_changes(app: App, imported: ImportedResources, writer: HostSiteWriter) -> None:
    """Plan the manifest, and write it again without the resources that an apply would change."""
    unlike: dict[tuple[str, str], str] = {}

    def on_event(event: TransactionEvent) -> None:
        if event.changed or event.failed or event.skipped:
            unlike[event.type, event.name] = event.noop_message or "; ".join(event.error)

    async with app.source(writer.manifest) as source:
        summary = await app.engine().apply(source, ApplyOptions(noop=True, environ={}, on_event=on_event))
    if summary.reason:
        raise ManifestError(f"the plan of the manifest stopped: {summary.reason}")
    for (kind, name), why in unlike.items():
        del imported.resources[kind, name]
        reason = f"an apply would change it: {why}"
        imported.left_out.append(LeftOutResource(type=kind, name=name, reason=reason))
    if unlike:
        writer.write(imported.resources)


def _report(imported: ImportedResources, out: str) -> str:
    numbers = Counter(kind for kind, _ in imported.resources)
    counts = ", ".join(plural(number, kind) for kind, number in numbers.items())
    lines = [f"{out}/manifest.yaml: {plural(numbers.total(), 'resource')}{f' ({counts})' if counts else ''}"]
    lines += _left_out(imported)
    lines.append(f"an apply changes nothing on this host; to verify: ccm apply {out}/manifest.yaml --noop")
    return "\n".join(lines) + "\n"


def _left_out(imported: ImportedResources) -> list[str]:
    rows = [f"  {one.type} {one.name}: {one.reason}" for one in imported.left_out]
    return ["left out:", *rows] if rows else []
