"""`ccmctl plan`: what a manifest would change on nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ccm_agent.clikit.selection import selection_options
from ccm_agent.model.errors import UsageError
from ccm_agent.model.selection import make_selection
from ccm_ctl.commands.apply import event_options, send_manifest
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.targets import manifest_options, run_options

if TYPE_CHECKING:
    from ccm_agent.model.exits import Exit
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.ports import Fleet


@verb(
    "plan",
    examples=[
        "ccmctl plan site/ -t role=web",
        "ccmctl plan site/ -t role=web --out web.plan && ccmctl apply --plan web.plan",
    ],
    options=[
        click.Argument(["path"], metavar="FILE|DIR", type=click.Path()),
        *run_options(asks=False),
        *selection_options(),
        *manifest_options(),
        *event_options(),
        click.Option(
            ["--out"],
            type=click.Path(),
            metavar="FILE",
            help="Save the plan; `ccmctl apply --plan FILE` applies exactly that, within 24 hours.",
        ),
    ],
)
def plan(application: Application, path: str, **options: Any) -> Exit:
    """
    Show what a manifest would change on nodes, line by line.

    Nothing is changed. It is `ccmctl apply --noop --diff`; nodes with equal diffs share a block.
    """
    from ccm_ctl.commands.manifest_check import read_checked
    from ccm_ctl.fleet.plan_file import check_out

    if options["out"]:
        check_out(options["out"])
    content = read_checked(application, path, options["manifest"], options["name"], force=options["force"])
    selection = make_selection(options["only"], options["tags"], options["skip_tags"])
    if options["out"] and selection is not None:
        raise UsageError("--out saves plans of whole manifests; leave out --only, --tags and --skip-tags")
    options |= {"diff": True, "selection": selection}

    async def work(fleet: Fleet) -> Exit:
        return await send_manifest(application, fleet, path, content, "plan", options)

    return application.run(work)
