"""Compares the files of a repository before and after a change, for a diff."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from ccm_agent.model.ports import Files
from ccm_agent.model.resource import PRESENT
from ccm_agent.model.resource_diff import ContentInfo
from ccm_agent.resources.changes import FileChange, private_paths, read_for_diff
from ccm_agent.resources.repository.model import (
    MODE,
    RepositoryFile,
    RepositoryProperties,
    RepositoryState,
)
from ccm_agent.resources.secret_signs import find_sign

_WHY = "keys are not compared line by line"


async def compare_files(
    files: Files,
    wanted: RepositoryProperties,
    found: RepositoryState,
    after: bytes | None,
    *,
    drops_key: bool,
) -> list[FileChange]:
    """
    Return the changes of the files.

    Args:
        files: The files of the host.
        wanted: The repository.
        found: The state of the repository.
        after: The content of the repository's file after the change. None if the file is removed.
        drops_key: Whether the key is removed.
    """
    changes = []
    if after is None or found.file.checksum != hashlib.sha256(after).hexdigest():
        changes.append(await _file_change(files, found.file, after))
    changes += _key_changes(wanted, found, drops_key=drops_key)
    return changes


async def _file_change(files: Files, file: RepositoryFile, after: bytes | None) -> FileChange:
    before, why = await read_for_diff(files, file.path) if file.kind == "file" else (None, "")
    private = await private_paths(files, [file.path], MODE if after is not None else None)
    # another tool may have written a password to the file
    has_secret = before is not None and find_sign(before, int(file.mode, 8)) != ""
    return FileChange(
        path=file.path,
        before=before,
        after=None if why else after,
        is_private=private[file.path] or has_secret,
        why=why,
        was_there=file.kind == "file",
        stays=after is not None,
        old=_info(file),
    )


def _key_changes(
    wanted: RepositoryProperties, found: RepositoryState, *, drops_key: bool
) -> Iterator[FileChange]:
    key = found.key_file
    stays = wanted.ensure == PRESENT and wanted.key != ""
    is_same = stays and key.checksum != "" and key.checksum == found.desired_key_checksum
    if not is_same and (stays or (drops_key and key.kind == "file")):
        yield FileChange(
            path=key.path,
            why=_WHY,
            was_there=key.kind == "file",
            stays=stays,
            old=_info(key),
            new=ContentInfo(sha256=found.desired_key_checksum) if stays else None,
        )


def _info(file: RepositoryFile) -> ContentInfo | None:
    return ContentInfo(size_bytes=file.size, sha256=file.checksum) if file.kind == "file" else None
