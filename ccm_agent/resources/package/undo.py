"""Undoes the change of a package by restoring the previously installed version."""

from __future__ import annotations

from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile
from ccm_agent.model.resource import ABSENT
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.package.model import PackageProperties, PackageState


async def earlier(
    wanted: PackageProperties, found: PackageState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`."""
    if found.ensure == ABSENT:
        return EarlierState(properties={"ensure": ABSENT})
    epoch = _epoch(found)
    # without an epoch, dnf may select a version with a higher epoch
    version = f"{epoch}:{found.metadata.version}" if epoch else found.metadata.version
    return EarlierState(properties={"ensure": version})


def identify(state: PackageState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    if state.ensure == ABSENT:
        return {"version": ABSENT}
    return {"version": state.metadata.version, "epoch": _epoch(state)}


def _epoch(state: PackageState) -> str:
    return str(state.metadata.extended.get("epoch", ""))
