"""`ccmctl bundle gc`: remove the bundles that no object on the broker needs."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ccm_agent.clikit.durations import Duration
from ccm_agent.clikit.table import Column
from ccm_agent.clikit.text import ago, plural, size
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.ports import StoredObject
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.runs.targets import NOT_AGREED, yes_option
from ccm_ctl.fleet.assignments.bundle_references import SHORT_DIGEST, find_unused
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.record_types.assignments import BundleLine

LEAST_S = 3600
"""
The minimum of `--older-than`, in seconds.

A command stores a bundle before the document that needs it. An hour is much longer than the time between these two writes.
"""


@verb(
    "gc",
    examples=[
        "ccmctl bundle gc --dry-run              # lists what it would remove",
        "ccmctl bundle gc --older-than 30d --yes",
    ],
    options=[
        click.Option(
            ["--older-than"],
            type=Duration(),
            default="7d",
            show_default=True,
            metavar="DURATION",
            help="Remove only bundles that no command has stored or used for this long; at least 1h.",
        ),
        click.Option(["--dry-run"], is_flag=True, help="Remove nothing; list what would be removed."),
        yes_option(),
    ],
)
def collect(application: Application, older_than: int, dry_run: bool, yes: bool) -> Exit:
    """
    Remove unneeded bundles. `ccmctl bundle list` shows what needs a bundle.

    A bundle is kept if an assignment, a revision that `ccmctl rollback` can restore, a schedule, a rollout or a run on record
    needs it, or if another command stores it at the same time. If any of these cannot be read, nothing is removed. Requires
    credentials with `--admin`.
    """
    if older_than < LEAST_S:
        raise UsageError(
            f"--older-than {format_duration(older_than)}: use at least 1h, because running commands need their bundles"
        )

    async def work(fleet: Fleet) -> Exit:
        terminal = application.terminal
        unused = await find_unused(fleet, older_than)
        if not unused:
            terminal.show(
                f"nothing to remove: all bundles are needed or newer than {format_duration(older_than)}\n"
            )
            return Exit.OK
        _show(application, unused, fleet)
        total = f"{plural(len(unused), 'bundle')}, {size(sum(one.size_bytes for one in unused))}"
        if dry_run:
            for one in unused:
                _record(application, one, removed=False)
            terminal.show(f"would remove {total}\n")
            return Exit.OK
        if not yes and not await terminal.ask(f"remove {total}?", otherwise="use --yes"):
            return NOT_AGREED
        await _remove(application, fleet, unused)
        return Exit.OK

    return application.run(work)


async def _remove(application: Application, fleet: Fleet, unused: Sequence[StoredObject]) -> None:
    removed = []
    for one in unused:
        is_removed = await fleet.manifests.remove(one.name, one.revision)
        _record(application, one, removed=is_removed)
        if is_removed:
            removed.append(one)
        else:
            application.terminal.note(
                f"{one.name[:SHORT_DIGEST]}: kept, because another command stored it again"
            )
    await fleet.manifests.trim()
    application.terminal.show(
        f"removed {plural(len(removed), 'bundle')}, {size(sum(one.size_bytes for one in removed))}\n"
    )


def _show(application: Application, unused: Sequence[StoredObject], fleet: Fleet) -> None:
    now = fleet.clock.now()
    rows = [[one.name[:SHORT_DIGEST], size(one.size_bytes), ago(one.time, now)] for one in unused]
    application.terminal.table([Column("DIGEST"), Column("SIZE"), Column("STORED")], rows)


def _record(application: Application, one: StoredObject, *, removed: bool) -> None:
    application.terminal.record(
        BundleLine, digest=one.name, size_bytes=one.size_bytes, stored=one.time, removed=removed
    )
