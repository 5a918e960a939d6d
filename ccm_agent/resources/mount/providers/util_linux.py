"""
Manages file systems with mount(8) and umount(8).

Source: util-linux 2.38; fstab(5), mount(8), umount(8).
"""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import Files, Locks, Runner
from ccm_agent.resources.host_tools import run_tool
from ccm_agent.resources.mount.model import (
    ABSENT,
    MOUNTED,
    UNMOUNTED,
    FstabEntry,
    MountProperties,
    MountState,
)
from ccm_agent.resources.mount.resource import FSTAB
from ccm_agent.resources.mount.tables import read_entries, read_mounts, with_entry, without_entry
from ccm_agent.resources.shared_file import SharedFile

MOUNTS = "/proc/self/mountinfo"
MOUNTS_BYTES = 16 << 20
SYSTEMD = "/run/systemd/system"


class UtilLinux:
    """
    The provider `util_linux`: reads and changes file systems. All methods raise HostError if the operating system refuses an
    operation.

    Args:
        runner: Runs mount and umount.
        files: Reads /etc/fstab and the table of mounted file systems, and creates mount points.
        locks: Provides the lock of /etc/fstab.
    """

    def __init__(self, runner: Runner, files: Files, locks: Locks) -> None:
        self._runner = runner
        self._files = files
        self._fstab = SharedFile(files, locks, "fstab", removes_empty=False)

    async def status(self, wanted: MountProperties) -> MountState:
        """See `MountProvider`."""
        return (await self.look_ahead([wanted]))[0]

    async def look_ahead(self, wanted: Sequence[MountProperties]) -> list[MountState]:
        """Return the result of `status` for each mount point. Both tables are read once."""
        entries = read_entries(await self._fstab.read(FSTAB))
        content = await self._files.read(MOUNTS, MOUNTS_BYTES)
        mounts = read_mounts(content.decode(errors="replace"))
        # do not inspect mounted file systems, because this would block if a network share does not answer
        bare = [one.name for one in wanted if one.name not in mounts]
        looks = await self._files.inspect(bare, digest=False, follow=False) if bare else []
        kinds = {look.path: look.kind for look in looks}
        return [
            _state(one, entries.get(one.name), mounts.get(one.name), kinds.get(one.name, "directory"))
            for one in wanted
        ]

    async def create_directory(self, wanted: MountProperties) -> None:
        """Create the mount point."""
        await self._files.set_attributes(wanted.name, mode=0o755, directory=True)

    async def mount(self, wanted: MountProperties) -> None:
        """Mount the file system."""
        await self._refuse_links(wanted.name)
        argv = ("mount", "-t", wanted.fstype, "-o", wanted.options, "--", wanted.device, wanted.name)
        await run_tool(self._runner, f"{wanted.name} cannot be mounted", *argv)

    async def _refuse_links(self, point: str) -> None:
        """Refuse a path to the mount point with another user's symlink, because mount(8) would follow it to any location."""
        above = ["/".join(point.split("/")[:end]) for end in range(2, point.count("/") + 1)]
        for look in await self._files.inspect(above, digest=False, follow=False) if above else ():
            if look.kind == "symlink" and look.uid != 0:
                raise FileError(
                    f"{point} cannot be mounted: {look.path} is a symlink that does not belong to root; name the real path"
                )

    async def remount(self, wanted: MountProperties, device: str) -> None:
        """Change the options of a mounted file system. `device` is its current device."""
        # pass the device, because otherwise mount merges the old options in fstab into the new options
        argv = ("mount", "-o", f"remount,{wanted.options}", "--", device, wanted.name)
        await run_tool(self._runner, f"{wanted.name} cannot be remounted", *argv)

    async def unmount(self, wanted: MountProperties) -> None:
        """Unmount the file system, without the lazy and force options."""
        await run_tool(self._runner, f"{wanted.name} cannot be unmounted", "umount", "--", wanted.name)

    async def write_entry(self, wanted: MountProperties) -> None:
        """Write the entry to /etc/fstab atomically. Other lines are kept."""
        await self._fstab.edit(FSTAB, lambda lines: with_entry(lines, wanted.name, wanted.entry))
        await self._reload()

    async def remove_entry(self, wanted: MountProperties) -> None:
        """Remove the entry from /etc/fstab."""
        await self._fstab.edit(FSTAB, lambda lines: without_entry(lines, wanted.name))
        await self._reload()

    async def _reload(self) -> None:
        """
        Make systemd read the new fstab. Otherwise systemd unmounts a file system that does not match its old unit for the mount
        point.
        """
        (look,) = await self._files.inspect([SYSTEMD], digest=False)
        if look.kind == "directory":
            await run_tool(
                self._runner,
                "systemd cannot load the new /etc/fstab",
                "systemctl",
                "--system",
                "daemon-reload",
            )


def _state(
    wanted: MountProperties, entry: FstabEntry | None, mounted: tuple[str, str] | None, kind: str
) -> MountState:
    device, fstype = mounted or ("", "")
    return MountState(
        protocol="io.choria.ccm.v1.resource.mount.state",
        type="mount",
        name=wanted.name,
        ensure=MOUNTED if mounted else UNMOUNTED if entry else ABSENT,
        entry=entry,
        is_mounted=mounted is not None,
        mounted_device=device,
        mounted_fstype=fstype,
        kind=kind,
    )
