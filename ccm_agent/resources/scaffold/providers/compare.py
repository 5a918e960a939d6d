"""Reads what a diff of a scaffold compares: the contents of its files before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.model.ports import Digest, Files
from ccm_agent.model.resource import ABSENT
from ccm_agent.model.resource_diff import FILES_LISTED, ContentInfo
from ccm_agent.resources.changes import FileChange, private_paths, read_for_diff

if TYPE_CHECKING:
    from ccm_agent.resources.scaffold.providers.plan import ScaffoldPlan

READ_BYTES = 8 << 20
"""Contents that are compared for one resource; further files are listed without lines."""

_MADE_BY_COMMAND = "its `post` command decides about the content"


async def compare_scaffold(files: Files, plan: ScaffoldPlan) -> list[FileChange]:
    """Return the files that would be written and removed, sorted; of those beyond FILES_LISTED only the paths."""
    wanted, look = plan.wanted, plan.look
    is_removal = wanted.ensure == ABSENT
    differing = {
        path for path, state in look.files.items() if (state != "absent" if is_removal else state != "same")
    }
    if not is_removal:
        differing |= plan.unknown
    purged = {path for path in look.extra if path} if wanted.purge and not is_removal else set()
    paths = {path: f"{wanted.name.rstrip('/')}/{path}" for path in sorted(differing | purged)}
    listed = list(paths.values())[:FILES_LISTED]
    private = await private_paths(files, listed) if listed else {}
    found: list[FileChange] = []
    left_bytes = READ_BYTES
    for path, full in paths.items():
        if full not in private:
            found.append(FileChange(path=full))  # it is only counted
            continue
        was_there = look.files.get(path) != "absent"
        stays = not is_removal and path not in purged
        after, why = _content(plan, path) if stays else (None, "")
        before = None
        if not why and left_bytes <= 0:
            why = "the files of this resource are too large"
        if was_there and not why:
            before, why = await read_for_diff(files, full)
        left_bytes -= len(before or b"") + len(after or b"")
        found.append(
            FileChange(
                path=full,
                before=None if why else before,
                after=None if why else after,
                is_private=private[full],
                why=why,
                was_there=was_there,
                stays=stays,
                old=_version(before) if was_there else None,
                new=_version(after) if stays else None,
            )
        )
    return found


def _content(plan: ScaffoldPlan, path: str) -> tuple[bytes | None, str]:
    content = plan.expected.get(path)
    if path in plan.unknown or content is None or isinstance(content, Digest):
        return None, _MADE_BY_COMMAND
    return content, ""


def _version(content: bytes | None) -> ContentInfo:
    from hashlib import sha256

    if content is None:
        return ContentInfo()
    return ContentInfo(size_bytes=len(content), sha256=sha256(content).hexdigest())
