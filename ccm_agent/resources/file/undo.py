"""Undoes the change of a file or directory."""

from __future__ import annotations

from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile, was_symlink
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.file.model import DIRECTORY, FileProperties, FileState


async def earlier(
    wanted: FileProperties, found: FileState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`."""
    link = found.metadata.link
    if link:
        return was_symlink(link)
    if found.ensure == ABSENT:
        return EarlierState(properties={"ensure": ABSENT})
    if found.ensure == DIRECTORY and wanted.ensure == ABSENT and wanted.force:
        return EarlierState(why_not="it was a directory, and its content was not kept")
    kept = await keep(wanted.name, with_content=decision.contents is not None)
    return kept.as_state()


def identify(state: FileState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    metadata = state.metadata
    if state.ensure == ABSENT:
        return {"ensure": ABSENT, "link": metadata.link}
    content: str | None = metadata.checksum
    if state.ensure == PRESENT and not content:
        content = None  # the content is unreadable or too large to be read
    return {
        "ensure": state.ensure,
        "link": metadata.link,
        "content": content,
        "owner": str(metadata.uid),
        "group": str(metadata.gid),
        "mode": metadata.mode,
    }
