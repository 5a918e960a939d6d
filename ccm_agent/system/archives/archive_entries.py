"""A common form for archive entries of tar and zip."""

from __future__ import annotations

import stat
import tarfile
import time
import zipfile
from collections.abc import Callable
from typing import IO, Any

from msgspec import Struct


class ArchiveEntry(Struct, frozen=True, kw_only=True):
    """
    One entry of an archive.

    Attributes:
        name: The path, without a trailing slash.
        kind: "file", "directory", "symlink", "hardlink" or "other".
        mode: Permission bits, including setuid, setgid and sticky; -1 if the archive does not contain them.
        mtime: Modification time in seconds since 1970.
        size_bytes: The size of a file's content.
        link: The target of a link. For a hardlink, a path in the archive.
        user, group, uid, gid: The owner and group, as names and as IDs; "" and -1 if the archive does not contain them.
        raw: The library's object for the entry, which the reader needs.
    """

    name: str
    kind: str
    mode: int
    mtime: float
    size_bytes: int = 0
    link: str = ""
    user: str = ""
    group: str = ""
    uid: int = -1
    gid: int = -1
    raw: Any = None


Reader = Callable[[ArchiveEntry], IO[bytes]]
"""A function that opens the content of a file entry."""


def tar_entry(member: tarfile.TarInfo) -> ArchiveEntry:
    """Convert a tar entry."""
    if member.isreg():
        kind = "file"
    elif member.isdir():
        kind = "directory"
    elif member.issym():
        kind = "symlink"
    else:
        kind = "hardlink" if member.islnk() else "other"
    return ArchiveEntry(
        name=_clean(member.name),
        kind=kind,
        mode=member.mode & 0o7777,
        mtime=member.mtime,
        size_bytes=member.size if kind == "file" else 0,
        link=member.linkname,
        user=member.uname,
        group=member.gname,
        uid=member.uid,
        gid=member.gid,
        raw=member,
    )


def zip_entry(info: zipfile.ZipInfo) -> ArchiveEntry:
    """
    Convert a zip entry. It has no owner, and it has a mode only if it was created on Unix. Removes setuid and setgid, like unzip.
    """
    mode = info.external_attr >> 16
    kind = "file"
    if info.is_dir():
        kind = "directory"
    elif mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
        kind = "symlink" if stat.S_ISLNK(mode) else "other"
    return ArchiveEntry(
        name=_clean(info.filename),
        kind=kind,
        mode=mode & 0o777 if mode else -1,
        mtime=time.mktime((*info.date_time, 0, 0, -1)),
        size_bytes=info.file_size if kind == "file" else 0,
        raw=info,
    )


def _clean(name: str) -> str:
    """Remove a leading `./` and trailing slashes. Keep a leading `/` and `..`, so that such names can be refused."""
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name.rstrip("/") if name.strip("/") else name[:1]
