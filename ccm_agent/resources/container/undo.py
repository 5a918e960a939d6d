"""Undoes the change of a container by restoring the earlier properties in its files, and whether it was running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import to_builtins

from ccm_agent.model.records.undo import EarlierState, KeepFile, checked_state
from ccm_agent.model.resource import ABSENT
from ccm_agent.resources.container.checks import check
from ccm_agent.resources.container.model import MODE, ContainerProperties, ContainerState

if TYPE_CHECKING:
    from ccm_agent.model.records.undo import Identity
    from ccm_agent.resources.contract import Decision

FOREIGN = "its files differed from what this type writes"
UNKNOWN_VARIABLES = "it had variables that the run did not set: they may be secret, so they are not kept"
RESTARTED = "it was restarted; restart it again to load its earlier files"


async def earlier(
    wanted: ContainerProperties, found: ContainerState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`. Files are restored only if they can be reproduced byte for byte."""
    if decision.refreshed and len(decision.steps) == 1:
        return EarlierState(why_not=RESTARTED)
    if (found.kind, found.variables_kind) == ("absent", "absent"):
        return EarlierState(properties={"ensure": ABSENT})
    back = found.earlier
    if back is None or (found.mode, found.uid) != (f"{MODE:04o}", 0):
        return EarlierState(why_not=FOREIGN)
    if not set(wanted.environment).issuperset(back.environment):
        # variables that this run does not set may have been secrets, and this run cannot recognize them
        return EarlierState(why_not=UNKNOWN_VARIABLES)
    back.ensure = found.ensure
    back.allow_tag = "@" not in back.image
    properties = to_builtins(back)
    del properties["name"]
    return checked_state("its earlier quadlet", properties, lambda: check(back))


def identify(state: ContainerState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    return {
        "kind": state.kind,
        "content": state.checksum,
        "mode": state.mode,
        "owner": str(state.uid),
        "environment": state.variables_checksum,
        "ensure": state.ensure,
    }
