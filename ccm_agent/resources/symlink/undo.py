"""Undoes the change of a symlink by restoring the earlier target and owners."""

from __future__ import annotations

from typing import Any

from ccm_agent.model.errors import InputError
from ccm_agent.model.records.undo import NOT_UTF8, EarlierState, Identity, KeepFile
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.symlink.model import SymlinkProperties, SymlinkState
from ccm_agent.resources.symlink.resource import check


async def earlier(
    wanted: SymlinkProperties, found: SymlinkState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`."""
    if found.ensure == ABSENT:
        return EarlierState(properties={"ensure": ABSENT})
    if found.ensure != PRESENT:
        return EarlierState(why_not=f"it was a {found.ensure}, which was not kept")
    properties: dict[str, Any] = {
        "ensure": PRESENT,
        "target": found.target,
        "owner": str(found.uid),
        "group": str(found.gid),
    }
    try:
        check(SymlinkProperties(name=wanted.name, **properties))
    except InputError as err:
        return EarlierState(why_not=f"its earlier target cannot be restored: {err.message}")
    if NOT_UTF8 in found.target:
        return EarlierState(why_not="its earlier target is not UTF-8 text")
    return EarlierState(properties=properties)


def identify(state: SymlinkState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    return {
        "ensure": state.ensure,
        "target": state.target,
        "owner": str(state.uid),
        "group": str(state.gid),
    }
