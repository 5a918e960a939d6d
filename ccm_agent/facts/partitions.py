"""`partition`: mounted filesystems with persistent data, and their usage."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

_OCTAL = re.compile(r"\\([0-7]{3})")


def gather(root: Path = Path("/")) -> dict[str, Any]:
    """Return the `partition` family, read from the proc below `root`."""
    proc = root / "proc"
    try:
        mounts = (proc / "1/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        # PID 1 is another user's process; our own process has the same mounts, unless it has a separate mount
        # namespace
        mounts = (proc / "self/mountinfo").read_text(errors="surrogateescape")
    partitions = parse_mountinfo(mounts, parse_filesystems((proc / "filesystems").read_text()))
    usage = [used for one in partitions if (used := _usage(one["mountpoint"], one["fstype"])) is not None]
    return {"partitions": partitions, "usage": usage}


def parse_filesystems(text: str) -> frozenset[str]:
    """
    Return the filesystem types that store data on a device, from /proc/filesystems, and zfs, which is
    listed as "nodev".
    """
    kinds = set()
    for line in text.splitlines():
        nodev, _, kind = line.partition("\t")
        if kind and (not nodev or kind == "zfs"):
            kinds.add(kind.strip())
    return frozenset(kinds)


def parse_mountinfo(text: str, kinds: frozenset[str]) -> list[dict[str, Any]]:
    """
    Read /proc/PID/mountinfo.

    Args:
        text: Lines of `36 35 98:0 /root /mountpoint rw,noatime master:1 - ext3 /dev/sda1 rw`.
        kinds: The filesystem types to keep; bind mounts are left out.

    Returns:
        Device, mount point, type and options, in mount order.

    Source: proc_pid_mountinfo(5); samples in tests/unit/facts/data/mountinfo_*.txt.
    """
    partitions = []
    devices: dict[str, str] = {}
    for line in text.splitlines():
        left, mark, right = line.partition(" - ")
        mount, system = left.split(), right.split()
        if not mark or len(mount) < 6 or len(system) < 2 or system[0] not in kinds:
            continue
        number, inside, point, options = mount[2], mount[3], _unescape(mount[4]), mount[5].split(",")
        super_options = system[2].split(",") if len(system) > 2 else []
        source = _unescape(system[1]) if system[1].startswith("/") or inside == "/" else inside
        source = devices.setdefault(number, source)
        if inside != "/" and system[1].startswith("/") and f"subvol={inside}" not in super_options:
            continue
        if "ro" in super_options and "rw" in options:
            options[options.index("rw")] = "ro"
        partitions.append({"device": source, "mountpoint": point, "fstype": system[0], "opts": options})
    return partitions


def _usage(path: str, kind: str) -> dict[str, Any] | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    unit = found.f_frsize
    used, free = (found.f_blocks - found.f_bfree) * unit, found.f_bavail * unit
    inodes_used = max(found.f_files - found.f_ffree, 0)
    return {
        "path": path,
        "fstype": kind,
        "total": found.f_blocks * unit,
        "free": free,
        "used": used,
        # relative to the space for ordinary users: blocks reserved for root are neither used nor free
        "usedPercent": used / (used + free) * 100 if used + free else 0.0,
        "inodesTotal": found.f_files,
        "inodesUsed": inodes_used,
        "inodesFree": found.f_ffree,
        "inodesUsedPercent": inodes_used / found.f_files * 100 if found.f_files else 0.0,
    }


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)
