"""`ccmctl plan`: show what a manifest would change on nodes."""

from __future__ import annotations

import click

from ccm_agent.clikit.options import takes
from ccm_agent.clikit.selection import selection_options
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.runs.apply import ManifestRunOptions, event_options, send_manifest
from ccm_ctl.commands.runs.manifest_check import read_checked
from ccm_ctl.commands.runs.plan_impact import PlanImpact, impact_options
from ccm_ctl.commands.runs.targets import manifest_options, run_options
from ccm_ctl.fleet.nodes.discovery import resolve
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.plan_file import check_out


class PlanRunOptions(ManifestRunOptions, frozen=True, kw_only=True):
    """The options of `ccmctl plan`."""

    path: str
    impact: bool
    stored: bool


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
            help="Save the plan; `ccmctl apply --plan FILE` applies exactly this plan, within 24 hours.",
        ),
        *impact_options(),
    ],
)
@takes(PlanRunOptions)
def plan(application: Application, given: PlanRunOptions) -> Exit:
    """
    Show what a manifest would change on nodes, line by line.

    Nothing is changed. The command is the same as `ccmctl apply --noop --diff`. Nodes with equal diffs share a block.

    With --impact, it also shows how many healthy instances each registered service would lose at the same time. The rollout
    options define how the change would be rolled out; the plan itself runs on all nodes.
    """
    _check_impact(given)
    if given.out:
        check_out(given.out)
    path, source = given.path, given.source
    content = read_checked(application, path, source.manifest, given.name, force=source.force)
    if given.selected.selection() is not None and given.out:
        raise UsageError("--out saves only plans of whole manifests; omit --only, --tags and --skip-tags")

    async def work(fleet: Fleet) -> Exit:
        impact = PlanImpact(application, fleet, content, given.rollout) if given.impact else None
        if impact is None or not given.stored:
            return await send_manifest(application, fleet, path, content, "plan", given, impact=impact)
        impact.prepare(*await resolve(fleet, given.start.spec, is_whole=True))
        await impact.show_stored()
        return Exit.OK

    return application.run(work)


def _check_impact(given: PlanRunOptions) -> None:
    if given.stored and not given.impact:
        raise UsageError("--stored requires --impact")
    if given.stored and given.out:
        raise UsageError("--stored does not run a plan, so there is nothing to save; omit --out")
    if given.rollout.is_rollout and not given.impact:
        raise UsageError(
            "a plan runs on all nodes at the same time; add --impact to see the effect of these rollout options on services"
        )
