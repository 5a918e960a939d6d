"""Undoes the change of a directory, with a resource for each changed entry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec.structs import replace

from ccm_agent.model.ports import TreeChange
from ccm_agent.model.records.undo import (
    FILE_LIMIT_BYTES,
    SPECIAL_BITS,
    EarlierState,
    Identity,
    KeepFile,
    was_symlink,
)
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.checks import why_no_path
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.directory.model import DirectoryProperties, DirectoryState
from ccm_agent.templates.values import clean_text

ENTRIES_KEPT = 1000
"""
The maximum number of entries that are kept for a change. Each entry takes two records of the run and one resource of its undo.
"""


async def earlier(
    wanted: DirectoryProperties, found: DirectoryState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the earlier state of the directory as a whole. This state is not kept; see `UndoRules.parts`."""
    return EarlierState(why_not="its entries are restored one by one")


def identify(state: DirectoryState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    metadata = state.metadata
    return {
        "ensure": state.ensure,
        "owner": metadata.owner,
        "group": metadata.group,
        "mode": metadata.mode,
        "entries": str(metadata.entries),
    }


def why_lost(change: TreeChange) -> str:
    """Return the reason why the earlier state of an entry cannot be restored, based on its attributes; "" if it can."""
    if change.action == "create":
        return ""
    if why_no_path(clean_text(change.path)) or "\ufffd" in clean_text(change.path):
        return "its name is not printable UTF-8"
    if change.kind == "other":
        return "it is a FIFO, socket or device"
    if change.kind == "symlink":
        if change.action == "write":
            return "symlinks that a file replaces are not restored"
        return why_no_path(change.link) and "its target is not printable UTF-8"
    if change.mode & SPECIAL_BITS:
        return "setuid, setgid and sticky bits are not restored"
    if change.kind == "file" and change.action != "set" and change.size_bytes > FILE_LIMIT_BYTES:
        return f"it is larger than {FILE_LIMIT_BYTES >> 20} MiB"
    return ""


def too_many(count: int) -> str:
    """Return the reason why so many changes are not kept; "" if they are kept."""
    return f"more than {ENTRIES_KEPT} entries change at once" if count > ENTRIES_KEPT else ""


async def keep_changes(
    top: str, changes: Sequence[TreeChange], keep: KeepFile
) -> AsyncIterator[EarlierState]:
    """
    Keep the entries that change, and yield the resources that restore them; see `UndoRules.parts`.

    The changes are undone in reverse order. Created entries are removed first, the content before its directory. Then removed
    entries are restored, directories first. Contents and attributes are restored last.
    """
    if why := too_many(len(changes)):
        yield EarlierState(name=top, why_not=f"it was not kept: {why}")
        return
    created = [one for one in changes if one.action == "create"]
    removed = [one for one in changes if one.action == "remove"]
    other = [one for one in changes if one.action not in ("create", "remove")]
    for one in (*other, *removed, *created):
        yield await _earlier(top, one, keep)


async def _earlier(top: str, change: TreeChange, keep: KeepFile) -> EarlierState:
    path = f"{top.rstrip('/')}/{change.path}" if change.path else top
    if change.action == "create":
        name = clean_text(path)
        if name != path:
            return EarlierState(type="file", name=name, why_not="its name is not UTF-8")
        return EarlierState(type="file", name=path, properties={"ensure": ABSENT})
    kind = "symlink" if change.kind == "symlink" and change.action == "remove" else "file"
    if change.kind == "symlink" and change.action == "write":
        return replace(was_symlink(clean_text(change.link)), type=kind, name=clean_text(path))
    if why := why_lost(change):
        return EarlierState(type=kind, name=clean_text(path), why_not=why)
    if kind == "symlink":
        properties: dict[str, Any] = {
            "ensure": PRESENT,
            "target": change.link,
            "owner": str(change.uid),
            "group": str(change.gid),
        }
        return EarlierState(type=kind, name=path, properties=properties)
    kept = await keep(path, with_content=change.kind == "file" and change.action != "set")
    return replace(kept.as_state(), type=kind, name=path)
