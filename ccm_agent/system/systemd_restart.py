"""
Determines whether systemd is restarting or stopping this process. Both begin with SIGTERM.

Source: systemctl(1), `list-jobs`. A job of the type `restart` is listed from before the stop until after the start (verified with
systemd 252, Debian 12).
"""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

from ccm_agent.model.errors import CommandError
from ccm_agent.model.ports import Command, Runner

log = logging.getLogger(__name__)

ASK_LIMIT_S = 5.0
"""The maximum time to wait for the reply of systemctl, in seconds. This process stops even without a reply."""

_UNIT = re.compile(r"/([^/]+\.service)$", re.MULTILINE)


async def is_restarting(runner: Runner, cgroups: Path = Path("/proc/self/cgroup")) -> bool:
    """Return whether this process belongs to a unit with a pending restart job."""
    try:
        unit = find_unit(await asyncio.to_thread(cgroups.read_text, encoding="utf-8"))
        if not unit:
            return False
        argv = ("systemctl", "list-jobs", "--no-legend", "--plain", "--no-pager", unit)
        done = await runner.run(Command(argv=argv, time_limit_s=ASK_LIMIT_S))
    except (OSError, CommandError) as err:
        log.info("cannot determine whether this is a restart", extra={"reason": str(err)})
        return False
    return any(is_restart(line, unit) for line in done.stdout.decode(errors="replace").splitlines())


def find_unit(cgroups: str) -> str:
    """
    Return the service of a process; "" if it does not belong to a service.

    Args:
        cgroups: The content of /proc/PID/cgroup: one line, or one line per hierarchy. systemd's own hierarchy is `name=systemd`.
    """
    own = [line for line in cgroups.splitlines() if line.startswith("0::/") or ":name=systemd:/" in line]
    found = _UNIT.search("\n".join(own))
    return found[1] if found else ""


def is_restart(line: str, unit: str) -> bool:
    """Whether a line of `systemctl list-jobs` (number, unit, type, state) is about a restart of the unit."""
    words = line.split()
    return len(words) >= 3 and words[1] == unit and words[2] in ("restart", "try-restart")
