"""A fake `Trees` in memory."""

from __future__ import annotations

import errno
import hashlib
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import Digest, Tree, TreeComparison, TreeEntry
from ccm_agent.testing.files import FakeEntry, FakeFiles


class FakeTrees:
    """
    A `Trees` that uses the entries of a `FakeFiles`.

    Args:
        files: The files in memory, which are changed. Errors in `files.refuses` also apply here.

    Attributes:
        written: The directory and the paths of the files for each `write` call.
    """

    def __init__(self, files: FakeFiles) -> None:
        self._files = files
        self.written: list[tuple[str, tuple[str, ...]]] = []

    async def read(self, path: str, limit_bytes: int) -> Tree:
        """See `Trees.read`."""
        node = self._files.nodes.get(path)
        if node is None:
            raise FileError(f"{path}: cannot be read: No such file or directory", errno=errno.ENOENT)
        if node.kind != "directory":
            return Tree(kind=node.kind)
        entries = [await self._entry(path, inside, limit_bytes) for inside in self._inside(path)]
        if sum(len(entry.content) for entry in entries) > limit_bytes:
            raise FileError(f"{path}: is larger than {limit_bytes} bytes, which is the limit here")
        return Tree(kind="directory", entries=tuple(entries))

    async def compare(
        self, path: str, wanted: Mapping[str, bytes | Digest], *, is_whole: bool = False
    ) -> TreeComparison:
        """See `Trees.compare`."""
        (top,) = await self._files.inspect([path], digest=False)
        if top.kind == "absent":
            return TreeComparison(exists=False, files=dict.fromkeys(wanted, "absent"))
        if top.kind != "directory":
            raise FileError(f"{path}: is not a directory, but must be one", errno=errno.ENOTDIR)
        files = {one: await self._state(path, one, content, is_whole) for one, content in wanted.items()}
        if top.link:
            return TreeComparison(exists=True, files=files, extra=("",))
        extra = [
            one
            for one in self._inside(path)
            if self._files.nodes[f"{path}/{one}"].kind != "directory" and one not in wanted
        ]
        return TreeComparison(exists=True, files=files, extra=tuple(sorted(extra)))

    async def write(
        self,
        path: str,
        directories: Sequence[str],
        files: Sequence[TreeEntry],
        *,
        keep: Collection[str] | None = None,
    ) -> tuple[str, ...]:
        """See `Trees.write`."""
        self.written.append((path, tuple(file.path for file in files)))
        removed = []
        await self._make(path)
        for one in directories:
            node = self._files.nodes.get(f"{path}/{one}")
            if keep is not None and node is not None and node.kind == "symlink":
                await self._files.remove(f"{path}/{one}")
                removed.append(one)
            await self._make(f"{path}/{one}")
        for file in files:
            owner, group = (str(number) if number >= 0 else "" for number in (file.uid, file.gid))
            await self._files.write(
                f"{path}/{file.path}", file.content, owner=owner, group=group, mode=file.mode
            )
        if keep is not None and self._files.nodes[path].kind == "directory":
            stays = {*keep, *(file.path for file in files)}
            for one in self._inside(path):
                if self._files.nodes[f"{path}/{one}"].kind != "directory" and one not in stays:
                    await self._files.remove(f"{path}/{one}")
                    removed.append(one)
        return tuple(removed)

    async def remove(self, path: str, files: Sequence[str]) -> None:
        """See `Trees.remove`."""
        failures = []
        above: set[str] = set()
        for one in files:
            try:
                await self._files.remove(f"{path}/{one}")
            except FileError as err:
                failures.append(err)
            while one := posixpath.dirname(one):
                above.add(one)
        for directory in [*sorted(above, key=lambda one: one.count("/"), reverse=True), ""]:
            full = f"{path}/{directory}".rstrip("/")
            node = self._files.nodes.get(full)
            if node is not None and node.kind == "directory" and not self._inside(full):
                await self._files.remove(full)
        if failures:
            more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            raise FileError(f"{failures[0].message}{more}", errno=failures[0].errno)

    def _inside(self, path: str) -> list[str]:
        """Return the paths below a directory, in the order in which a walk visits them."""
        start = f"{path}/"
        found = [one.removeprefix(start) for one in self._files.nodes if one.startswith(start)]
        return sorted(found, key=lambda one: one.split("/"))

    async def _entry(self, top: str, path: str, limit_bytes: int) -> TreeEntry:
        node = self._files.nodes[f"{top}/{path}"]
        (look,) = await self._files.inspect([f"{top}/{path}"], digest=False)
        content = await self._files.read(f"{top}/{path}", limit_bytes) if look.kind == "file" else b""
        mode = 0 if node.kind == "symlink" else node.mode
        return TreeEntry(path=path, kind=node.kind, content=content, mode=mode, uid=node.uid, gid=node.gid)

    async def _state(self, top: str, path: str, wanted: bytes | Digest, is_whole: bool) -> str:
        if is_whole and any(node.kind == "symlink" for node in self._way(top, path)):
            return "absent"
        (look,) = await self._files.inspect([f"{top}/{path}"])
        if look.kind == "absent":
            return "differs" if look.link else "absent"
        if look.kind != "file":
            raise FileError(f"{top}/{path}: this is a {look.kind}, not a file")
        if isinstance(wanted, Digest):
            is_same = look.sha256 == wanted.sha256 and wanted.size_bytes in (-1, look.size_bytes)
        else:
            is_same = look.sha256 == hashlib.sha256(wanted).hexdigest()
        return "same" if is_same else "differs"

    def _way(self, top: str, path: str) -> Iterator[FakeEntry]:
        while path := posixpath.dirname(path):
            node = self._files.nodes.get(f"{top}/{path}")
            if node is not None:
                yield node

    async def _make(self, path: str) -> None:
        (look,) = await self._files.inspect([path], digest=False)
        if look.kind == "absent" and not look.link:
            await self._files.set_attributes(path, mode=0o755, directory=True)
        elif look.kind != "directory":
            raise FileError(f"{path}: is not a directory, but must be one", errno=errno.ENOTDIR)
