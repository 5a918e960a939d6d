"""
Checks symlinks in the paths that podman opens as root. Another user could redirect their own symlink after the policy check.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from ccm_agent.model.links import SYMLINKS_ON_THE_WAY
from ccm_agent.model.ports import FileInfo, Files

_WRITABLE = 0o022


async def find_unsafe_link(files: Files, paths: Sequence[str]) -> str:
    """
    Return the first symlink in the paths that a user other than root may have created or can replace; "" if there is none.

    Args:
        files: Inspects the paths.
        paths: Absolute paths.
    """
    todo = [posixpath.normpath(path) for path in paths]
    for _ in range(SYMLINKS_ON_THE_WAY):
        if not todo:
            return ""
        looks = {path: _prefixes(path) for path in todo}
        parts = list(dict.fromkeys(part for prefixes in looks.values() for part in prefixes))
        found = {one.path: one for one in await files.inspect(parts, digest=False, follow=False)}
        followed = []
        for path, prefixes in looks.items():
            link = next((found[part] for part in prefixes if found[part].kind == "symlink"), None)
            if link is None:
                continue
            folder = posixpath.dirname(link.path)
            if link.uid != 0 or not _is_roots(found[folder]):
                return link.path
            target = posixpath.join(folder, link.link, path[len(link.path) :].lstrip("/"))
            followed.append(posixpath.normpath(target))
        todo = followed
    return todo[0] if todo else ""


def _prefixes(path: str) -> list[str]:
    parts = path.strip("/").split("/")
    return ["/", *("/" + "/".join(parts[: end + 1]) for end in range(len(parts)))]


def _is_roots(folder: FileInfo) -> bool:
    return folder.uid == 0 and not folder.mode & _WRITABLE
