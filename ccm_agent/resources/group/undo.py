"""Undoes the change of a group by restoring the earlier ID and members."""

from __future__ import annotations

from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.group.model import GroupProperties, GroupState


async def earlier(
    wanted: GroupProperties, found: GroupState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`."""
    if found.ensure == ABSENT:
        return EarlierState(properties={"ensure": ABSENT})
    properties = {
        "ensure": PRESENT,
        "gid": found.metadata.gid,
        "members": found.metadata.members,
        "members_exclusive": True,
    }
    return EarlierState(properties=properties)


def identify(state: GroupState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    return {
        "ensure": state.ensure,
        "gid": str(state.metadata.gid),
        "members": ",".join(state.metadata.members),
    }
