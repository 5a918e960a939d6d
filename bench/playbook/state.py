"""
The state of a container after a run: every file that changed since its creation, and its packages, units and kernel settings.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import testenv

OF_A_RUN = re.compile(
    r"/(?:dev|proc|run|sys|tmp|old|work)(?:/|$)"
    r"|/var/(?:log|cache|tmp|lib/(?:apt|ccm|dpkg|systemd|private))(?:/|$)"
    r"|/root/(?:\.ansible|\.cache|downloads)(?:/|$)"
    r"|/etc/(?:machine-id|\.pwd\.lock|(?:passwd|group|shadow|gshadow|subuid|subgid)-)$"
    r"|/etc/machine-info$"
    r"|.*/__pycache__(?:/|$)"
)
"""
Paths that differ between two runs of the same program, or that a program uses only itself. `machine-info` contains the pretty
host name, which Ansible sets together with the host name.
"""

BLANKS = re.compile(rb"[ \t]*=[ \t]*|[ \t]+")
COMMENTED = ("/etc/cron.d/", "/etc/sysctl.d/", "/etc/hosts")
"""Files whose comments name their author, and in which the number of blanks between words does not matter."""

LIVE = {
    "packages": "dpkg-query -W -f '${Package} ${Version} ${db:Status-Status}\\n'",
    "units": "systemctl list-unit-files --no-legend --plain --type=service,timer; "
    "systemctl list-units --no-legend --plain --type=service --state=active,failed | grep -v ^downloads",
    "limits of nginx": "systemctl show -P LimitNOFILE nginx; systemctl show -P NeedDaemonReload nginx app",
    "host name": "hostname",
    "sysctls": "cd /proc/sys/net/ipv4 && grep . tcp_syncookies conf/all/*",
    "page": "python3 -c \"import urllib.request as r; a = r.urlopen('http://localhost/'); print(a.headers['Server'], a.read())\"",
}
"""Shell commands that print state that is not in files."""


def differences(one: testenv.Node, other: testenv.Node) -> tuple[int, list[str]]:
    """Return the number of paths changed in two containers with the same base, and the differences between them as text lines."""
    paths = changed(one) | changed(other)
    found = [
        f"{path}: {mine} against {theirs}"
        for path in sorted(paths)
        if (mine := shown(one, path)) != (theirs := shown(other, path))
    ]
    for name, command in LIVE.items():
        mine, theirs = (set(node.run("sh", "-c", command).stdout.splitlines()) for node in (one, other))
        found += [f"{name}: {line}" for line in sorted(mine ^ theirs)]
    return len(paths), found


def changed(node: testenv.Node) -> set[str]:
    """Return the paths that differ from the base."""
    upper = node.dir / "upper"
    found = set()
    for folder, folders, files in os.walk(upper):
        here = f"/{Path(folder).relative_to(upper)}".removesuffix("/.")
        folders[:] = [name for name in folders if not OF_A_RUN.match(f"{here}/{name}")]
        found |= {path for name in (*folders, *files) if not OF_A_RUN.match(path := f"{here}/{name}")}
    return found


def shown(node: testenv.Node, path: str) -> str:
    """Describe a path in the container: kind, owner and mode, and its content or target."""
    real = Path(node.path(path))
    try:
        info = real.lstat()
    except FileNotFoundError:
        return "absent"
    about = f"{stat.filemode(info.st_mode)} {info.st_uid}:{info.st_gid}"
    if stat.S_ISLNK(info.st_mode):
        return f"{about} to {real.readlink()}"
    if not stat.S_ISREG(info.st_mode):
        return about
    text = real.read_bytes()
    if path.startswith(COMMENTED):
        kept = (line.strip() for line in text.splitlines() if line.strip() and not line.startswith(b"#"))
        text = b"\n".join(BLANKS.sub(b" ", line) for line in kept)
    return f"{about} {hashlib.sha256(text).hexdigest()[:12]} {text[-200:]!r}"
