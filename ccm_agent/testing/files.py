"""A fake `Files` in memory."""

from __future__ import annotations

import errno
import hashlib
import posixpath
from collections.abc import Sequence

from msgspec import Struct

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import DIGEST_BYTES, SMALL_BYTES, ContentRef, DigestLimits, FileInfo

SYMLINKS_ON_THE_WAY = 40
KIND_NAMES = {"directory": "directory", "other": "FIFO", "symlink": "symlink"}


class FakeEntry(Struct, kw_only=True):
    """
    An entry of the file system.

    Attributes:
        kind: "file", "directory", "symlink" or "other".
        content: The content of a file.
        link: The target of a symlink.
        mode, uid, gid, mtime_ns: The values that stat(2) returns.
    """

    kind: str
    content: bytes = b""
    link: str = ""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0


class FakeFiles:
    """
    A `Files` in memory. Operations are performed as root.

    Attributes:
        nodes: The entries by absolute path. The root directory always exists.
        users, groups: IDs by name.
        refuses: Errors by path. Changing one of these paths raises its error.
        looked_at: The paths of each `inspect` call.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, FakeEntry] = {"/": FakeEntry(kind="directory", mode=0o755)}
        self.users = {"root": 0, "daemon": 1, "nobody": 65534}
        self.groups = {"root": 0, "daemon": 1, "nogroup": 65534}
        self.refuses: dict[str, str] = {}
        self.looked_at: list[tuple[str, ...]] = []
        self._time_ns = 1_767_268_800_000_000_000

    def put(
        self, path: str, content: str | bytes = b"", *, mode: int = 0o644, uid: int = 0, gid: int = 0
    ) -> None:
        """Create a file, and its parent directories."""
        data = content.encode() if isinstance(content, str) else content
        self._add(path, FakeEntry(kind="file", content=data, mode=mode, uid=uid, gid=gid))

    def put_directory(self, path: str, *, mode: int = 0o755, uid: int = 0, gid: int = 0) -> None:
        """Create a directory, and its parent directories."""
        self._add(path, FakeEntry(kind="directory", mode=mode, uid=uid, gid=gid))

    def put_symlink(self, path: str, target: str) -> None:
        """Create a symlink, and its parent directories."""
        self._add(path, FakeEntry(kind="symlink", link=target, mode=0o777))

    def put_fifo(self, path: str) -> None:
        """Create a FIFO, and its parent directories."""
        self._add(path, FakeEntry(kind="other"))

    def _add(self, path: str, node: FakeEntry) -> None:
        parent = posixpath.dirname(path)
        if parent not in self.nodes:
            self.put_directory(parent)
        self._time_ns += 1_000_000_000
        node.mtime_ns = self._time_ns
        self.nodes[path] = node

    async def inspect(
        self, paths: Sequence[str], *, digest: bool | DigestLimits = True, follow: bool = True
    ) -> list[FileInfo]:
        """See `Files.inspect`."""
        self.looked_at.append(tuple(paths))
        return [self._look(path, self._limit(digest, path), follow) for path in paths]

    async def read(self, path: str, limit_bytes: int) -> bytes:
        """See `Files.read`."""
        content = self._regular(path).content
        if len(content) > limit_bytes:
            raise FileError(f"{path}: is larger than {limit_bytes} bytes, which is the limit here")
        return content

    async def write(
        self,
        path: str,
        content: bytes | ContentRef,
        *,
        owner: str = "",
        group: str = "",
        mode: int,
        then_inspect: DigestLimits | None = None,
    ) -> list[FileInfo]:
        """See `Files.write`."""
        uid, gid = await self.ids(owner, group)
        data = content if isinstance(content, bytes) else self._regular(content.path).content
        place = self._replaceable(path)
        self._add(place, FakeEntry(kind="file", content=data, mode=mode, uid=max(uid, 0), gid=max(gid, 0)))
        return await self.inspect(list(then_inspect), digest=then_inspect) if then_inspect else []

    async def replace(self, staged: str, path: str, *, owner: str = "", group: str = "", mode: int) -> None:
        """See `Files.replace`."""
        if posixpath.dirname(staged) != posixpath.dirname(path):
            raise FileError(
                f"{staged}: is not in the same directory as {path}, so it cannot replace it atomically"
            )
        source = self._place(staged)
        await self.write(path, ContentRef(source), owner=owner, group=group, mode=mode)
        del self.nodes[source]

    async def set_attributes(
        self, path: str, *, owner: str = "", group: str = "", mode: int, directory: bool = False
    ) -> None:
        """See `Files.set_attributes`."""
        if directory:
            place = self._make_directory(path, mode)
            uid, gid = await self.ids(owner, group)
        else:
            uid, gid = await self.ids(owner, group)
            place = self._place(path)
        node = self.nodes.get(place)
        if node is None:
            raise FileError(f"{path}: does not exist", errno=errno.ENOENT)
        if node.kind == "symlink":
            raise FileError(f"{path}: is a symlink; owner and mode are not set through it", errno=errno.ELOOP)
        if node.kind == "other":
            raise FileError(f"{path}: this is a FIFO, not a file")
        node.mode = mode
        node.uid = uid if uid >= 0 else node.uid
        node.gid = gid if gid >= 0 else node.gid

    async def link(
        self, path: str, target: str, *, owner: str = "", group: str = "", force: bool = False
    ) -> None:
        """See `Files.link`."""
        uid, gid = await self.ids(owner, group)
        place = self._place(path)
        node = self.nodes.get(place)
        if node is not None and node.kind != "symlink":
            if node.kind == "other" or not force:
                raise FileError(f"{path}: this is a {KIND_NAMES.get(node.kind, node.kind)}, not a symlink")
            if any(other.startswith(f"{place}/") for other in self.nodes):
                raise FileError(
                    f"{path}: the symlink cannot be created: Directory not empty", errno=errno.ENOTEMPTY
                )
        self._add(place, FakeEntry(kind="symlink", link=target, mode=0o777, uid=max(uid, 0), gid=max(gid, 0)))

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """See `Files.remove`."""
        try:
            place = self._place(path)
        except FileError as err:
            if err.errno == errno.ENOENT:
                return
            raise
        inside = [other for other in self.nodes if other.startswith(f"{place}/")]
        if inside and not recursive:
            raise FileError(f"{path}: cannot be removed: Directory not empty", errno=errno.ENOTEMPTY)
        for one in (place, *inside):
            self.nodes.pop(one, None)

    async def ids(self, owner: str, group: str) -> tuple[int, int]:
        """See `Files.ids`."""
        return _id(owner, self.users, "user"), _id(group, self.groups, "group")

    def _limit(self, digest: bool | DigestLimits, path: str) -> int:
        if isinstance(digest, bool):
            return DIGEST_BYTES if digest else -1
        limits = [
            self._common_size(path, one) if isinstance(one, str) else one for one in digest.get(path, ())
        ]
        return max(SMALL_BYTES, *limits) if limits else -1

    def _common_size(self, path: str, other: str) -> int:
        sizes = {self._look(one, -1, follow=True).size_bytes for one in (path, other)}
        return sizes.pop() if len(sizes) == 1 else 0

    def _look(self, path: str, limit_bytes: int, follow: bool) -> FileInfo:
        link = ""
        try:
            place = self._place(path, changing=False)
            link = self.nodes[place].link if place in self.nodes else ""
            if link and follow:
                place = self._resolve(place)
        except FileError as err:
            if err.errno == errno.ENOENT:
                return FileInfo(path=path, link=link)
            return FileInfo(path=path, kind="unreadable", error=err.message, link=link)
        node = self.nodes.get(place)
        if node is None:
            return FileInfo(path=path, link=link)
        has_digest = node.kind == "file" and len(node.content) <= limit_bytes
        is_larger = node.kind == "file" and 0 <= limit_bytes < len(node.content)
        return FileInfo(
            path=path,
            kind=node.kind,
            mode=node.mode,
            uid=node.uid,
            gid=node.gid,
            owner=_name(node.uid, self.users),
            group=_name(node.gid, self.groups),
            size_bytes=len(node.content),
            mtime_ns=node.mtime_ns,
            sha256=hashlib.sha256(node.content).hexdigest() if has_digest else "",
            undigested=f"it holds {len(node.content)} bytes, more than {limit_bytes}" if is_larger else "",
            link=link,
            is_empty=node.kind == "directory" and not any(o.startswith(f"{place}/") for o in self.nodes),
        )

    def _regular(self, path: str) -> FakeEntry:
        look = self._look(path, -1, follow=True)
        if look.kind == "file":
            return self.nodes[self._resolve(self._place(path, changing=False))]
        if look.kind == "absent":
            raise FileError(f"{path}: cannot be read: No such file or directory", errno=errno.ENOENT)
        raise FileError(f"{path}: this is a {KIND_NAMES.get(look.kind, look.kind)}, not a file")

    def _replaceable(self, path: str) -> str:
        place = self._place(path)
        node = self.nodes.get(place)
        if node is not None and node.kind not in ("file", "symlink"):
            raise FileError(f"{path}: this is a {KIND_NAMES[node.kind]}, not a file")
        return place

    def _make_directory(self, path: str, mode: int) -> str:
        parent = posixpath.dirname(path)
        if self._look(parent, -1, follow=True).kind == "absent":
            self._make_directory(parent, mode)
        place = self._place(path)
        node = self.nodes.get(place)
        if node is not None and node.kind == "symlink":
            if self._look(path, -1, follow=True).kind == "directory":
                raise FileError(f"{path}: is a symlink to a directory, which is not changed through it")
            node = None
        if node is None:
            self._add(place, FakeEntry(kind="directory", mode=mode))
        elif node.kind != "directory":
            raise FileError(f"{path}: exists and is not a directory", errno=errno.ENOTDIR)
        return place

    def _place(self, path: str, *, changing: bool = True) -> str:
        """Resolve the symlinks in the directories of a path, and return the result. The entry itself may be missing."""
        if changing and path in self.refuses:
            raise FileError(f"{path}: {self.refuses[path]}")
        if path == "/":
            return path
        head, name = posixpath.split(path)
        parent = self._resolve(self._place(head, changing=False))
        node = self.nodes.get(parent)
        if node is None:
            raise FileError(f"{path}: there is no directory {head}", errno=errno.ENOENT)
        if node.kind != "directory":
            raise FileError(f"{path}: {head} is not a directory", errno=errno.ENOTDIR)
        return posixpath.join(parent, name)

    def _resolve(self, place: str) -> str:
        for _ in range(SYMLINKS_ON_THE_WAY):
            node = self.nodes.get(place)
            if node is None or node.kind != "symlink":
                return place
            place = self._place(
                posixpath.normpath(posixpath.join(posixpath.dirname(place), node.link)), changing=False
            )
        raise FileError(f"{place}: Too many levels of symbolic links", errno=errno.ELOOP)


def _id(text: str, names: dict[str, int], what: str) -> int:
    if not text:
        return -1
    if text.isascii() and text.isdigit():
        if int(text) >= (1 << 32) - 1:
            raise FileError(f"{what} {text} is out of range")
        return int(text)
    if text not in names:
        raise FileError(f"there is no {what} {text!r} on this machine")
    return names[text]


def _name(number: int, names: dict[str, int]) -> str:
    return next((name for name, value in names.items() if value == number), str(number))
