"""Manages symlinks of this host through the files port."""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import FileInfo, Files
from ccm_agent.model.resource import PRESENT
from ccm_agent.resources.symlink.model import SymlinkProperties, SymlinkState


class PosixSymlink:
    """
    The provider for Unix-like systems. It reads and changes symlinks, and never follows them.

    All methods raise HostError if the operating system refuses an operation.

    Args:
        files: The port.
    """

    def __init__(self, files: Files) -> None:
        self._files = files

    async def status(self, wanted: SymlinkProperties) -> SymlinkState:
        """See `SymlinkProvider`."""
        return (await self.look_ahead([wanted]))[0]

    async def look_ahead(self, wanted: Sequence[SymlinkProperties]) -> list[SymlinkState]:
        """Return the result of `status` for each symlink."""
        looks = await self._files.inspect([one.name for one in wanted], digest=False, follow=False)
        return [await self._state(one, look) for one, look in zip(wanted, looks, strict=True)]

    async def link(self, wanted: SymlinkProperties) -> None:
        """Create or replace the symlink atomically. With `force`, also replace a file or an empty directory."""
        await self._files.link(
            wanted.name, wanted.target, owner=wanted.owner, group=wanted.group, force=wanted.force
        )

    async def remove(self, wanted: SymlinkProperties) -> None:
        """Remove the entry at the path, unless it is a non-empty directory."""
        await self._files.remove(wanted.name)

    async def _state(self, wanted: SymlinkProperties, look: FileInfo) -> SymlinkState:
        owner, group = await self._names(wanted, look)
        return SymlinkState(
            protocol="io.choria.ccm.v1.resource.symlink.state",
            type="symlink",
            name=wanted.name,
            ensure=PRESENT if look.kind == "symlink" else look.kind,
            # a state is published and must be valid UTF-8
            target=look.link.encode(errors="surrogateescape").decode(errors="replace"),
            owner=owner,
            group=group,
            uid=look.uid,
            gid=look.gid,
            is_empty=look.is_empty,
            error=look.error,
        )

    async def _names(self, wanted: SymlinkProperties, look: FileInfo) -> tuple[str, str]:
        """
        Return the current owner and group. The desired names are returned if they have the same IDs, because an ID may have
        several names.
        """
        if look.uid < 0 or (wanted.owner in ("", look.owner) and wanted.group in ("", look.group)):
            return look.owner, look.group
        try:
            uid, gid = await self._files.ids(wanted.owner, wanted.group)
        except FileError:
            return look.owner, look.group  # a desired name is unknown; the change will report this error
        return (
            wanted.owner if uid == look.uid else look.owner,
            wanted.group if gid == look.gid else look.group,
        )
