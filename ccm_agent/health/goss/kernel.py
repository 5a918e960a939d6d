"""Inspect kernel parameters, mounts, and content that the rule itself provides."""

from __future__ import annotations

import re
from typing import Any

from ccm_agent.health.goss.found import GossQuery, NoValue
from ccm_agent.model.errors import CommandError, FileError
from ccm_agent.model.ports import Command

LIMIT_BYTES = 16 << 20
MOUNT_MS = 1000.0
_PARAMETER = re.compile(r"[A-Za-z0-9_@:-]+(?:[./][A-Za-z0-9_@:-]+)*")
_ESCAPED = re.compile(r"\\([0-7]{3})")


async def look_at_parameter(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`. The value is text, as sysctl(8) prints it."""
    name = look.subject
    if not _PARAMETER.fullmatch(name):
        raise FileError(f"`{name}` is not a kernel parameter, such as net.core.somaxconn")
    path = "/proc/sys/" + (name if "/" in name else name.replace(".", "/"))
    try:
        text = (await look.host.files.read(path, LIMIT_BYTES)).decode(errors="replace")
    except FileError as err:
        return {"value": NoValue(err.message)}
    return {"value": text.strip()}


async def look_at_mount(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`. If a mount point has several mounts, the last one applies."""
    text = (await look.host.files.read("/proc/self/mountinfo", LIMIT_BYTES)).decode(errors="replace")
    found = mount_in(text, look.subject)
    if found is None:
        return {**dict.fromkeys(look.asked, NoValue("nothing is mounted there")), "exists": False}
    if "usage" in look.asked:
        found["usage"] = await _usage(look)
    return found


def mount_in(text: str, point: str) -> dict[str, Any] | None:
    """Find the mount at a mount point in the text of /proc/self/mountinfo; None if nothing is mounted there."""
    found: dict[str, Any] | None = None
    for line in text.split("\n"):
        mount, _, source = line.partition(" - ")
        fields, after = mount.split(" "), source.split(" ")
        if len(fields) > 5 and len(after) > 2 and _plain(fields[4]) == point:
            found = {
                "exists": True,
                "opts": list(dict.fromkeys(fields[5].split(","))),
                "vfs-opts": after[2].split(","),
                "source": _plain(after[1]),
                "filesystem": after[0],
            }
    return found


async def _usage(look: GossQuery) -> int:
    """Return the used space in percent, as df(1) computes it."""
    limit_s = look.limit_s(MOUNT_MS)
    argv = ("df", "-P", "--", look.subject)
    done = await look.host.runner.run(Command(argv=argv, time_limit_s=limit_s))
    if done.timed_out:
        raise CommandError(f"df did not end within {limit_s:g} s: does the file system hang?")
    lines = done.stdout.decode(errors="replace").splitlines()
    percent = re.search(r"\s(?:(\d+)%|-)\s", lines[-1]) if done.code == 0 and lines else None
    if percent is None:
        raise CommandError(f"df does not report the usage of {look.subject}")
    return int(percent[1] or 0)  # df prints `-` for file systems without a size, such as /proc


async def look_at_content(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`. The rule itself contains the content."""
    content = look.options.get("content")
    if look.options.get("as-reader"):
        from ccm_agent.health.goss.matchers import as_text

        content = as_text(content)
    return {"matches": content}


def _plain(text: str) -> str:
    """Decode the escapes in a path of mountinfo, such as `\\040` for a space."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
