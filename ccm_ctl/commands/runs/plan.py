"""`ccmctl plan`: what a manifest would change on nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ccm_agent.clikit.selection import selection_options
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.selection import make_selection
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.runs.apply import event_options, send_manifest
from ccm_ctl.commands.runs.plan_impact import PlanImpact, check_impact, impact_options
from ccm_ctl.commands.runs.targets import manifest_options, run_options, target_spec

if TYPE_CHECKING:
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.ports import Fleet


@verb(
    "plan",
    examples=[
        "ccmctl plan site/ -t role=web",
        "ccmctl plan site/ -t role=web --out web.plan && ccmctl apply --plan web.plan",
        "ccmctl plan site/ -t role=web --impact --canary 1 --batch 25%",
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
        *impact_options(),
    ],
)
def plan(application: Application, path: str, **options: Any) -> Exit:
    """
    Show what a manifest would change on nodes, line by line.

    Nothing is changed. It is `ccmctl apply --noop --diff`; nodes with equal diffs share a block.

    With --impact it also shows which registered services would lose how many of their healthy instances at the same time. The
    rollout options say how the change would be rolled out; the plan itself runs on all nodes.
    """
    from ccm_ctl.commands.runs.manifest_check import read_checked
    from ccm_ctl.fleet.nodes.discovery import resolve
    from ccm_ctl.fleet.runs.plan_file import check_out

    check_impact(options)
    if options["out"]:
        check_out(options["out"])
    content = read_checked(application, path, options["manifest"], options["name"], force=options["force"])
    selection = make_selection(options["only"], options["tags"], options["skip_tags"])
    if options["out"] and selection is not None:
        raise UsageError("--out saves plans of whole manifests; leave out --only, --tags and --skip-tags")
    options |= {"diff": True, "selection": selection}

    async def work(fleet: Fleet) -> Exit:
        impact = PlanImpact(application, fleet, content, options) if options["impact"] else None
        if impact is None or not options["stored"]:
            return await send_manifest(application, fleet, path, content, "plan", options, impact=impact)
        impact.prepare(*await resolve(fleet, target_spec(options), is_whole=True))
        await impact.show_stored()
        return Exit.OK

    return application.run(work)
