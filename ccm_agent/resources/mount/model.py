"""Properties and state of mount resources."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct

from ccm_agent.model.resource import ABSENT, PRESENT, CommonProperties, CommonState

__all__ = ["ABSENT", "MOUNTED", "PRESENT", "UNMOUNTED", "FstabEntry", "MountProperties", "MountState"]

MOUNTED = "mounted"
UNMOUNTED = "unmounted"

PASSWORD = re.compile(
    r"((?:^|,)(?:pass|passwd|password|password2|secret)=|(?:^|,)user(?:name)?=[^,%]*%)[^,]+", re.IGNORECASE
)
"""Matches a password in mount options. The first group is the text before the password."""

DEVICE_PASSWORD = re.compile(r"([/#][^/@:#\s]*:)[^/@\s]+(?=@)")
"""Matches a password in a device, such as `//user:password@nas/share`."""


class FstabEntry(Struct, frozen=True, kw_only=True):
    """A line of /etc/fstab without the mount point. Fields are unescaped; see fstab(5)."""

    device: str
    fstype: str
    options: str = "defaults"
    dump: int = 0
    passno: int = 0


class MountProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file system."""

    name: Annotated[
        str, Meta(description="Absolute path of the mount point. It is created if it does not exist.")
    ]
    ensure: Annotated[
        str,
        Meta(
            description="`mounted` (default), `unmounted` (only in `/etc/fstab`), `present` (in `/etc/fstab`, whether mounted or "
            "not) or `absent` (neither)."
        ),
    ] = ""
    device: Annotated[
        str,
        Meta(description="Device, `UUID=…`, `LABEL=…`, network share or `tmpfs`. Required unless `absent`."),
    ] = ""
    fstype: Annotated[
        str, Meta(description="Type of the file system, such as `ext4`. Required unless `absent`.")
    ] = ""
    options: Annotated[str, Meta(description="Mount options, separated by commas. Default: `defaults`.")] = (
        "defaults"
    )
    dump: Annotated[int, Meta(description="Whether dump(8) saves it: 0 (default) or 1.")] = 0
    passno: Annotated[
        int, Meta(description="When fsck(8) checks it at boot: 0 (default, never), 1 or 2.")
    ] = 0

    @property
    def entry(self) -> FstabEntry:
        """The desired entry."""
        return FstabEntry(
            device=self.device, fstype=self.fstype, options=self.options, dump=self.dump, passno=self.passno
        )

    @property
    def is_bind(self) -> bool:
        """Whether a directory is mounted instead of a device (bind mount)."""
        return not {"bind", "rbind"}.isdisjoint(self.options.split(","))


class MountState(CommonState, kw_only=True):
    """
    The current state of a file system. `ensure` is "mounted", "unmounted" (only the entry exists), or "absent".

    Attributes:
        entry: The entry in /etc/fstab; None if there is none.
        is_mounted: Whether a file system is mounted at the mount point.
        mounted_device, mounted_fstype: The device and type of the mounted file system; "" if there is none.
        kind: The kind of entry at the mount point if nothing is mounted: "directory", "absent", or another kind.
    """

    entry: FstabEntry | None = None
    is_mounted: bool = False
    mounted_device: str = ""
    mounted_fstype: str = ""
    kind: str = "directory"
