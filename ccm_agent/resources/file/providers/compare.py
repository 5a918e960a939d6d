"""Reads the contents for a diff of a file, before and after the change."""

from __future__ import annotations

from hashlib import sha256

from ccm_agent.model.ports import Files
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import ContentInfo
from ccm_agent.resources.changes import COMPARED_BYTES, FileChange, private_paths, read_for_diff
from ccm_agent.resources.file.model import FileProperties, FileState

TOO_LARGE = f"contents larger than {COMPARED_BYTES >> 20} MiB are not compared line by line"


async def compare_file(
    files: Files, wanted: FileProperties, found: FileState, source: str
) -> list[FileChange]:
    """
    Return the contents of a file before and after the change. Empty if both are empty.

    Args:
        files: The files of the host.
        wanted, found: The resource, and its state before the change.
        source: Absolute path of the local source; "" if there is none.
    """
    stays = wanted.ensure == PRESENT
    before: bytes | None = None
    after: bytes | None = None
    why = ""
    if found.ensure == PRESENT:
        before, why = await read_for_diff(files, wanted.name)
        if found.metadata.size > COMPARED_BYTES:
            why = TOO_LARGE
    if stays and not why:
        after, why = await _wanted_content(files, wanted, source)
    if not why and not before and not after:
        return []
    mode = wanted.mode_bits if stays else None
    return [
        FileChange(
            path=wanted.name,
            before=None if why else before,
            after=None if why else after,
            is_private=(await private_paths(files, [wanted.name], mode))[wanted.name],
            why=why,
            was_there=found.ensure != ABSENT,
            stays=stays,
            old=_old(found, before),
            new=_new(wanted, found, after) if stays else None,
        )
    ]


async def _wanted_content(files: Files, wanted: FileProperties, source: str) -> tuple[bytes | None, str]:
    if wanted.is_url:
        return None, "the source is downloaded only during an apply"
    if source:
        return await read_for_diff(files, source)
    content = (wanted.content or "").encode()
    return (content, "") if len(content) <= COMPARED_BYTES else (None, TOO_LARGE)


def _old(found: FileState, content: bytes | None) -> ContentInfo | None:
    if found.ensure == ABSENT:
        return None
    return ContentInfo(size_bytes=found.metadata.size, sha256=found.metadata.checksum or _digest(content))


def _new(wanted: FileProperties, found: FileState, content: bytes | None) -> ContentInfo:
    if found.source:
        return ContentInfo(size_bytes=found.source.size, sha256=found.source.checksum)
    content = (wanted.content or "").encode() if content is None else content
    return ContentInfo(size_bytes=len(content), sha256=_digest(content))


def _digest(content: bytes | None) -> str:
    return sha256(content).hexdigest() if content is not None else ""
