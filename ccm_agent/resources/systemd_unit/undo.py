"""Undoes the change of a unit by restoring the earlier file."""

from __future__ import annotations

from typing import Any

from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.systemd_unit.model import MODE, SystemdUnitProperties, SystemdUnitState

FOREIGN = "its file did not belong to root with mode 0644"


async def earlier(
    wanted: SystemdUnitProperties, found: SystemdUnitState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`."""
    properties: dict[str, Any] = {"unit": wanted.unit, "drop_in": wanted.drop_in}
    if found.kind == "absent":
        return EarlierState(properties={**properties, "ensure": ABSENT})
    if (found.mode, found.uid, found.gid) != (f"{MODE:04o}", 0, 0):
        return EarlierState(why_not=FOREIGN)
    kept = await keep(wanted.path, with_content=True)
    if kept.why_not:
        return EarlierState(why_not=kept.why_not)
    return EarlierState(
        properties={**properties, "ensure": PRESENT, "source": kept.sha256},
        content=kept.sha256,
        size_bytes=kept.size_bytes,
        path=wanted.path,
    )


def identify(state: SystemdUnitState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    return {
        "kind": state.kind,
        "content": state.checksum,
        "mode": state.mode,
        "owner": str(state.uid),
        "group": str(state.gid),
    }
