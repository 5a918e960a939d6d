"""Entries of archives, in one form for tar and zip."""

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
        name: The path, without a slash at the end.
        kind: "file", "directory", "symlink", "hardlink" or "other".
        mode: Permission bits with setuid, setgid and sticky; -1 if the archive has none.
        mtime: Modification time in seconds since 1970.
        size_bytes: Size of a file's content.
        link: The target of a link. For a hardlink, a path in the archive.
        user, group, uid, gid: The owner, names first; "" and -1 if the archive has none.
        raw: The library's own entry, for the reader.
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
"""Opens the content of a file entry."""


def tar_entry(member: tarfile.TarInfo) -> ArchiveEntry:
    """Convert an entry of a tar."""
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
    Convert an entry of a zip. It has no owner, and has a mode only if it was made on Unix. Drops setuid and setgid, like unzip.
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
    """Remove a leading `./` and trailing slashes. A leading `/` and `..` are kept so that they can be refused."""
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name.rstrip("/") if name.strip("/") else name[:1]
