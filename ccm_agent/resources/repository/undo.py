"""Undoes the change of a repository by restoring the earlier repository and key."""

from __future__ import annotations

from functools import partial
from typing import Any

from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile, checked_state
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.repository.checks import check
from ccm_agent.resources.repository.formats import FORMATS
from ccm_agent.resources.repository.model import RepositoryContent, RepositoryProperties, RepositoryState

FOREIGN = "its files differed from what this type writes"


async def earlier(
    wanted: RepositoryProperties, found: RepositoryState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`. Files are restored only if they can be reproduced byte for byte."""
    replaces_key = bool(wanted.key) and found.key_file.kind != "absent" and not found.uses_key
    if replaces_key and found.key_file.checksum != found.desired_key_checksum:
        return EarlierState(why_not=FOREIGN)
    if found.ensure == ABSENT:
        return EarlierState(properties={"ensure": ABSENT})
    described = described_properties(found)
    if described is None:
        return EarlierState(why_not=FOREIGN)
    properties = {**described, "ensure": PRESENT, "refresh": wanted.refresh}
    back = RepositoryProperties(name=wanted.name, **properties)
    return checked_state("its earlier files", properties, partial(check, back))


def described_properties(found: RepositoryState) -> dict[str, Any] | None:
    """Return the properties that produce the repository's current files; None if this type did not write the files."""
    content = found.content
    if content is None or not found.file.is_public:
        return None
    properties = _properties(content)
    if content.signed_by == FORMATS[found.manager].key_path(found.name):
        if not found.key or not found.key_file.is_public:
            return None
        properties |= {"key": found.key, "key_fingerprint": found.key_fingerprint}
        del properties["signed_by"]
    return properties


def _properties(content: RepositoryContent) -> dict[str, Any]:
    given = {name: getattr(content, name) for name in content.__struct_fields__}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in given.items()
        if name == "enabled" or value
    }


def identify(state: RepositoryState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    file, key = state.file, state.key_file
    return {
        "kind": file.kind,
        "content": file.checksum,
        "mode": file.mode,
        "owner": str(file.uid),
        "key": key.kind,
        "key_content": key.checksum,
        "key_mode": key.mode,
        "key_owner": str(key.uid),
    }
