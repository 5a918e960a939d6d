"""Reads the contents for a diff of a directory: its files before and after a change."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ccm_agent.model.ports import Files
from ccm_agent.model.resource_diff import FILES_LISTED, ContentInfo
from ccm_agent.resources.changes import FileChange, private_paths, read_for_diff
from ccm_agent.templates.values import clean_text

READ_BYTES = 8 << 20
"""The maximum size of the compared contents of one resource, in bytes. Further files are listed without lines."""


class ChangedFile(Struct, frozen=True, kw_only=True):
    """
    A file that will change.

    Attributes:
        path: The full path of the file.
        was_there, stays: Whether the file exists before and after the change.
        content: The new content of the file. None if it is in the file `source`.
        source: The path of a file with the new content. "" if there is none.
        why: The reason why the contents are not compared. "" if they are.
    """

    path: str
    was_there: bool = True
    stays: bool = True
    content: bytes | None = None
    source: str = ""
    why: str = ""


async def compare_files(
    files: Files, changed: Sequence[ChangedFile], mode: int | None = None
) -> list[FileChange]:
    """
    Return the changes of the contents. For files beyond FILES_LISTED, only the paths are returned.

    Args:
        files: The files of the host.
        changed: The files, sorted.
        mode: The mode after the change. None if the mode is unchanged or the default is used.
    """
    listed = [one.path for one in changed[:FILES_LISTED]]
    private = await private_paths(files, listed, mode) if listed else {}
    found = [
        FileChange(path=clean_text(one.path)) for one in changed[FILES_LISTED:]
    ]  # these files are only counted
    compared: list[FileChange] = []
    left_bytes = READ_BYTES
    for one in changed[:FILES_LISTED]:
        before, after, why = await _contents(files, one, left_bytes)
        left_bytes -= len(before or b"") + len(after or b"")
        compared.append(
            FileChange(
                path=clean_text(one.path),
                before=None if why else before,
                after=None if why else after,
                is_private=private[one.path],
                why=why,
                was_there=one.was_there,
                stays=one.stays,
                old=_version(before) if one.was_there else None,
                new=_version(after) if one.stays else None,
            )
        )
    return compared + found


async def _contents(
    files: Files, one: ChangedFile, left_bytes: int
) -> tuple[bytes | None, bytes | None, str]:
    """Return the content before and after the change, and the reason if they are not compared."""
    before, after, why = None, one.content, one.why
    if not why and left_bytes <= 0:
        why = "the files of this resource are too large"
    if one.was_there and not why:
        before, why = await read_for_diff(files, one.path)
    if one.source and not why:
        after, why = await read_for_diff(files, one.source)
    return before, after, why


def _version(content: bytes | None) -> ContentInfo:
    from hashlib import sha256

    if content is None:
        return ContentInfo()
    return ContentInfo(size_bytes=len(content), sha256=sha256(content).hexdigest())
