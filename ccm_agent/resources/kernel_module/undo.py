"""Undoes the change of a kernel module by restoring its files, and whether it was loaded."""

from __future__ import annotations

from functools import partial
from typing import Any

from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile, checked_state
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.kernel_module.model import (
    MODE,
    KernelModuleProperties,
    KernelModuleState,
    ModuleFile,
)
from ccm_agent.resources.kernel_module.resource import check

FOREIGN = "its file differed from what this type writes"


async def earlier(
    wanted: KernelModuleProperties, found: KernelModuleState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`. Files are restored only if they can be reproduced byte for byte."""
    is_usual = all(_is_usual(one) for one in (found.boot, found.settings))
    if found.is_foreign or not is_usual or (found.blacklisted and found.boot.kind != "absent"):
        return EarlierState(why_not=FOREIGN)
    properties = describe(found)
    if not wanted.apply or found.built_in:
        properties["apply"] = False
    else:
        properties["loaded"] = found.loaded
    back = KernelModuleProperties(name=wanted.name, **properties)
    return checked_state("its earlier file", properties, partial(check, back))


def describe(found: KernelModuleState) -> dict[str, Any]:
    """Return the properties that a manifest would need to produce the current files."""
    if found.blacklisted:
        return {"ensure": ABSENT, "blacklisted": True}
    if not found.options and not found.persistent:
        return {"ensure": ABSENT}
    options = {"options": dict(found.options)} if found.options else {}
    return {"ensure": PRESENT, **options, **({} if found.persistent else {"persistent": False})}


def identify(state: KernelModuleState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    return {
        "loaded": str(state.loaded).lower(),
        "boot": _identity(state.boot),
        "settings": _identity(state.settings),
    }


def _is_usual(file: ModuleFile) -> bool:
    return file.kind == "absent" or (file.kind, file.mode, file.uid) == ("file", f"{MODE:04o}", 0)


def _identity(file: ModuleFile) -> str:
    return f"{file.kind} {file.checksum} {file.mode} {file.uid}"
