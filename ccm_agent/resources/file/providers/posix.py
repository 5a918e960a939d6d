"""Files of this host, through the files port."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import UNSET

from ccm_agent.model.errors import DownloadError, FileError
from ccm_agent.model.ports import DIGEST_BYTES, ContentRef, Download, FileInfo, Files, Transfer
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.secret import mask_url
from ccm_agent.resources.file.model import (
    DIRECTORY,
    KEEP,
    FileMetadata,
    FileProperties,
    FileState,
    SourceFile,
)

if TYPE_CHECKING:
    from ccm_agent.resources.changes import FileChange

PROTOCOL = "io.choria.ccm.v1.resource.file.state"
URL_LIMIT_BYTES = 256 << 20
"""The largest file that is downloaded or written from a text. Use the `archive` type for larger files."""
SOURCE_LIMIT_BYTES = 1 << 40
"""The largest local source with a checksum in the manifest, because the whole source must be read for the comparison."""


class PosixFile:
    """
    The provider for Unix-like systems.

    Args:
        files: The port.
        directory: The base of relative sources.
        download: Returns the port that downloads URLs. None if this program has no such port.
    """

    def __init__(self, files: Files, directory: str, download: Callable[[], Download] | None = None) -> None:
        self._files = files
        self._directory = directory
        self._download = download
        self._digests: dict[str, str] = {}  # digests of the content of URLs, as downloaded in this run

    async def status(self, wanted: FileProperties) -> FileState:
        """See `FileProvider`."""
        state = (await self._look([wanted]))[0]
        if state is None:
            raise FileError(
                f"{wanted.name} is a FIFO, socket or device; only files, directories and symlinks to them can be managed"
            )
        if wanted.is_url and wanted.ensure == PRESENT and (wanted.replaces_content or state.ensure == ABSENT):
            state.source = await self._remote_source(wanted)
        return state

    async def look_ahead(self, wanted: Sequence[FileProperties]) -> list[FileState | None]:
        """Return the result of `status` for each resource. None for refused paths and for sources on the network."""
        found = await self._look(wanted)
        return [None if one.is_url else state for one, state in zip(wanted, found, strict=True)]

    async def _look(self, wanted: Sequence[FileProperties]) -> list[FileState | None]:
        sources = [self._source(one) for one in wanted]
        asked = [one.name for one in wanted]
        asked += [source for source in sources if source]
        looks = await self._files.inspect(asked, digest=_how_large(wanted, sources))
        return await self._states(wanted, sources, looks)

    async def _states(
        self, wanted: Sequence[FileProperties], sources: Sequence[str], seen: Sequence[FileInfo]
    ) -> list[FileState | None]:
        looks = {look.path: look for look in seen}
        found: list[FileState | None] = []
        for one, source in zip(wanted, sources, strict=True):
            look = looks[one.name]
            if look.kind == "other":
                found.append(None)
                continue
            state = _state(one, look)
            if source:
                state.source = _source_file(looks[source], one.checksum)
            await self._name_alike(one, look, state.metadata)
            found.append(state)
        return found

    async def compare(self, wanted: FileProperties, found: FileState) -> list[FileChange]:
        """See `FileProvider`."""
        from ccm_agent.resources.file.providers.compare import compare_file

        return await compare_file(self._files, wanted, found, self._source(wanted))

    async def store(self, wanted: FileProperties) -> FileState | None:
        """See `FileProvider`."""
        if wanted.is_url:
            await self._store_url(wanted)
            return None
        source = self._source(wanted)
        seen = await self._files.write(
            wanted.name,
            ContentRef(source) if source else (wanted.content or "").encode(),
            owner=wanted.owner,
            group=wanted.group,
            mode=wanted.mode_bits,
            then_inspect=_how_large([wanted], [source]),
        )
        return (await self._states([wanted], [source], seen))[0]

    async def set_attributes(self, wanted: FileProperties) -> None:
        """See `FileProvider`."""
        await self._files.set_attributes(
            wanted.name, owner=wanted.owner, group=wanted.group, mode=wanted.mode_bits
        )

    async def create_directory(self, wanted: FileProperties) -> None:
        """See `FileProvider`."""
        await self._files.set_attributes(
            wanted.name, owner=wanted.owner, group=wanted.group, mode=wanted.mode_bits, directory=True
        )

    async def remove(self, wanted: FileProperties) -> None:
        """See `FileProvider`."""
        try:
            await self._files.remove(wanted.name, recursive=wanted.force)
        except FileError as err:
            if err.errno != errno.ENOTEMPTY:
                raise
            message = f"cannot remove {wanted.name}: the directory is not empty, set `force: true` to remove it with its content"
            raise FileError(message, errno=err.errno) from err

    async def _remote_source(self, wanted: FileProperties) -> SourceFile:
        """Return the digest of the URL's content: the digest in the manifest, or the digest of the first download in this run."""
        shown = mask_url(wanted.source)
        checksum = wanted.checksum or self._digests.get(wanted.source, "")
        if not checksum:
            try:
                got = await self._fetcher().fetch(Transfer(url=wanted.source, limit_bytes=URL_LIMIT_BYTES))
            except DownloadError as err:
                return SourceFile(path=shown, error=err.message.removeprefix(f"{shown}: "))
            checksum = self._digests[wanted.source] = got.sha256
        return SourceFile(path=shown, checksum=checksum)

    async def _store_url(self, wanted: FileProperties) -> None:
        # an unknown owner is reported before the download
        await self._files.ids(wanted.owner, wanted.group)
        staged = posixpath.join(posixpath.dirname(wanted.name), f".ccm-{os.urandom(8).hex()}.part")
        got = await self._fetcher().save(Transfer(url=wanted.source, limit_bytes=URL_LIMIT_BYTES), staged)
        try:
            if wanted.checksum and got.sha256 != wanted.checksum:
                raise DownloadError(
                    f"{mask_url(wanted.source)}: checksum mismatch: wanted {wanted.checksum}, got {got.sha256}; nothing was "
                    "changed"
                )
            self._digests[wanted.source] = got.sha256
            await self._files.replace(
                staged, wanted.name, owner=wanted.owner, group=wanted.group, mode=wanted.mode_bits
            )
        except BaseException:
            await self._files.remove(staged)
            raise

    def _fetcher(self) -> Download:
        if self._download is None:
            raise DownloadError("this program cannot download: name a local file as `source`")
        return self._download()

    def _source(self, wanted: FileProperties) -> str:
        """Return the source as an absolute path; "" if there is no source or it is not needed."""
        if not wanted.source or wanted.is_url or wanted.ensure != PRESENT:
            return ""
        return posixpath.normpath(posixpath.join(self._directory, wanted.source))

    async def _name_alike(self, wanted: FileProperties, look: FileInfo, metadata: FileMetadata) -> None:
        """Use the desired owner's name if it has the same number as the current owner, because a user may have several names."""
        owner, group = wanted.owner.replace(KEEP, ""), wanted.group.replace(KEEP, "")
        if look.uid < 0 or (owner in ("", look.owner) and group in ("", look.group)):
            return
        try:
            uid, gid = await self._files.ids(owner, group)
        except FileError:
            return  # the desired name is unknown; the change will report it
        if uid == look.uid and not owner.isdigit():
            metadata.owner = owner
        if gid == look.gid and not group.isdigit():
            metadata.group = group


