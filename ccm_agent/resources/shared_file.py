"""A text file in which each resource manages individual lines. The other lines, the owner and the mode do not change."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import FileInfo, Files, Locks

LIMIT_BYTES = 4 << 20
"""The maximum size of such a file."""
MODE = 0o644
_DIRECTORY_MODE = 0o755


class SharedFile:
    """
    Reads and edits files whose lines belong to several resources.

    Args:
        files: The files of the host.
        locks: Provides the lock that is held from reading to writing, so that two concurrent runs do not lose lines.
        lock: The name of the lock.
        removes_empty: Whether to remove a file that has no lines left.
    """

    def __init__(self, files: Files, locks: Locks, lock: str, *, removes_empty: bool = True) -> None:
        self._files = files
        self._locks = locks
        self._lock = lock
        self._removes_empty = removes_empty

    async def read(self, path: str) -> list[str]:
        """
        Return the lines, as text that can be published. An empty list if the file does not exist.

        Bytes that are not UTF-8 are shown as U+FFFD. A later `edit` preserves them.

        Raises:
            FileError: The file cannot be read, is too large, or is not a regular file.
        """
        return await self._lines(await self._inspect(path), errors="replace")

    async def edit(self, path: str, change: Callable[[Sequence[str]], list[str]]) -> None:
        """
        Change lines and write the file atomically. A missing file and its directory are created.

        Raises:
            FileError: The file cannot be read or written. It was not changed.
        """
        async with self._locks.hold(self._lock):
            look = await self._inspect(path)
            before = await self._lines(look, errors="surrogateescape")
            lines = change(before)
            if lines == before:
                return
            if self._removes_empty and not any(line.strip() for line in lines):
                await self._files.remove(path)
                return
            if look.kind == "absent":
                await self._make_directory(posixpath.dirname(path))
            content = "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")
            owner, group, mode = _attributes(look)
            await self._files.write(path, content, owner=owner, group=group, mode=mode)

    async def _inspect(self, path: str) -> FileInfo:
        (look,) = await self._files.inspect([path], digest=False)
        if look.link:
            raise FileError(
                f"{path} is a symlink to {look.link}, and would be replaced by a file; name the file that it points to"
            )
        if look.kind not in ("file", "absent"):
            raise FileError(f"{path} is not a regular file: {look.error or f'it is a {look.kind}'}")
        return look

    async def _lines(self, look: FileInfo, *, errors: str) -> list[str]:
        if look.kind == "absent":
            return []
        content = await self._files.read(look.path, LIMIT_BYTES)
        # splitlines() is not used, because it also splits at characters that the readers of these files treat as part of a line
        lines = content.decode(errors=errors).split("\n")
        return lines[:-1] if lines[-1] == "" else lines

    async def _make_directory(self, path: str) -> None:
        (look,) = await self._files.inspect([path], digest=False)
        if look.kind == "absent":
            await self._files.set_attributes(path, mode=_DIRECTORY_MODE, directory=True)


def _attributes(look: FileInfo) -> tuple[str, str, int]:
    """Return the owner, group and mode of the file that is written."""
    if look.kind == "absent":
        return "", "", MODE
    return str(look.uid), str(look.gid), look.mode & 0o777
