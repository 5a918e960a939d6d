"""Undoes the change of a mount by restoring the earlier entry, and whether the file system was mounted."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile, checked_state
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.mount.model import ABSENT, MOUNTED, UNMOUNTED, MountProperties, MountState
from ccm_agent.resources.mount.resource import check


async def earlier(
    wanted: MountProperties, found: MountState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`."""
    if found.entry is None:
        if found.is_mounted:
            return EarlierState(why_not="it was mounted without an entry in /etc/fstab")
        return EarlierState(properties={"ensure": ABSENT})
    properties: dict[str, Any] = {
        "ensure": MOUNTED if found.is_mounted else UNMOUNTED,
        **msgspec.to_builtins(found.entry),
    }
    back = MountProperties(name=wanted.name, **properties)
    return checked_state("its earlier entry", properties, partial(check, back))


def identify(state: MountState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    entry = state.entry
    line = f"{entry.device} {entry.fstype} {entry.options} {entry.dump} {entry.passno}" if entry else ""
    return {"entry": line, "mounted": "yes" if state.is_mounted else "no"}
