"""Inspects files. An inspection never blocks on special files and never changes anything."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from hashlib import sha256

from ccm_agent.model.errors import FileError
from ccm_agent.model.links import why_misled
from ccm_agent.model.ports import DIGEST_BYTES, SMALL_BYTES, DigestLimits, FileInfo
from ccm_agent.system.accounts import AccountNames
from ccm_agent.system.threads import CancelFlag

READ_BYTES = 1 << 20
HONEST_BYTES = 1 << 30
HONEST_RATIO = 32
"""
The maximum ratio of size to disk usage for reading a file that is larger than HONEST_BYTES. Compressing file systems need at
least 4 KiB for 128 KiB. Larger ratios indicate sparse files. Any user can quickly create a sparse file of terabytes, and reading
it takes hours.
"""
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""The flags for opening a file. Without O_NONBLOCK, opening would block if a FIFO has replaced the file since the inspection."""


def stat_file(
    paths: Sequence[str], digest: bool | DigestLimits, follow: bool, stop: CancelFlag
) -> list[FileInfo]:
    """Inspect each path; see `Files.inspect`."""
    names = AccountNames()
    found = []
    for path in paths:
        stop.check()
        found.append(_look(path, _limit(digest, path), follow, names, stop))
    return found


def _limit(digest: bool | DigestLimits, path: str) -> int:
    """Return the maximum size of a file that is read for its digest; -1 if no digest is requested."""
    if isinstance(digest, bool):
        return DIGEST_BYTES if digest else -1
    limits = [_common_size(path, one) if isinstance(one, str) else one for one in digest.get(path, ())]
    return max(SMALL_BYTES, *limits) if limits else -1


def _common_size(path: str, other: str) -> int:
    """Return the size of two files if they have the same size; 0 if not, or if a file cannot be inspected."""
    try:
        size = os.stat(path).st_size  # noqa: PTH116 - a Path costs more than the call
        return size if size == os.stat(other).st_size else 0  # noqa: PTH116
    except (OSError, ValueError):
        return 0


def _look(path: str, limit_bytes: int, follow: bool, names: AccountNames, stop: CancelFlag) -> FileInfo:
    link = ""
    try:
        seen = os.lstat(path)
        if stat.S_ISLNK(seen.st_mode):
            link = os.readlink(path)  # noqa: PTH115 - a Path costs more than the call
            if follow:
                seen = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return FileInfo(path=path, link=link)
    except (OSError, ValueError) as err:  # a NUL in a path raises ValueError
        return FileInfo(path=path, kind="unreadable", error=_reason(err), link=link)
    kind, sha256, undigested, error, is_empty = kind_of(seen.st_mode), "", "", "", False
    if kind == "file" and limit_bytes >= 0:
        try:
            seen, sha256, undigested = digest_of(path, limit_bytes, stop)
        except OSError as err:
            error = _reason(err)
        except FileError as err:
            kind, error = "other", err.message
    elif kind == "directory":
        is_empty = _is_empty(path)
    return FileInfo(
        path=path,
        kind=kind,
        error=error,
        mode=stat.S_IMODE(seen.st_mode),
        uid=seen.st_uid,
        gid=seen.st_gid,
        owner=names.user(seen.st_uid),
        group=names.group(seen.st_gid),
        size_bytes=seen.st_size,
        mtime_ns=seen.st_mtime_ns,
        sha256=sha256,
        undigested=undigested,
        link=link,
        is_empty=is_empty,
    )


def kind_of(mode: int) -> str:
    """Return the kind of a file with this mode: "file", "directory", "symlink" or "other"."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


def _is_empty(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def open_regular(path: str) -> tuple[int, os.stat_result]:
    """
    Open a regular file, and return its descriptor and stat result.

    Raises:
        OSError: The file cannot be opened.
        FileError: The path is not a regular file. Devices are not opened, because opening them can have effects.
    """
    refuse_other(path, os.stat(path).st_mode)  # noqa: PTH116
    fd = os.open(path, _OPEN)
    seen = os.fstat(fd)
    try:
        refuse_other(path, seen.st_mode)
    except FileError:
        os.close(fd)
        raise
    return fd, seen


def refuse_other(path: str, mode: int) -> None:
    """Raise FileError unless this is the mode of a regular file."""
    if stat.S_ISREG(mode):
        return
    raise FileError(f"{path}: this is a {name_of_kind(mode)}, not a file")


def name_of_kind(mode: int) -> str:
    """Return the kind of a file with this mode, as worded in errors."""
    return _KINDS.get(stat.S_IFMT(mode), "special file")


def refuse_misled(path: str, fd: int) -> None:
    """Raise FileError if the path leads to this open file through a symlink of another user who may not read the file."""
    if why := why_misled(path, fd):
        raise FileError(f"{path}: is not read: {why}")


_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
    stat.S_IFLNK: "symlink",
}


def digest_of(path: str, limit_bytes: int, stop: CancelFlag) -> tuple[os.stat_result, str, str]:
    """
    Return the stat result of a regular file, the SHA-256 of its content in hex, and the reason if the digest is missing.

    Args:
        path: The file.
        limit_bytes: A larger file is not read. If the file grows meanwhile, reading stops at this size.
        stop: Checked between blocks.

    Raises:
        OSError: The file cannot be read.
        FileError: The path is no longer a regular file.
    """
    fd = os.open(path, _OPEN)
    try:
        seen = os.fstat(fd)
        refuse_other(path, seen.st_mode)
        if why := why_unread(seen, limit_bytes):
            return seen, "", why
        # os.read() allocates the requested size, so request only the file's size if it is small
        data = os.read(fd, min(seen.st_size, READ_BYTES - 1) + 1)
        digest, count = sha256(data), len(data)
        while data and len(data) != seen.st_size:  # files under /proc have the size 0
            stop.check()
            data = os.read(fd, READ_BYTES)
            digest.update(data)
            count += len(data)
            if count > limit_bytes:
                return seen, "", f"it contains more than {limit_bytes} bytes"
    finally:
        os.close(fd)
    return seen, digest.hexdigest(), ""


def why_unread(seen: os.stat_result, limit_bytes: int) -> str:
    """Return the reason why a regular file must not be read completely; "" if it may be."""
    if seen.st_size > limit_bytes:
        return f"it has {seen.st_size} bytes, more than {limit_bytes}"
    if seen.st_size > HONEST_BYTES and seen.st_size > HONEST_RATIO * 512 * seen.st_blocks:
        return f"its size is {seen.st_size} bytes, but it uses only {512 * seen.st_blocks} on disk"
    return ""


def read_regular(path: str, limit_bytes: int, stop: CancelFlag) -> bytes:
    """Read a regular file up to a size limit; see `Files.read`."""
    try:
        fd, seen = open_regular(path)
    except (OSError, ValueError) as err:
        raise FileError(
            f"{path}: cannot be read: {_reason(err)}", errno=getattr(err, "errno", 0) or 0
        ) from err
    content = bytearray()
    with os.fdopen(fd, "rb", buffering=0) as file:
        refuse_misled(path, fd)
        while len(content) <= limit_bytes and seen.st_size <= limit_bytes:
            stop.check()
            try:
                data = file.read(min(READ_BYTES, limit_bytes + 1 - len(content)))
            except OSError as err:
                raise FileError(f"{path}: cannot be read: {_reason(err)}", errno=err.errno or 0) from err
            if not data:
                return bytes(content)
            content += data
    raise FileError(f"{path}: is larger than {limit_bytes} bytes, which is the limit here")


def _reason(err: Exception) -> str:
    return (err.strerror if isinstance(err, OSError) else None) or str(err)
