"""
The two forms in which a manifest is sent: as text, or as a reproducibly packed directory.

A bundle is a gzipped tar with entries sorted by path, without times, owners or user names. A file's mode is 0644, or 0755 if
its owner may execute it. Its name in the object store is its SHA-256, so nodes apply exactly the content that was reviewed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import tarfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.model.bundle import Bundle
from ccm_agent.model.codec import as_text
from ccm_agent.model.errors import InputError, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pathspec import GitIgnoreSpec

INLINE_LIMIT_BYTES = 64 * 1024
"""A larger manifest is sent as a bundle, which the request identifies by digest."""

IGNORE_FILE = ".ccmignore"
MANIFEST_FILE = "manifest.yaml"

ALWAYS_IGNORED = (".git", IGNORE_FILE)
"""Paths that are always ignored, regardless of the ignore file."""

SIZE_LIMIT_BYTES = 64 * 1024 * 1024
"""The maximum unpacked size of all files together, in bytes. Agents also have a limit of their own."""

FILES_LIMIT = 10_000


class Content(Struct, frozen=True, kw_only=True):
    """
    A manifest that is ready to be sent.

    Attributes:
        name: The name of the file without its extension, or of the directory.
        digest: SHA-256 (hex) of the text or bundle.
        text: The manifest, if it is sent inline. "": it is sent as a bundle.
        bundle: The bundle's reference in the request. None: the text is sent inline.
        packed: The bundle's bytes. b"": the text is sent inline.
        files: Paths in the bundle, sorted.
        source: The file from which the manifest was read.
        document: The manifest's text without a byte order mark, inline or in a bundle.
    """

    name: str
    digest: str
    text: str = ""
    bundle: Bundle | None = None
    packed: bytes = b""
    files: tuple[str, ...] = ()
    source: str = ""
    document: str = ""


def read_content(path: Path, manifest: str = "", name: str = "") -> Content:
    """
    Read a manifest file, or a directory with a manifest.

    Blocking: call it in a thread.

    Args:
        path: File or directory.
        manifest: Path of the manifest within the directory. "": `manifest.yaml`.
        name: The name of the manifest. "": the name of the file or directory.

    Raises:
        InputError: It cannot be read or sent. The message contains the path and the solution.
        DocumentError: The manifest is not UTF-8.
    """
    try:
        if path.is_dir():
            return _from_directory(path, manifest or MANIFEST_FILE, name or path.resolve().name)
        if manifest:
            raise InputError(f"{path}: is a file; --manifest requires a directory")
        return _from_file(path, name or path.stem)
    except OSError as err:
        raise InputError(f"{err.filename or path}: cannot be read: {err.strerror}") from err


def as_bundle(content: Content) -> Content:
    """Return the content as a bundle, for storage. A manifest that would be sent inline becomes the only file of a bundle."""
    if content.bundle is not None:
        return content
    packed = _pack([(MANIFEST_FILE, stat.S_IFREG | 0o644, content.text.encode())])
    bundled = _bundled(content.name, MANIFEST_FILE, packed, (MANIFEST_FILE,))
    return replace(bundled, source=content.source, document=content.document)


def _from_file(path: Path, name: str) -> Content:
    data = path.read_bytes()
    document = as_text(data, str(path))
    if len(data) <= INLINE_LIMIT_BYTES:
        content = Content(name=name, digest=_digest(data), text=data.decode("utf-8"))
    else:
        packed = _pack([(MANIFEST_FILE, stat.S_IFREG | 0o644, data)])
        content = _bundled(name, MANIFEST_FILE, packed, (MANIFEST_FILE,))
    return replace(content, source=str(path), document=document)


def _from_directory(path: Path, manifest: str, name: str) -> Content:
    inside = PurePosixPath(manifest)
    if inside.is_absolute() or ".." in inside.parts:
        raise InputError(f"--manifest {manifest}: not a path in {path}; make it relative to that directory")
    if not (path / inside).is_file():
        raise InputError(f"{path}: contains no {manifest}{_offer(path)}")
    entries = list(_entries(path))
    names = tuple(entry[0] for entry in entries)
    if str(inside) not in names:
        raise InputError(f"{path / inside}: {IGNORE_FILE} excludes the manifest itself; change the pattern")
    source = str(path / inside)
    document = as_text((path / inside).read_bytes(), source)
    return replace(_bundled(name, str(inside), _pack(entries), names), source=source, document=document)


def _offer(path: Path) -> str:
    found = sorted(one.name for one in path.glob("*.yaml") if one.is_file())
    return f"; name one of these with --manifest: {', '.join(found)}" if found else ""


def _bundled(name: str, manifest: str, packed: bytes, files: tuple[str, ...]) -> Content:
    digest = _digest(packed)
    bundle = Bundle(digest=digest, size_bytes=len(packed), manifest=manifest)
    return Content(name=name, digest=digest, bundle=bundle, packed=packed, files=files)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


Packable = tuple[str, int, bytes]
"""Path within the bundle, type and mode bits, and content (for a symlink, its target)."""


def _entries(top: Path) -> Iterator[Packable]:
    """Yield all entries below a directory that are not ignored, sorted by path. Refuses entries that an agent would refuse."""
    total, count = 0, 0
    for path, mode in _walk(top, PurePosixPath(), []):
        data = b""
        if stat.S_ISLNK(mode):
            data = _checked_link(top, path)
        elif stat.S_ISREG(mode):
            data = (top / path).read_bytes()
        elif not stat.S_ISDIR(mode):
            raise InputError(f"{top / path}: not a file, directory or symlink; list it in {IGNORE_FILE}")
        total, count = total + len(data), count + 1
        if total > SIZE_LIMIT_BYTES or count > FILES_LIMIT:
            raise InputError(
                f"{top}: more than {SIZE_LIMIT_BYTES >> 20} MiB or {FILES_LIMIT} files; "
                f"list what nodes do not need in {IGNORE_FILE}"
            )
        yield str(path), mode, data


def _walk(
    top: Path, here: PurePosixPath, ignores: list[tuple[PurePosixPath, GitIgnoreSpec]]
) -> Iterator[tuple[PurePosixPath, int]]:
    spec = _ignores(top / here)
    ignores = [*ignores, (here, spec)] if spec else ignores
    for entry in sorted(os.scandir(top / here), key=lambda entry: os.fsencode(entry.name)):
        path = here / entry.name
        mode = entry.stat(follow_symlinks=False).st_mode
        if entry.name in ALWAYS_IGNORED or _is_ignored(path, stat.S_ISDIR(mode), ignores):
            continue
        try:
            str(path).encode("utf-8")
        except UnicodeEncodeError as err:
            raise InputError(f"{str(top / path)!r}: the name is not UTF-8; rename it") from err
        yield path, mode
        if stat.S_ISDIR(mode):
            yield from _walk(top, path, ignores)


def _ignores(directory: Path) -> GitIgnoreSpec | None:
    path = directory / IGNORE_FILE
    if not path.is_file():
        return None
    from pathspec import GitIgnoreSpec

    try:
        # the other backend, RE2, fails on names that are not UTF-8
        return GitIgnoreSpec.from_lines(path.read_text(encoding="utf-8").splitlines(), backend="simple")
    except ValueError as err:
        raise InputError(f"not a valid list of gitignore patterns: {err}", place=Place(str(path))) from err


def _is_ignored(
    path: PurePosixPath, is_directory: bool, ignores: list[tuple[PurePosixPath, GitIgnoreSpec]]
) -> bool:
    """Whether a path is ignored. As in git, the last matching pattern decides, and patterns of deeper directories come last."""
    ignored = False
    for base, spec in ignores:
        relative = str(path.relative_to(base)) + ("/" if is_directory else "")
        said = spec.check_file(relative).include
        ignored = ignored if said is None else said
    return ignored


def _checked_link(top: Path, path: PurePosixPath) -> bytes:
    """
    Return a symlink's target, after checking that it stays within the directory.

    `..` is allowed only at the beginning. After a name that is itself a symlink, it would refer to a different directory.
    """
    target = (top / path).readlink()
    ups = next((place for place, part in enumerate(target.parts) if part != ".."), len(target.parts))
    if target.is_absolute() or ".." in target.parts[ups:] or ups > len(path.parent.parts):
        raise InputError(
            f"{top / path}: this symlink points outside the directory, to {target}, so nodes would refuse it; "
            f"replace it with the file, or list it in {IGNORE_FILE}"
        )
    return os.fsencode(target)


def _pack(entries: list[Packable]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, mode, data in entries:
            entry = tarfile.TarInfo(name)
            if stat.S_ISDIR(mode):
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            elif stat.S_ISLNK(mode):
                entry.type, entry.mode, entry.linkname = tarfile.SYMTYPE, 0o777, os.fsdecode(data)
            else:
                entry.size, entry.mode = len(data), 0o755 if mode & stat.S_IXUSR else 0o644
            tar.addfile(entry, io.BytesIO(data) if entry.isreg() else None)
    return gzip.compress(raw.getvalue(), compresslevel=6, mtime=0)
