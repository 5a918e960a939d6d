"""Compares a directory with its desired state; see `TreeEditor.look`."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from msgspec.structs import replace

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import TreeChange, TreeDifference, TreeSpec
from ccm_agent.system.accounts import AccountNames, group_id, user_id
from ccm_agent.system.atomic_write import reported
from ccm_agent.system.file_attributes import refuse_planted
from ccm_agent.system.file_inspection import kind_of, name_of_kind, why_unread
from ccm_agent.system.threads import CancelFlag
from ccm_agent.system.trees.directory import open_parent
from ccm_agent.system.trees.mount_points import MountPoints
from ccm_agent.system.trees.open_walk import (
    OpenDirectory,
    OpenEntry,
    mount_id,
    open_directory,
    open_file,
    open_top,
    walk_open,
)

FILE_MODE, PROGRAM_MODE, DIRECTORY_MODE = 0o644, 0o755, 0o755
"""
The modes of new entries. They are not taken from the source, because a bundle only stores whether the owner may execute a file.
"""
KERNEL = ("/proc", "/sys", "/dev")
"""The kernel's own file systems, whose entries must not be removed."""
UNKNOWN_ID = -2
"""The ID for a user or group that does not exist yet. In a plan, an earlier resource may be the one that creates it."""
COMPARED_BYTES = 1 << 20
SOURCE_BYTES = 1 << 40
"""The maximum size of a file in a source."""


def look(specs: Sequence[TreeSpec], stop: CancelFlag) -> list[TreeDifference]:
    """Compare each directory with its spec; see `TreeEditor.look`."""
    names, mounts = AccountNames(), MountPoints()
    return [_look(spec, names, mounts, stop) for spec in specs]


def _look(spec: TreeSpec, names: AccountNames, mounts: MountPoints, stop: CancelFlag) -> TreeDifference:
    try:
        with ExitStack() as stack:
            return _Comparison(spec, names, mounts, stop, stack).result()
    except InterruptedError:
        raise
    except FileError as err:
        return TreeDifference(kind="unknown", error=err.message)
    except (OSError, ValueError) as err:
        reason = (err.strerror if isinstance(err, OSError) else None) or str(err)
        return TreeDifference(kind="unknown", error=f"{spec.path}: cannot be inspected: {reason}")


