"""Archives from web servers."""

from __future__ import annotations

import asyncio
import os
import posixpath
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from ccm_agent.model.errors import DownloadError, FileError
from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.ports import Download, FileInfo, Files, Packed, Transfer, Transferred, Unpack
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.secret import Secret, mask_url
from ccm_agent.resources.archive.model import (
    NEW_MODE,
    RIGHT_MODE,
    ArchiveMetadata,
    ArchiveProperties,
    ArchiveState,
)
from ccm_agent.resources.contract import OutputCallback

PROVIDER = "http"
PROTOCOL = "io.choria.ccm.v1.resource.archive.state"
LIMIT_BYTES = 1 << 40
TOLD_BYTES = 1 << 30
"""The largest archive whose checksum is reported if none is desired. Larger files are not read only for this report."""
PROGRESS_BYTES = 64 << 20
"""The number of bytes between two progress messages of a download."""


class Http:
    """The provider `http`: archives from web servers. The path of the archive never contains an incomplete archive."""

    def __init__(self, files: Files, download: Download, unpack: Unpack, say: OutputCallback) -> None:
        self._files = files
        self._download = download
        self._unpack = unpack
        self._say = say
        self._staged: dict[str, str] = {}
        self._got: dict[str, Transferred] = {}  # downloads of this run, by name
        self._deadline: dict[str, float] = {}

    async def status(self, wanted: ArchiveProperties) -> ArchiveState:
        """Return the current state. Raises FileError if the path exists and is not a file."""
        paths = [wanted.name, *([_absolute(wanted.creates)] if wanted.creates else [])]
        largest = LIMIT_BYTES if wanted.checksum else TOLD_BYTES
        archive, *creates = await self._files.inspect(paths, digest={wanted.name: [largest]})
        if archive.kind == "unreadable":
            raise FileError(f"{wanted.name}: cannot be read: {archive.error}")
        if archive.kind == "other":
            raise FileError(f"{wanted.name}: already exists, and is neither a file nor a directory")
        if archive.kind == "directory" and wanted.ensure != ABSENT:
            raise FileError(f"{wanted.name}: is a directory, not an archive; remove it first")
        is_there = archive.kind != ABSENT
        return ArchiveState(
            protocol=PROTOCOL,
            type="archive",
            name=wanted.name,
            ensure=PRESENT if is_there else ABSENT,
            metadata=metadata(wanted, archive, is_there, any(look.kind != ABSENT for look in creates)),
        )

    async def download(self, wanted: ArchiveProperties) -> None:
        """
        Download into a file next to the target.

        If `creates` is not set or its path already exists, it does not show whether the archive was unpacked. The archive is then
        moved to its path only after unpacking, so that an interrupted run repeats both steps.
        """
        # an unknown owner is reported before the download
        await self._files.ids(wanted.owner, wanted.group)
        async with self._limit(wanted):
            staged = posixpath.join(posixpath.dirname(wanted.name), f".ccm-{secrets.token_hex(8)}.part")
            await self._fetch(wanted, staged)
            if wanted.extract_parent and not await self._creates_will_tell(wanted):
                self._staged[wanted.name] = staged
            else:
                await self._put_in_place(wanted, staged)

    async def extract(self, wanted: ArchiveProperties) -> None:
        """Unpack the archive. If this fails, the archive is kept only if the missing path of `creates` shows the failure."""
        staged = self._staged.pop(wanted.name, "")
        got = self._got.pop(wanted.name, None)
        try:
            async with self._limit(wanted):
                packed = Packed(
                    path=staged or wanted.name,
                    kind=wanted.kind,
                    proof=_proof(wanted),
                    sha256=got.sha256 if got else wanted.checksum.lower(),
                    size_bytes=got.size_bytes if got else -1,
                    drop_special_bits=wanted.drop_special_bits,
                )
                await self._unpack.unpack(packed, wanted.extract_parent)
        except BaseException as err:
            if staged:
                await self._files.remove(staged)
            if isinstance(err, FileError) and staged:
                raise FileError(err.message.replace(staged, wanted.name), errno=err.errno) from err
            raise
        if staged:
            await self._put_in_place(wanted, staged)

    async def set_attributes(self, wanted: ArchiveProperties) -> None:
        """Set owner and group of the existing archive, and remove permissions beyond the maximum."""
        (look,) = await self._files.inspect([wanted.name], digest=False, follow=False)
        mode = look.mode & 0o7777
        if mode & ~RIGHT_MODE:
            mode = NEW_MODE
        await self._files.set_attributes(wanted.name, owner=wanted.owner, group=wanted.group, mode=mode)

    async def remove(self, wanted: ArchiveProperties) -> None:
        """Remove the archive file. Unpacked files are not removed."""
        await self._files.remove(wanted.name)

    async def _creates_will_tell(self, wanted: ArchiveProperties) -> bool:
        if not wanted.creates:
            return False
        (look,) = await self._files.inspect([_absolute(wanted.creates)], digest=False)
        return look.kind == ABSENT

    async def _fetch(self, wanted: ArchiveProperties, staged: str) -> None:
        transfer = Transfer(
            url=wanted.url,
            headers={name: Secret(value) for name, value in wanted.headers.items()},
            username=wanted.username,
            password=Secret(wanted.password) if wanted.password else None,
            limit_bytes=LIMIT_BYTES,
        )
        told = 0

        def on_progress(done: int, whole: int) -> None:
            nonlocal told
            if done - told >= PROGRESS_BYTES:
                told = done
                self._say(f"downloading {mask_url(wanted.url)}", done_mib=done >> 20, of_mib=whole >> 20)

        got = await self._download.save(transfer, staged, on_progress)
        if wanted.checksum and got.sha256 != wanted.checksum.lower():
            await self._files.remove(staged)
            raise DownloadError(
                f'download failed: checksum mismatch, expected "{wanted.checksum}" got "{got.sha256}"; '
                f"{mask_url(wanted.url)} was not put in place"
            )
        self._got[wanted.name] = got

    async def _put_in_place(self, wanted: ArchiveProperties, staged: str) -> None:
        try:
            await self._files.replace(
                staged, wanted.name, owner=wanted.owner, group=wanted.group, mode=NEW_MODE
            )
        except BaseException:
            await self._files.remove(staged)
            raise

    @asynccontextmanager
    async def _limit(self, wanted: ArchiveProperties) -> AsyncIterator[None]:
        """Apply the resource's time limit to all steps together."""
        if not wanted.timeout:
            yield
            return
        loop = asyncio.get_running_loop()
        deadline = self._deadline.setdefault(wanted.name, loop.time() + parse_duration(wanted.timeout))
        try:
            async with asyncio.timeout_at(deadline):
                yield
        except TimeoutError as err:
            raise DownloadError(
                f"{mask_url(wanted.url)}: not downloaded and unpacked within `timeout: {wanted.timeout}`"
            ) from err


