"""Inspect files, directories and symlinks."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from ccm_agent.health.goss.found import GossQuery, NoValue
from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import Command, FileInfo

CONTENT_LIMIT_BYTES = 64 << 20
"""The content of a larger file is not read."""
SHA256_LIMIT_BYTES = 1 << 40
"""No digest is computed for a file that is larger than this, or very sparse. The attribute `size` works for any file."""


async def look(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`. Symlinks are followed only for content and checksums."""
    path = look.subject
    if not path.startswith("/"):
        raise FileError(f"the path {path} is not absolute: begin it with a slash")
    found = (await look.host.files.inspect([path], digest=False, follow=False))[0]
    if found.kind == "unreadable":
        raise FileError(f"{path}: {found.error}")
    if found.kind == "absent" and not found.link:
        absent = NoValue("there is no such file")
        return {**dict.fromkeys(look.asked, absent), "exists": False}
    values: dict[str, Any] = {
        "exists": True,
        "mode": f"{found.mode & 0o7777:04o}",
        "owner": found.owner,
        "uid": found.uid,
        "group": found.group,
        "gid": found.gid,
        "linked-to": found.link or NoValue("this is not a symlink"),
        "filetype": await _kind(look, found),
        "size": found.size_bytes,
    }
    if {"contents", "md5", "sha512"} & set(look.asked):
        values |= await _content(look, path)
    if "sha256" in look.asked:
        target = (await look.host.files.inspect([path], digest={path: [SHA256_LIMIT_BYTES]}))[0]
        why = target.undigested or target.error or "this is not a regular file"
        values["sha256"] = target.sha256 or NoValue(why)
    return values


async def _kind(look: GossQuery, found: FileInfo) -> Any:
    if found.link:
        return "symlink"
    if found.kind != "other" or "filetype" not in look.asked:
        return found.kind

    # the files port does not distinguish the kinds of special files
    done = await look.host.runner.run(
        Command(argv=("stat", "--printf=%F", "--", look.subject), time_limit_s=10)
    )
    words = {
        "socket": "socket",
        "fifo": "pipe",
        "character special file": "character-device",
        "block special file": "block-device",
    }
    return words.get(done.stdout.decode(errors="replace"), NoValue("its kind is unknown"))


async def _content(look: GossQuery, path: str) -> dict[str, Any]:
    try:
        content = await look.host.files.read(path, CONTENT_LIMIT_BYTES)
    except FileError as err:
        return dict.fromkeys(("contents", "md5", "sha512"), NoValue(err.message))
    return {
        "contents": content.decode(errors="replace"),
        "md5": await asyncio.to_thread(_hex, "md5", content) if "md5" in look.asked else "",
        "sha512": await asyncio.to_thread(_hex, "sha512", content) if "sha512" in look.asked else "",
    }


def _hex(algorithm: str, content: bytes) -> str:
    # goss offers md5 to recognize a file, not to verify it
    return hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
