"""What undoes the change of a file or directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.model.records.undo import EarlierState, KeepFile
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.file.model import DIRECTORY, FileProperties, FileState

if TYPE_CHECKING:
    from ccm_agent.model.records.undo import Identity
    from ccm_agent.resources.contract import Decision


async def earlier(
    wanted: FileProperties, found: FileState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`."""
    link = found.metadata.link
    if link:
        return EarlierState(why_not=f"it was a symlink to {link}, and symlinks are not restored")
    if found.ensure == ABSENT:
        return EarlierState(properties={"ensure": ABSENT})
    if found.ensure == DIRECTORY and wanted.ensure == ABSENT and wanted.force:
        return EarlierState(why_not="it was a directory, and what was in it is not kept")
    kept = await keep(wanted.name, with_content=decision.contents is not None)
    if kept.why_not:
        return EarlierState(why_not=kept.why_not)
    properties = {"owner": kept.owner, "group": kept.group, "mode": kept.mode}
    if kept.is_directory:
        return EarlierState(properties={"ensure": DIRECTORY, **properties})
    properties["ensure"] = PRESENT
    if kept.sha256:
        properties |= {"source": kept.sha256, "checksum": kept.sha256}
    return EarlierState(properties=properties, content=kept.sha256, size_bytes=kept.size_bytes)


def identify(state: FileState) -> Identity:
    """Return what a state is recognized by; see `UndoRules`."""
    metadata = state.metadata
    if state.ensure == ABSENT:
        return {"ensure": ABSENT, "link": metadata.link}
    content: str | None = metadata.checksum
    if state.ensure == PRESENT and not content:
        content = None  # too large to be read, or unreadable
    return {
        "ensure": state.ensure,
        "link": metadata.link,
        "content": content,
        "owner": str(metadata.uid),
        "group": str(metadata.gid),
        "mode": metadata.mode,
    }
