"""`ccmctl assign --batch …`: deploy a new revision of an assignment to nodes in waves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ccm_agent.clikit.text import fold_names
from ccm_agent.model.errors import UsageError
from ccm_agent.model.records.rollout_records import RolloutState
from ccm_agent.model.wire import MANIFEST_APPLY, AssignmentStage, ManifestRequest
from ccm_ctl.commands.assignments.assignment_options import build_target_set
from ccm_ctl.fleet.assignments.assignment_history import verify_newest
from ccm_ctl.fleet.assignments.assignments import Assignments, Standing, store_assignment
from ccm_ctl.fleet.assignments.staging import hold_back, next_number
from ccm_ctl.fleet.runs.run_request import prepare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ccm_agent.bus.signatures.verified import Base
    from ccm_agent.model.exits import Exit
    from ccm_agent.model.records.rollout_records import RolloutPlan
    from ccm_ctl.app import Application
    from ccm_ctl.commands.rollouts.rollout_options import RolloutFlags
    from ccm_ctl.fleet.nodes.nodes import Inventory
    from ccm_ctl.fleet.ports import Fleet

START_WITHIN_S = 3600.0
"""The time in seconds within which a node must start after it accepted its part of the rollout. After that, it does not start."""


class AssignmentRollout:
    """
    A rollout of a new revision.

    Args:
        application: Shows the rollout.
        fleet: The bus.
        inventory: The nodes.
        nodes: The nodes that the assignment applies to.
        flags: The waves and limits of the rollout.

    Raises:
        UsageError: The options are not valid, or an agent is too old.
    """

    def __init__(
        self,
        application: Application,
        fleet: Fleet,
        inventory: Inventory,
        nodes: list[str],
        flags: RolloutFlags,
    ) -> None:
        self._application, self._fleet = application, fleet
        self._flags = flags
        _refuse_older_agents(inventory, nodes)
        self._targets = build_target_set(inventory, nodes)
        self._plan: tuple[RolloutPlan, list[str]] = flags.make_plan(inventory, self._targets)

    async def start(
        self,
        before: Standing | None,
        new: Standing,
        known: Assignments,
        message: str,
        *,
        base: Sequence[Base],
    ) -> Exit:
        """
        Store the new revision as the next one, and deploy it to the nodes.

        Args:
            before: The stored assignment; None if there is none.
            new: The new revision.
            known: All assignments at the time of the operator's confirmation.
            message: The operator's reason.
            base: The documents from which the new revision was made.
        """
        from ccm_ctl.commands.rollouts.rollout_drive import start_rollout

        fleet, assignment = self._fleet, new.assignment
        base = [*base, *([await verify_newest(self._fleet, before)] if before is not None else [])]
        number = next_number(fleet.clock.now(), before)
        plan, order = self._plan
        resolved = replace(
            self._targets,
            nodes=[*order, *self._targets.offline],
            scopes=[assignment.scope],
            targets=assignment.targets,
            where=assignment.where,
        )
        request = ManifestRequest(
            protocol=MANIFEST_APPLY,
            name=assignment.name,
            digest=assignment.bundle.digest,
            stage=AssignmentStage(key=new.key, number=number),
            message=message,
        )
        launch = prepare(fleet, request, resolved, "assign", assignment.name, base=base)
        run = launch.record.run
        state = RolloutState(
            run=run,
            plan=plan,
            start_at=self._flags.starts(fleet.clock.now()),
            deadline_s=START_WITHIN_S,
        )

        async def store() -> None:
            held = hold_back(before, assignment, number, run)
            await store_assignment(fleet, held, known, base, message)

        return await start_rollout(
            self._application,
            fleet,
            launch,
            state,
            offline_ok=True,
            prepare=store,
            detach=self._flags.detach,
        )


def _refuse_older_agents(inventory: Inventory, nodes: list[str]) -> None:
    """
    Refuse nodes whose agents do not support rollouts of assignments, because they would all get the revision only at the end.

    Raises:
        UsageError: Some agents are too old. The message contains the names of their nodes.
    """
    records = ((name, inventory.nodes[name].record) for name in nodes)
    older = [name for name, record in records if record is not None and not record.staged_assignments]
    if older:
        raise UsageError(
            f"{fold_names(older)}: the agent is too old for an assignment in waves; upgrade it, or assign without waves"
        )
