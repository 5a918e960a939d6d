"""Undoes the change of a service by restoring whether it was running, and whether it was enabled at boot."""

from __future__ import annotations

from typing import Any

from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.service.model import ServiceProperties, ServiceState

RESTARTED = "it was restarted; restart it again to load its earlier files"


async def earlier(
    wanted: ServiceProperties, found: ServiceState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`."""
    if decision.refreshed:
        # an undo handles changes in reverse order, so it reaches the service before the earlier files are restored
        return EarlierState(why_not=RESTARTED)
    properties: dict[str, Any] = {"ensure": found.ensure}
    if wanted.enable is not None:
        properties["enable"] = found.metadata.enabled
    return EarlierState(properties=properties)


def identify(state: ServiceState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    return {"ensure": state.ensure, "enabled": str(state.metadata.enabled).lower()}
