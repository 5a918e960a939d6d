"""
Reads and writes lines of /etc/fstab, and reads /proc/self/mountinfo.

Source: fstab(5), proc_pid_mountinfo(5), getmntent(3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ccm_agent.model.secret import MASK
from ccm_agent.resources.mount.model import DEVICE_PASSWORD, PASSWORD, FstabEntry

_ESCAPED = re.compile(r"\\([0-7]{3})")
_SPECIAL = re.compile(r"[ \t\\#]")
_BLANKS = re.compile(r"[ \t]+")
"""Field separators. str.split() is not used, because it also splits at other characters, such as a no-break space."""
_AUTOFS = "autofs"


def escape(field: str) -> str:
    """Escape a field for fstab. A space becomes `\\040`."""
    return _SPECIAL.sub(lambda found: f"\\{ord(found[0]):03o}", field)


def unescape(field: str) -> str:
    """Decode the octal escapes of a field."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), field)


def read_entries(lines: Sequence[str]) -> Mapping[str, FstabEntry]:
    """Return the entries by mount point. If a mount point has several entries, the first one is returned, as in mount(8)."""
    entries: dict[str, FstabEntry] = {}
    for line in lines:
        if parsed := _parse(line):
            entries.setdefault(*parsed)
    return entries


def with_entry(lines: Sequence[str], point: str, entry: FstabEntry) -> list[str]:
    """Return the lines with the mount point's first entry replaced. If there is no entry, the new one is added at the end."""
    fields = (entry.device, point, entry.fstype, entry.options, str(entry.dump), str(entry.passno))
    line = " ".join(escape(one) for one in fields)
    own = [index for index, one in enumerate(lines) if _point(one) == point]
    if not own:
        return [*lines, line]
    return [line if index == own[0] else one for index, one in enumerate(lines) if index not in own[1:]]


def without_entry(lines: Sequence[str], point: str) -> list[str]:
    """Return the lines, except the entries of a mount point."""
    return [one for one in lines if _point(one) != point]


def _point(line: str) -> str:
    parsed = _parse(line)
    return parsed[0] if parsed else ""


def _parse(line: str) -> tuple[str, FstabEntry] | None:
    fields = [unescape(one) for one in _BLANKS.split(line.strip(" \t\r"))]
    if len(fields) < 3 or line.lstrip(" \t").startswith("#") or not fields[1].startswith("/"):
        return None
    device, point, fstype, options, dump, passno = (*fields, *("defaults", "0", "0")[len(fields) - 3 :])[:6]
    point = point.rstrip("/") or "/"
    # mask passwords, because states and diffs are published
    options = PASSWORD.sub(rf"\1{MASK}", options)
    device = DEVICE_PASSWORD.sub(rf"\1{MASK}", device)
    return point, FstabEntry(
        device=device, fstype=fstype, options=options, dump=_number(dump), passno=_number(passno)
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else 0


def read_mounts(text: str) -> Mapping[str, tuple[str, str]]:
    """
    Return the device and type of each mounted file system by mount point. If several are mounted at the same point, the last one
    is returned, because it hides the others.

    An autofs mount point is omitted until something is mounted there.
    """
    mounts: dict[str, tuple[str, str]] = {}
    for line in text.split("\n"):
        front, separator, back = line.partition(" - ")
        fields, behind = front.split(" "), back.split(" ")
        if separator and len(fields) >= 6 and len(behind) >= 2 and behind[0] != _AUTOFS:
            mounts[unescape(fields[4])] = (unescape(behind[1]), behind[0])
    return mounts
