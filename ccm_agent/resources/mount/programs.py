"""
Determines the programs and units that a mount starts because of its properties, for the node's policy.

Source: mount(8), sections "EXTERNAL HELPERS" and "COMMAND-LINE OPTIONS" (`uhelper`, `helper`); mount.fuse3(8); systemd.mount(5).
"""

from __future__ import annotations

from collections.abc import Iterator

from ccm_agent.resources.mount.model import ABSENT, MountProperties

_KERNEL_TYPES = """
    9p adfs affs auto befs bfs binfmt_misc bpf btrfs ceph cgroup cgroup2 cifs coda configfs cramfs debugfs devpts devtmpfs
    efivarfs efs erofs exfat ext2 ext3 ext4 f2fs gfs2 hfs hfsplus hpfs hugetlbfs iso9660 jffs2 jfs minix mqueue msdos nfs nfs4
    nilfs2 none ntfs3 ocfs2 omfs orangefs overlay proc pstore qnx4 qnx6 ramfs reiserfs romfs securityfs selinuxfs smb3 squashfs
    sysfs tmpfs tracefs ubifs udf ufs vfat virtiofs xfs zonefs
"""
KERNEL_TYPES = frozenset(_KERNEL_TYPES.split())
"""
The file systems that the kernel implements. For other types, mount runs the program `mount.TYPE`. With `fuse`, it can run any
program.
"""

_PROGRAM_OPTIONS = frozenset({"helper", "uhelper", "x-systemd.growfs", "x-systemd.makefs"})
"""Options that specify a program to run, or that run a program on the device."""
_UNIT_OPTIONS = frozenset({"x-systemd.requires", "x-systemd.wants"})


def programs_of(wanted: MountProperties) -> Iterator[str]:
    """Yield each property that runs a program, worded for the policy's message."""
    if wanted.ensure == ABSENT:
        return  # nothing is mounted, and no entry is written
    if wanted.fstype not in KERNEL_TYPES:
        yield f"`fstype: {wanted.fstype}` runs `mount.{wanted.fstype}`, so it"
    for name, _ in _options(wanted):
        if name in _PROGRAM_OPTIONS:
            yield f"`{name}` in `options` runs a program, so it"


def units_of(wanted: MountProperties) -> Iterator[str]:
    """Yield the units that are started with the mount."""
    for name, value in _options(wanted):
        if name in _UNIT_OPTIONS and wanted.ensure != ABSENT and value and not value.startswith("/"):
            yield value


def _options(wanted: MountProperties) -> Iterator[tuple[str, str]]:
    for option in wanted.options.split(","):
        name, _, value = option.partition("=")
        yield name, value.strip("\"'")