def metadata(
    wanted: ArchiveProperties, archive: FileInfo, is_there: bool, creates_exists: bool
) -> ArchiveMetadata:
    """Return the state, based on the file's attributes."""
    if not is_there:
        return ArchiveMetadata(
            name=wanted.name, owner="", group="", creates_exists=creates_exists, provider=PROVIDER
        )
    return ArchiveMetadata(
        name=wanted.name,
        checksum=archive.sha256,
        archive_exists=True,
        creates_exists=creates_exists,
        owner=archive.owner,
        group=archive.group,
        mode=f"{archive.mode & 0o7777:04o}",
        uid=archive.uid,
        gid=archive.gid,
        mtime=datetime.fromtimestamp(archive.mtime_ns / 1e9, UTC),
        size=archive.size_bytes,
        provider=PROVIDER,
    )


def _proof(wanted: ArchiveProperties) -> str:
    """Return the path of `creates` within the archive; "" if `creates` is not in the directory to unpack into."""
    inside = wanted.extract_parent.rstrip("/") + "/"
    path = _absolute(wanted.creates) if wanted.creates else ""
    return path.removeprefix(inside) if path.startswith(inside) else ""


def _absolute(path: str) -> str:
    """Normalize a path by its text. A relative path starts in the working directory, as in Choria CCM."""
    return posixpath.normpath(path if path.startswith("/") else f"{os.getcwd()}/{path}")  # noqa: PTH109 - slow to import
