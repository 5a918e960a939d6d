"""Undoes the change of a host by restoring the earlier addresses and aliases."""

from __future__ import annotations

from functools import partial
from typing import Any

from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile, checked_state
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.host.model import HostProperties, HostState
from ccm_agent.resources.host.resource import check


async def earlier(
    wanted: HostProperties, found: HostState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`."""
    if not found.entries:
        return EarlierState(properties={"ensure": ABSENT})
    aliases = found.entries[0].aliases
    if any(one.aliases != aliases for one in found.entries):
        return EarlierState(why_not="its lines had different aliases")
    properties: dict[str, Any] = {
        "ensure": PRESENT,
        "address": found.addresses,
        "aliases": list(aliases),
    }
    back = HostProperties(name=wanted.name, **properties)
    return checked_state("its earlier entry", properties, partial(check, back))


def identify(state: HostState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    lines = (" ".join((one.address, *one.aliases)) for one in state.entries)
    return {"ensure": state.ensure, "lines": "; ".join(lines)}