class _Comparison:
    """
    One directory and its spec.

    Args:
        spec: The desired state.
        names: Looks up names of users and groups.
        mounts: The mount points.
        stop: Checked before each entry.
        stack: Closes the opened descriptors.
    """

    def __init__(
        self, spec: TreeSpec, names: AccountNames, mounts: MountPoints, stop: CancelFlag, stack: ExitStack
    ) -> None:
        self._spec = spec
        self._names = names
        self._mounts = mounts
        self._stop = stop
        self._stack = stack
        self._uid = _number(user_id, spec.owner)
        self._gid = _number(group_id, spec.group)
        # if false, only the directories of the source are entered, so that a few files can be managed in a large tree
        self._is_whole = bool(
            spec.is_absent or spec.purge or spec.recurse or spec.max_age_s >= 0 or spec.max_size_bytes >= 0
        )
        self._source: dict[str, os.stat_result] = {}
        self._source_top: os.stat_result | None = None
        self._below: OpenDirectory | None = None
        self._count = 0
        self._made: dict[str, TreeChange] = {}
        self._removed: dict[str, TreeChange] = {}
        self._limited: list[tuple[int, TreeChange]] = []
        self._kept: list[str] = []

    def result(self) -> TreeDifference:
        spec = self._spec
        top = self._open_top()
        if spec.source and not spec.is_absent:
            self._read_source(top)
        if top is None:
            return self._of_missing()
        fd, seen = top
        met = {entry.path for entry in self._walk(fd)}
        if not spec.is_absent:
            self._made |= {path: self._new(path) for path in self._source if path not in met}
            self._tidy()
        if spec.is_absent:
            self._removed[""] = _change("", seen, "remove", why="absent")
        else:
            self._differs("", seen)
        for path in self._kept:
            for above in _parents(path):
                self._removed.pop(above, None)
        made = [self._made[path] for path in sorted(self._made, key=_parts)]
        removed = [self._removed[path] for path in sorted(self._removed, key=_parts, reverse=True)]
        return TreeDifference(
            kind="directory",
            mode=stat.S_IMODE(seen.st_mode),
            uid=seen.st_uid,
            gid=seen.st_gid,
            owner=self._names.user(seen.st_uid),
            group=self._names.group(seen.st_gid),
            count=self._count,
            changes=(*made, *removed),
            kept=tuple(self._kept),
        )

    def _open_top(self) -> tuple[int, os.stat_result] | None:
        """Open the directory; None if it does not exist."""
        try:
            place = self._stack.enter_context(open_parent(self._spec.path))
        except FileError as err:
            if err.errno == errno.ENOENT:
                return None
            raise
        seen = place.look()
        if seen is None:
            return None
        if not stat.S_ISDIR(seen.st_mode):
            hint = "; name the directory itself" if stat.S_ISLNK(seen.st_mode) else "; remove it first"
            raise FileError(f"{place.path}: is a {name_of_kind(seen.st_mode)}, not a directory{hint}")
        fd = open_directory(place)
        self._stack.callback(os.close, fd)
        self._refuse_protected(fd)
        if self._spec.is_absent and mount_id(fd) != mount_id(place.fd):
            raise FileError(f"{place.path}: is a mount point; unmount it first")
        return fd, os.fstat(fd)

    def _refuse_protected(self, fd: int) -> None:
        """Refuse a system directory, even if the path refers to it by another name."""
        seen = os.fstat(fd)
        for path in self._spec.refused:
            there = _stat(path)
            if there is not None and os.path.samestat(there, seen):
                raise FileError(f"{self._spec.path}: this is {path}, a system directory; name one below it")
        root = _stat("/")
        for path in KERNEL if self._spec.refused else ():
            there = _stat(path)
            if there is not None and root is not None and root.st_dev != there.st_dev == seen.st_dev:
                raise FileError(
                    f"{self._spec.path}: is on the file system of {path}, which belongs to the kernel"
                )

    def _of_missing(self) -> TreeDifference:
        if self._spec.is_absent:
            return TreeDifference()
        made = [self._new_top(), *(self._new(path) for path in sorted(self._source, key=_parts))]
        return TreeDifference(changes=tuple(made))

    # ---- the source ----

    def _read_source(self, top: tuple[int, os.stat_result] | None) -> None:
        path = self._spec.source
        fd = self._stack.enter_context(open_top(path, "source "))
        self._source_top = os.fstat(fd)
        if top is not None and os.path.samestat(self._source_top, top[1]):
            raise FileError(f"source {path}: is the directory itself")
        for entry in walk_open(fd, path, self._stop, self._mounts):
            if top is not None and os.path.samestat(entry.seen, top[1]):
                raise FileError(f"source {path}: contains the directory {self._spec.path}")
            if entry.is_mount:
                raise FileError(
                    f"source {entry.place.path}: is a mount point, and mount points are not copied"
                )
            if not stat.S_ISDIR(entry.seen.st_mode) and not stat.S_ISREG(entry.seen.st_mode):
                kind = name_of_kind(entry.seen.st_mode)
                raise FileError(
                    f"source {entry.place.path}: is a {kind}; only files and directories are copied"
                )
            if why := why_unread(entry.seen, SOURCE_BYTES):
                raise FileError(f"source {entry.place.path}: cannot be copied: {why}")
            self._source[entry.path] = entry.seen
        if self._spec.purge and not self._source:
            raise FileError(f"source {path}: is empty, and `purge` would remove everything")
        self._below = self._stack.enter_context(OpenDirectory(fd, path))

    def _new_top(self) -> TreeChange:
        mode = self._spec.directory_mode
        return TreeChange(
            path="",
            action="create",
            kind="directory",
            new_mode=DIRECTORY_MODE if mode < 0 else mode,
            new_uid=self._uid,
            new_gid=self._gid,
        )

    def _new(self, path: str) -> TreeChange:
        seen = self._source[path]
        if stat.S_ISDIR(seen.st_mode):
            kind, wanted, usual = "directory", self._spec.directory_mode, DIRECTORY_MODE
        else:
            is_program = seen.st_mode & stat.S_IXUSR
            kind, wanted, usual = "file", self._spec.file_mode, PROGRAM_MODE if is_program else FILE_MODE
        return TreeChange(
            path=path,
            action="create",
            kind=kind,
            new_mode=usual if wanted < 0 else wanted,
            new_uid=self._uid,
            new_gid=self._gid,
        )

    # ---- the existing entries ----

    def _walk(self, fd: int) -> Iterator[OpenEntry]:
        spec = self._spec
        enters = None if self._is_whole else self._source
        for entry in walk_open(fd, spec.path, self._stop, self._mounts, enters):
            self._count += 1
            is_source = self._source_top is not None and os.path.samestat(entry.seen, self._source_top)
            if is_source and (self._is_whole or entry.path in self._source):
                raise FileError(f"source {spec.source}: is in the directory {spec.path}")
            if entry.is_mount:
                self._meet_mount(entry)
            elif spec.is_absent:
                self._removed[entry.path] = _removal(entry, "absent")
            elif entry.path in self._source:
                self._compare(entry)
            else:
                self._meet_other(entry)
            yield entry

    def _meet_mount(self, entry: OpenEntry) -> None:
        full = entry.place.path
        if self._spec.is_absent:
            raise FileError(f"{full}: is a mount point; unmount it first")
        if entry.path in self._source:
            raise FileError(
                f"{full}: is a mount point, but the source has an entry there; manage it as its own resource"
            )
        self._kept.append(entry.path)

    def _meet_other(self, entry: OpenEntry) -> None:
        """Handle an entry that is not in the source."""
        spec, mode = self._spec, entry.seen.st_mode
        if spec.purge:
            if kind_of(mode) == "other":
                self._kept.append(entry.path)
            else:
                self._removed[entry.path] = _removal(entry, "purge")
            return
        if stat.S_ISREG(mode) and _matches(spec, entry.path):
            self._limited.append((_taken_bytes(entry.seen), _change(entry.path, entry.seen, "remove")))
        if spec.recurse:
            self._compare_attributes(entry)

    def _compare(self, entry: OpenEntry) -> None:
        """Compare an entry that is in the source."""
        wanted, seen, full = self._source[entry.path], entry.seen, entry.place.path
        found, new = kind_of(seen.st_mode), self._new(entry.path)
        if found == "symlink" and new.kind == "file":
            attributes = (new.new_uid, new.new_gid, new.new_mode)
            self._made[entry.path] = _change(entry.path, seen, "write", attributes, link=_link(entry))
        elif found != new.kind:
            raise FileError(
                f"{full}: is a {name_of_kind(seen.st_mode)}, but the source has a {new.kind} there; remove it first"
            )
        elif new.kind == "directory" or self._is_same(entry, wanted):
            self._compare_attributes(entry)
        else:
            uid, gid, mode = self._attributes(seen)
            if seen.st_uid not in (0, os.geteuid(), self._uid):
                # replace owner, group and mode, because another user may have planted the file to get access to the new content
                uid, gid, mode = new.new_uid, new.new_gid, new.new_mode
            self._made[entry.path] = _change(entry.path, seen, "write", (uid, gid, mode & 0o777))

    def _is_same(self, entry: OpenEntry, wanted: os.stat_result) -> bool:
        """Whether a file has the same content as in the source."""
        assert self._below is not None
        if entry.seen.st_size != wanted.st_size:
            return False
        source = self._below.place(entry.path)
        with open_file(source) as ours, open_file(entry.place) as theirs:
            while True:
                self._stop.check()
                data = os.read(ours, COMPARED_BYTES)
                if data != os.read(theirs, max(len(data), 1)):
                    return False
                if not data:
                    return True

    def _compare_attributes(self, entry: OpenEntry) -> None:
        kind = kind_of(entry.seen.st_mode)
        if kind in ("file", "directory") and self._differs(entry.path, entry.seen) and kind == "file":
            refuse_planted(entry.place, entry.seen)

    def _differs(self, path: str, seen: os.stat_result) -> bool:
        """Record a file or directory if its owner, group or mode must change. Return whether it must."""
        wanted = self._attributes(seen)
        if wanted == (seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)):
            return False
        self._made[path] = _change(path, seen, "set", wanted)
        return True

    def _attributes(self, seen: os.stat_result) -> tuple[int, int, int]:
        """Return the desired owner, group and mode of an existing file or directory."""
        spec, mode = self._spec, stat.S_IMODE(seen.st_mode)
        uid = seen.st_uid if self._uid == -1 else self._uid
        gid = seen.st_gid if self._gid == -1 else self._gid
        if stat.S_ISDIR(seen.st_mode):
            # setgid and sticky bits of directories are not managed
            return uid, gid, mode if spec.directory_mode < 0 else mode & 0o7000 | spec.directory_mode
        if spec.file_mode >= 0 and mode & 0o777 != spec.file_mode:
            mode = spec.file_mode
        if (uid, gid) != (seen.st_uid, seen.st_gid):
            mode &= 0o777  # remove setuid and setgid, because a program of another user must not become setuid root
        return uid, gid, mode

    # ---- limits ----

    def _tidy(self) -> None:
        """Choose the files to remove: first the files that are too old, then the oldest of the others until the rest fits."""
        spec = self._spec
        left: list[tuple[int, TreeChange]] = []
        for size_bytes, one in self._limited:
            if 0 <= spec.max_age_s < spec.now_s - one.mtime_ns / 1e9:
                self._removed[one.path] = replace(one, why="age")
            else:
                left.append((size_bytes, one))
        total_bytes = sum(size_bytes for size_bytes, _ in left) if spec.max_size_bytes >= 0 else -1
        for size_bytes, one in sorted(left, key=lambda each: (each[1].mtime_ns, each[1].path)):
            if total_bytes <= spec.max_size_bytes:
                break
            if not size_bytes:
                continue  # removing it would not free space
            total_bytes -= size_bytes
            self._removed[one.path] = replace(one, why="size")
        for path in self._removed:
            self._made.pop(path, None)


