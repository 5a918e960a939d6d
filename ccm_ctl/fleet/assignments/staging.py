"""
The next revision of an assignment, which a rollout deploys to nodes wave after wave (ADR 48).

The document contains the current revision in the usual place, and the new one in `next`. Nodes use the current one until a
request releases the next one to them. When all waves have ended, the next revision becomes the current one. It keeps the number
that nodes already use, so this write does not cause another convergence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ccm_agent.bus.layout import ASSIGNMENTS
from ccm_agent.model.errors import RunError, UsageError
from ccm_agent.model.ids import is_id, short_id
from ccm_agent.model.wire import Assignment
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.rollout.store import RolloutStore

if TYPE_CHECKING:
    from datetime import datetime

    from ccm_agent.model.wire import AssignmentStage
    from ccm_ctl.fleet.assignments.assignments import Standing
    from ccm_ctl.fleet.ports import Fleet

NOWHERE = "false"
"""The condition of a first revision. With it, the revision applies to no node until its rollout releases it."""


def next_number(now: datetime, before: Standing | None) -> int:
    """Return the number by which nodes identify a new revision. No earlier revision of the key has this number."""
    known = [int(now.timestamp() * 1000)]
    if before is not None:
        following = before.following
        known += [before.stamp + 1, before.number + 1, following.number + 1 if following else 0]
    return max(known)


def hold_back(before: Standing | None, new: Assignment, number: int, run: str) -> Assignment:
    """
    Return the document that contains the current revision and, as `next`, the new one.

    Args:
        before: The stored assignment, or None.
        new: The new revision.
        number: Its number, from `next_number`.
        run: The rollout that deploys it.
    """
    following = replace(new, number=number, rollout=run, next=None)
    if before is None:
        return replace(new, where=NOWHERE, next=following)
    return replace(before.assignment, number=before.number, next=following)


async def complete_stage(fleet: Fleet, stage: AssignmentStage, run: str) -> None:
    """
    Make the next revision the current one. Does nothing if it is already current.

    Raises:
        RunError: Another operator changed or removed the assignment in the meantime.
        SignatureError: The stored assignment is not signed by an operator with the right to write it.
        BusDeniedError: This operator may not write assignments in this scope.
    """

    def promote(body: Any) -> Any:
        try:
            assignment = msgspec.convert(body, Assignment) if body is not None else None
        except msgspec.ValidationError:
            assignment = None
        if assignment is not None and (assignment.number, assignment.next) == (stage.number, None):
            return body
        following = assignment.next if assignment is not None else None
        if following is None or following.number != stage.number:
            raise RunError(
                f"{stage.key}: was assigned again or removed during the rollout, which therefore cannot complete; "
                f"end it with `ccmctl run abort {short_id(run)}`"
            )
        return msgspec.to_builtins(following)

    await Documents(fleet, fleet.assignments, ASSIGNMENTS).change(stage.key, promote)


async def check_settled(fleet: Fleet, standing: Standing | None, *, may_be_aborted: bool) -> None:
    """
    Check that no rollout is deploying another revision of an assignment.

    Args:
        fleet: The bus.
        standing: The assignment, or None.
        may_be_aborted: Whether an aborted rollout whose revision is still on some nodes is accepted.

    Raises:
        UsageError: A rollout is deploying another revision, or was aborted and the assignment was not rolled back.
    """
    following = standing.following if standing is not None else None
    if standing is None or following is None:
        return
    run = following.assignment.rollout
    found = await RolloutStore(fleet).read(run) if is_id(run) else None
    if found is not None and not found[0].phase.is_over:
        raise UsageError(
            f"{standing.name}: the rollout {short_id(run)} of revision {standing.revision} is in progress; wait for it, "
            f"or end it with `ccmctl run abort {short_id(run)}`"
        )
    if not may_be_aborted:
        raise UsageError(
            f"{standing.name}: some nodes still have revision {standing.revision} of the aborted rollout {short_id(run)}; "
            f"run `ccmctl rollback {standing.name}` first, or assign without waves"
        )


def is_first(standing: Standing) -> bool:
    """Whether a document contains only the revision of an incomplete rollout, and no earlier revision."""
    return standing.assignment.next is not None and standing.assignment.where == NOWHERE
