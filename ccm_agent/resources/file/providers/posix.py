"""Files of this host, through the files port."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import UNSET

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import CopyOf, FileLook, Files
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.file.model import DIRECTORY, FileMetadata, FileProperties, FileState, SourceFile

PROTOCOL = "io.choria.ccm.v1.resource.file.state"


class Posix:
    """
    The provider of every Unix.

    Args:
        files: The port.
        directory: Where relative sources begin.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    async def status(self, wanted: FileProperties) -> FileState:
        """See `FileProvider`."""
        state = (await self.look_ahead([wanted]))[0]
        if state is None:
            raise FileError(
                f"{wanted.name} is a FIFO, socket or device; only files, directories and symlinks to them can be managed"
            )
        return state

    async def look_ahead(self, wanted: Sequence[FileProperties]) -> list[FileState | None]:
        """What `status` gives for each; None for what it refuses."""
        sources = [self._source(one) for one in wanted]
        asked = [one.name for one in wanted]
        asked += [source for source in sources if source]
        looks = {look.path: look for look in await self._files.look(asked)}
        found: list[FileState | None] = []
        for one, source in zip(wanted, sources, strict=True):
            look = looks[one.name]
            if look.kind == "other":
                found.append(None)
                continue
            state = _state(one, look)
            if source:
                state.source = _source_file(looks[source])
            await self._name_alike(one, look, state.metadata)
            found.append(state)
        return found

    async def store(self, wanted: FileProperties) -> None:
        """See `FileProvider`."""
        source = self._source(wanted)
        await self._files.store(
            wanted.name,
            CopyOf(source) if source else (wanted.content or "").encode(),
            owner=wanted.owner,
            group=wanted.group,
            mode=wanted.mode_bits,
        )

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

    def _source(self, wanted: FileProperties) -> str:
        """The source as an absolute path; "" when there is none, or nobody needs it."""
        if not wanted.source or wanted.ensure != PRESENT:
            return ""
        return posixpath.normpath(posixpath.join(self._directory, wanted.source))

    async def _name_alike(self, wanted: FileProperties, look: FileLook, metadata: FileMetadata) -> None:
        """A user may have several names: one that is wanted and means the owner found is the owner's name too."""
        if look.uid < 0 or (wanted.owner in ("", look.owner) and wanted.group in ("", look.group)):
            return
        try:
            uid, gid = await self._files.ids(wanted.owner, wanted.group)
        except FileError:
            return  # nobody of that name: it differs from what was found, and a change will say why it cannot be
        if uid == look.uid and not wanted.owner.isdigit():
            metadata.owner = wanted.owner
        if gid == look.gid and not wanted.group.isdigit():
            metadata.group = wanted.group


def _state(wanted: FileProperties, look: FileLook) -> FileState:
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


def _source_file(look: FileLook) -> SourceFile:
    if look.kind == "file":
        return SourceFile(path=look.path, checksum=look.sha256, error=look.error)
    error = {
        "absent": "there is no such file",
        "directory": "this is a directory, not a file",
        "other": "this is a FIFO, socket or device, not a file",
    }
    return SourceFile(path=look.path, error=error.get(look.kind, look.error))
