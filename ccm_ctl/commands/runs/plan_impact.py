"""`--impact` of `ccmctl plan`: the number of healthy instances that each service would lose."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ccm_agent.clikit.commands import Option
from ccm_agent.model.records.rollout_records import RolloutPlan
from ccm_ctl.app import Application
from ccm_ctl.commands.rollouts.rollout_options import RolloutFlags, rollout_options
from ccm_ctl.commands.runs.impact_lines import (
    RECORDS_LIMIT,
    impact_text,
    impact_warnings,
    print_service,
    print_summary,
)
from ccm_ctl.fleet.content import Content
from ccm_ctl.fleet.impact.changes import NodeChange, assume_change, changes_of_run, read_resources
from ccm_ctl.fleet.impact.sources import make_report
from ccm_ctl.fleet.nodes.nodes import Inventory, TargetSet
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.proof import RunProof
from ccm_ctl.fleet.runs.run import Run

IMPACT = "Impact"
"""The help section of `--impact` and related options."""

STORED = "no plan was run"
"""The reason why the plan of a node is unknown if only stored data is used."""


def impact_options() -> list[click.Parameter]:
    """Return the option `--impact`, and the rollout options that it takes into account."""
    return [
        Option(
            ["--impact"],
            section=IMPACT,
            is_flag=True,
            help="Show how many healthy instances each service loses at the same time, given the rollout options below.",
        ),
        Option(
            ["--stored"],
            section=IMPACT,
            is_flag=True,
            help="With --impact: treat every present node as changed. No plan is run, so no permission to plan is required.",
        ),
        *rollout_options(can_detach=False),
    ]


class PlanImpact:
    """
    Computes and shows the impact of one plan.

    Args:
        application: Shows the impact.
        fleet: The fleet.
        content: The manifest.
        flags: The rollout options.
    """

    def __init__(self, application: Application, fleet: Fleet, content: Content, flags: RolloutFlags) -> None:
        self._terminal = application.terminal
        self._fleet = fleet
        self._flags = flags
        self._resources = read_resources(content.document)
        self._rollout: tuple[RolloutPlan, list[str]] | None = None

    def prepare(self, inventory: Inventory, resolved: TargetSet) -> None:
        """
        Divide the nodes into waves before anything is sent.

        Raises:
            UsageError: The rollout options or the file are not valid.
        """
        self._inventory, self._resolved = inventory, resolved
        self._rollout = self._flags.make_plan(inventory, resolved) if self._flags.is_rollout else None

    async def show_planned(self, run: Run, proof: RunProof | None) -> None:
        """Show the impact of the changes that the nodes planned."""
        await self._show(changes_of_run(run, proof, self._resources), run.run)

    async def show_stored(self) -> None:
        """Show the impact according to stored data, without a request to nodes."""
        await self._show([assume_change(node, self._resources, STORED) for node in self._resolved.present])

    async def _show(self, changes: Sequence[NodeChange], run: str = "") -> None:
        report = await make_report(
            self._fleet, self._inventory, self._resolved, self._rollout, changes, self._resources, run
        )
        for one in report.services[:RECORDS_LIMIT]:
            print_service(self._terminal, one, report.waves)
        print_summary(self._terminal, report)
        text = impact_text(report, self._terminal.style)
        self._terminal.show(f"\n{text}" if run else text)
        if not self._terminal.json:
            for sentence in impact_warnings(report):
                self._terminal.warn(sentence)