def _how_large(wanted: Sequence[FileProperties], sources: Sequence[str]) -> dict[str, list[int | str]]:
    """Return the maximum size for reading the file at each path. A larger file differs from the desired content in any case."""
    largest: dict[str, list[int | str]] = {}
    for one, source in zip(wanted, sources, strict=True):
        own = largest.setdefault(one.name, [])
        if one.ensure != PRESENT or not one.manages_content or not one.replaces_content:
            own.append(DIGEST_BYTES)
        elif source:
            own.append(source)
        else:
            own.append(URL_LIMIT_BYTES if one.is_url else len((one.content or "").encode()))
        if source:
            largest.setdefault(source, []).append(SOURCE_LIMIT_BYTES if one.checksum else one.name)
    return largest


def _state(wanted: FileProperties, look: FileInfo) -> FileState:
    ensure = {"absent": ABSENT, "directory": DIRECTORY}.get(look.kind, PRESENT)
    is_there = look.uid >= 0
    return FileState(
        protocol=PROTOCOL,
        type="file",
        name=wanted.name,
        ensure=ensure,
        metadata=FileMetadata(
            name=wanted.name,
            owner=look.owner,
            group=look.group,
            mode=f"{look.mode & 0o777:04o}" if is_there else "",
            checksum=look.sha256,
            provider="posix",
            mtime=datetime.fromtimestamp(look.mtime_ns / 1e9, UTC) if is_there else None,
            size=look.size_bytes,
            uid=look.uid,
            gid=look.gid,
            link=look.link,
            error=look.error,
        ),
        source=UNSET,
    )


def _source_file(look: FileInfo, wanted_checksum: str) -> SourceFile:
    if look.kind == "file":
        error = look.error or (look.undigested if wanted_checksum else "")
        return SourceFile(path=look.path, checksum=look.sha256, size=look.size_bytes, error=error)
    errors = {
        "absent": "there is no such file",
        "directory": "this is a directory, not a file",
        "other": "this is a FIFO, socket or device, not a file",
    }
    return SourceFile(path=look.path, error=errors.get(look.kind, look.error))
