"""
Unpacks a bundle: a gzipped tar from the bus or the web, which is not trusted.

The content may be hostile. Only files, folders and symlinks that stay within the bundle are accepted, in limited number and size.
Modes keep only the execute bit, and the owner is the user of this process. All checks are made before anything is written.
"""

from __future__ import annotations

import gzip
import io
import os
import posixpath
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from msgspec import Struct

from ccm_agent.model.errors import FileError, ProtocolError
from ccm_agent.model.formats.tar_reader import HEADERS_OF_ENTRY, TAR_ERRORS, Tar, members

LEVELS_MAX = 100
"""The maximum depth of folders. Removing a folder descends into each level, and manifests are never nested this deep."""


class BundleLimits(Struct, frozen=True, kw_only=True):
    """The limits of a bundle: unpacked size in bytes, and number of entries."""

    size_bytes: int = 128 << 20
    entries: int = 20_000


def unpack_bundle(packed: bytes, folder: Path, limits: BundleLimits, name: str) -> None:
    """
    Unpack into a new folder. Blocking.

    Args:
        packed: The gzipped tar.
        folder: The new folder, which must not exist yet. Its parent must exist, and only this user may write to the parent.
        limits: The largest bundle that is accepted.
        name: The bundle's name in error messages.

    Raises:
        ProtocolError: The bundle is damaged, too large, or has entries that a bundle must not have.
        FileError: The folder cannot be written.
    """
    try:
        plain = _inflated(packed, limits, name)
        with Tar(plain, HEADERS_OF_ENTRY * limits.entries) as archive:
            members = _checked(archive, limits, name)
            folder.mkdir(mode=0o700)
            for member, path in members:
                _extract(archive, member, folder / path)
    except TAR_ERRORS as err:
        raise ProtocolError(f"{name}: the bundle is damaged: {err}; send it again") from err
    except OSError as err:
        raise FileError(
            f"{folder}: cannot unpack {name}: {err.strerror or err}; check the free disk space"
        ) from err


def _inflated(packed: bytes, limits: BundleLimits, name: str) -> IO[bytes]:
    """Return the unpacked tar, up to the size limit. Without the limit, a small bundle could expand to gigabytes."""
    # each entry has a header and padding in addition to its content
    bound = limits.size_bytes + 1024 * limits.entries + 10_240
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
        plain = stream.read(bound + 1)
    if len(plain) > bound:
        raise ProtocolError(
            f"{name}: the bundle unpacks to more than {limits.size_bytes} bytes; leave files out"
        )
    return io.BytesIO(plain)


def _checked(archive: Tar, limits: BundleLimits, name: str) -> list[tuple[tarfile.TarInfo, str]]:
    """Return all entries with their paths. An invalid entry raises an error before anything is written."""
    found: dict[str, tarfile.TarInfo] = {}
    links: dict[str, str] = {}
    size = 0
    for member in members(archive):
        path = inner_path(member.name, name)
        size += member.size
        if len(found) >= limits.entries or size > limits.size_bytes:
            raise ProtocolError(
                f"{name}: the bundle contains more than {limits.entries} entries or {limits.size_bytes} bytes"
            )
        if path in found and not (member.isdir() and found[path].isdir()):
            raise ProtocolError(f"{name}: the bundle contains {path} twice")
        if member.issym():
            links[path] = member.linkname
        elif not (member.isreg() or member.isdir()):
            raise ProtocolError(
                f"{name}: {path} is not a file, folder or symlink, and a bundle contains only these"
            )
        found[path] = member
    for path, target in links.items():
        _check_link(path, target, links, name)
    for path in found:
        _check_parents(path, found, links, name)
    return [(member, path) for path, member in sorted(found.items()) if path != "."]


def inner_path(written: str, name: str) -> str:
    """
    Return a normalized path within the bundle.

    Raises:
        ProtocolError: The path leads out of the bundle.
    """
    path = posixpath.normpath(written)
    if written.count("/") > LEVELS_MAX:
        raise ProtocolError(f"{name}: an entry is more than {LEVELS_MAX} folders deep")
    if written.startswith("/") or "\0" in written or ".." in written.split("/"):
        raise ProtocolError(f"{name}: {written!r} leads out of the bundle")
    return path


def _check_link(path: str, target: str, links: Mapping[str, str], name: str) -> None:
    """
    Check that a symlink leads to a path within the bundle, and not through another symlink.

    Through `a/b/top -> ../..`, the path `a/b/top/../x` seems to stay within the bundle but does not.
    """
    here = posixpath.dirname(path)
    parts = [] if target.startswith("/") or not target or "\0" in target else target.split("/")
    for place, part in enumerate(parts, 1):
        if part == ".." and not here:
            parts = []
            break
        here = posixpath.dirname(here) if part == ".." else posixpath.normpath(posixpath.join(here, part))
        here = "" if here == "." else here
        if here in links and place < len(parts):
            raise ProtocolError(f"{name}: the symlink {path} leads through {here}, which is a symlink too")
    if not parts:
        raise ProtocolError(f"{name}: the symlink {path} leads out of the bundle")


def _check_parents(path: str, found: dict[str, tarfile.TarInfo], links: Mapping[str, str], name: str) -> None:
    """
    Check that no entry is below a file or a symlink.

    A symlink to a folder in the bundle is harmless by itself, but `a -> .` and `a/b -> ..` together lead out step by step.
    """
    parent = posixpath.dirname(path)
    while parent:
        if parent in links or (parent in found and not found[parent].isdir()):
            raise ProtocolError(f"{name}: {path} is below {parent}, which is not a folder")
        parent = posixpath.dirname(parent)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if member.isdir():
        path.mkdir(mode=0o755, exist_ok=True)
    elif member.issym():
        path.symlink_to(member.linkname)
    else:
        source = archive.extractfile(member)
        mode = 0o755 if member.mode & 0o100 else 0o644
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(fd, "wb") as file:
            while source is not None and (part := source.read(1 << 20)):
                file.write(part)
            # the modes do not depend on this process's umask
            os.fchmod(file.fileno(), mode)
