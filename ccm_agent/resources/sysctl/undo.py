"""Undoes the change of a kernel parameter by restoring the earlier line in the file and the earlier live value."""

from __future__ import annotations

from functools import partial
from typing import Any

from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile, checked_state
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.sysctl.model import SysctlProperties, SysctlState, normal
from ccm_agent.resources.sysctl.resource import check


async def earlier(
    wanted: SysctlProperties, found: SysctlState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`."""
    properties: dict[str, Any] = {"file": wanted.file, "ignore_missing": True}
    if found.ensure == ABSENT:
        properties["ensure"] = ABSENT
    else:
        properties |= {"ensure": PRESENT, "value": found.value}
    live = normal(found.live_value)
    if wanted.wanted_live and live:
        properties["live_value"] = live
    else:
        properties["apply"] = False
    back = SysctlProperties(name=wanted.name, **properties)
    return checked_state("its earlier line", properties, partial(check, back))


def identify(state: SysctlState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    return {"ensure": state.ensure, "value": normal(state.value), "live_value": normal(state.live_value)}
