"""Undoes the change of a setting by restoring the earlier value."""

from __future__ import annotations

from functools import partial
from typing import Any

from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile, checked_state
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.system.model import SystemProperties, SystemState
from ccm_agent.resources.system.resource import check


async def earlier(
    wanted: SystemProperties, found: SystemState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`."""
    if found.differing:
        return EarlierState(why_not=f"it had different values: {found.differing}")
    first = next(iter(found.values.values()))
    properties: dict[str, Any] = {"ensure": PRESENT, "value": first} if first else {"ensure": ABSENT}
    back = SystemProperties(name=wanted.name, **properties)
    return checked_state("its earlier value", properties, partial(check, back))


def identify(state: SystemState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    return dict(state.values)
