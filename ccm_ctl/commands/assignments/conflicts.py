"""Check for conflicts with existing assignments: an error for a new assignment, and a warning before a run."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from ccm_agent.clikit.text import fold_names
from ccm_agent.model.errors import ConflictError, UsageError
from ccm_ctl.commands.assignments.assignment_options import counts_for
from ccm_ctl.render.reapplied import format_assigned

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ccm_ctl.app import Application
    from ccm_ctl.fleet.assignments.assignments import Assignments, Standing
    from ccm_ctl.fleet.assignments.bundles import Inside
    from ccm_ctl.fleet.content import Content
    from ccm_ctl.fleet.nodes.nodes import Inventory
    from ccm_ctl.fleet.ports import Fleet

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def check_name(name: str) -> None:
    """
    Refuse a name that cannot be part of a key.

    Raises:
        UsageError: The name is not valid.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r}: not a valid name for an assignment; use letters, digits, `-` and `_`")


def assignment_name(text: str) -> str:
    """Make a valid name for an assignment from a text."""
    name = _NOT_IN_NAME.sub("-", text).strip("-_")[:64]
    return name if _NAME.fullmatch(name) else "assigned"


async def refuse_overlaps(
    application: Application,
    fleet: Fleet,
    inventory: Inventory,
    after: Assignments,
    standing: Standing,
    inside: Inside,
) -> None:
    """
    Refuse an assignment if another one manages the same resource on one of its nodes. Agents would refuse it too.

    Equal names with templates may or may not be the same resource on a node, so they are only reported, and the node decides.
    Assignments with the mode `plan` do not manage resources.

    Raises:
        ConflictError: There is a conflict, so nothing is assigned. The message contains both assignments.
    """
    from ccm_ctl.fleet.assignments.bundles import managing, overlaps

    if standing.assignment.mode == "plan":
        return
    counting = {
        node: [one for one in managing(after, inventory, node) if one.name != standing.name]
        for node in counts_for(inventory, after, standing)
    }
    found = await overlaps(fleet, counting, inside.resources)
    for overlap in found:
        if overlap.resource in inside.certain:
            raise ConflictError(
                f"{standing.name}: the assignment {overlap.name} also manages {overlap.resource} on "
                f"{fold_names(overlap.nodes)}, and agents would refuse both; remove the resource from one of them"
            )
    for overlap in found:
        application.terminal.note(
            f"{overlap.resource}: the assignment {overlap.name} has a resource of the same name on {fold_names(overlap.nodes)}; "
            "agents refuse both if it is the same resource"
        )


async def warn_of_assignments(
    application: Application, fleet: Fleet, inventory: Inventory, nodes: Sequence[str], content: Content
) -> None:
    """
    Warn about resources of a manifest that assignments also manage on these nodes, because the assignments will revert them.
    """
    from ccm_ctl.fleet.assignments.bundles import look_into, resources_in

    if content.bundle is None:
        resources = resources_in(content.text)
    else:
        inside = await asyncio.to_thread(look_into, content.packed, content.bundle.manifest)
        resources = inside.resources
    await warn_of_resources(application, fleet, inventory, nodes, resources)


async def warn_of_resources(
    application: Application,
    fleet: Fleet,
    inventory: Inventory,
    nodes: Sequence[str],
    resources: Collection[str],
) -> None:
    """Warn about resources that assignments also manage on these nodes, because the assignments will revert them."""
    from ccm_ctl.fleet.assignments.bundles import find_assigned

    for sentence in format_assigned(await find_assigned(fleet, inventory, nodes, resources)):
        application.terminal.note(sentence)