def _number(find: Callable[[str], int], name: str) -> int:
    try:
        return find(name)
    except FileError:
        return UNKNOWN_ID


def _change(
    path: str,
    seen: os.stat_result,
    action: str,
    new: tuple[int, int, int] = (-1, -1, -1),
    *,
    why: str = "",
    link: str = "",
) -> TreeChange:
    uid, gid, mode = new
    return TreeChange(
        path=path,
        action=action,
        kind=kind_of(seen.st_mode),
        why=why,
        link=link,
        mode=stat.S_IMODE(seen.st_mode),
        uid=seen.st_uid,
        gid=seen.st_gid,
        new_mode=mode,
        new_uid=uid,
        new_gid=gid,
        size_bytes=seen.st_size,
        mtime_ns=seen.st_mtime_ns,
        device=seen.st_dev,
        inode=seen.st_ino,
    )


def _removal(entry: OpenEntry, why: str) -> TreeChange:
    return _change(entry.path, entry.seen, "remove", why=why, link=_link(entry))


def _link(entry: OpenEntry) -> str:
    """Return the target of a symlink; "" for any other entry."""
    if not stat.S_ISLNK(entry.seen.st_mode):
        return ""
    with reported(entry.place.path, "cannot be read"):
        return os.readlink(entry.place.name, dir_fd=entry.place.fd)


def _matches(spec: TreeSpec, path: str) -> bool:
    """Whether the limits on age and size apply to a file."""
    if spec.max_age_s < 0 and spec.max_size_bytes < 0:
        return False
    name = path.rpartition("/")[2]
    return not spec.matches or any(
        pattern.fullmatch(path if is_path else name) for pattern, is_path in spec.matches
    )


def _taken_bytes(seen: os.stat_result) -> int:
    """
    Return the disk usage of a file, at most its size. The size itself is not used, because a huge sparse file must not displace
    other files.
    """
    return min(seen.st_size, 512 * seen.st_blocks)


def _parts(path: str) -> list[str]:
    return path.split("/") if path else []


def _parents(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition("/")[0]
        yield path


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - a Path costs more than the call
    except OSError:
        return None
