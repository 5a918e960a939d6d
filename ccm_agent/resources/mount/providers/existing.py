"""Finds the file systems in /etc/fstab, for `ccm import mount`."""

from __future__ import annotations

from typing import Any

import msgspec

from ccm_agent.model.secret import MASK
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.existing import ExistingBuilder, ExistingResources, refuse_argument
from ccm_agent.resources.mount.model import MOUNTED, PRESENT, MountProperties
from ccm_agent.resources.mount.providers.util_linux import UtilLinux
from ccm_agent.resources.mount.resource import FSTAB, KEPT, check
from ccm_agent.resources.mount.tables import read_entries
from ccm_agent.resources.shared_file import SharedFile

INSTALLED = KEPT | {"/boot", "/boot/efi", "/efi"}
"""Mount points that are not imported, because their entries refer to the disks of one machine."""


async def find_mounts(context: ResourceContext, argument: str) -> ExistingResources:
    """
    Return the entries of /etc/fstab, except the entries that the distribution's installer writes.

    Raises:
        UsageError: An argument was given.
        FileError: /etc/fstab or the mounted file systems cannot be read.
    """
    refuse_argument("mount", argument)
    locks = context.port("locks")
    entries = read_entries(await SharedFile(context.files, locks, "fstab").read(FSTAB))
    points = [point for point in entries if point not in INSTALLED]
    states = await UtilLinux(context.runner, context.files, locks).look_ahead(
        [MountProperties(name=point) for point in points]
    )
    builder = ExistingBuilder("mount", MountProperties, check)
    for point, state in zip(points, states, strict=True):
        entry: dict[str, Any] = msgspec.to_builtins(entries[point])
        if MASK in f"{entry['device']} {entry['options']}":
            builder.leave_out(point, "has a password; use `credentials=FILE`")
        elif entry["fstype"] == "swap":
            builder.leave_out(point, "is swap, which `mount` does not manage")
        else:
            builder.add(point, {"ensure": MOUNTED if state.is_mounted else PRESENT, **entry})
    return builder.result()
