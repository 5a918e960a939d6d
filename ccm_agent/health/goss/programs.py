"""Inspect packages, services, processes, and the output of commands."""

from __future__ import annotations

import re
from typing import Any

from ccm_agent.health.goss.found import GossQuery, NoValue
from ccm_agent.model.errors import CommandError
from ccm_agent.model.ports import Command, Completed

PROGRAM_LIMIT_S = 30.0
"""The time limit of a query in seconds. A query that takes longer is treated as hanging."""
COMMAND_MS = 10_000.0
"""The default timeout of a rule's command in milliseconds, as in goss."""
NAME_LIMIT_BYTES = 15
"""The kernel truncates a program's name to this many bytes."""

_DPKG_STATUS = "/var/lib/dpkg/status"
_SYSTEMD_RUNS = "/run/systemd/system"
"""The directory that sd_booted(3) checks."""
_START_LINK = re.compile(
    r"/etc/rc(?P<sysv>\d+)\.d/S\d\d(?P<s>[^/]+)|/etc/runlevels/(?P<openrc>[^/]+)/(?P<o>[^/]+)"
)
_RPM_FORMAT = "%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\\n"


async def look_at_package(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`."""
    name = look.subject
    if not name or name.startswith("-"):
        raise CommandError(f"`{name}` is not the name of a package")
    database = (await look.host.files.inspect([_DPKG_STATUS], digest=False))[0]
    if database.size_bytes:
        done = await _run(look, "dpkg-query", "-W", "-f", "${Status} ${Version}\\n", "--", name)
        rows = [line.split(" ") for line in _lines(done)]
        versions = [
            row[3] for row in rows if row[0] in ("install", "hold") and row[1:3] == ["ok", "installed"]
        ]
    else:
        done = await _run(look, "rpm", "-q", "--nosignature", "--nodigest", "--qf", _RPM_FORMAT, "--", name)
        versions = _lines(done) if done.code == 0 else []
    return {
        "installed": bool(versions),
        "versions": versions or NoValue("the package is not installed"),
    }


async def look_at_service(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`. Uses systemd's `is-enabled` and `is-active`, as goss does."""
    values: dict[str, Any] = {}
    for attribute, verb in (("enabled", "is-enabled"), ("running", "is-active")):
        if attribute in look.asked:
            done = await _run(look, "systemctl", "--quiet", verb, "--", look.subject)
            values[attribute] = done.code == 0
    if "runlevels" in look.asked:
        values["runlevels"] = await _run_levels(look)
    return values


async def _run_levels(look: GossQuery) -> list[str]:
    """
    Return the run levels in which a System V or OpenRC host starts a service.

    As in goss, a host with systemd has no run levels, because systemd enables units for targets, even if links remain in
    /etc/rc*.d.
    """
    if (await look.host.files.inspect([_SYSTEMD_RUNS], digest=False))[0].kind == "directory":
        return []
    done = await _run(look, "find", "/etc", "-mindepth", "2", "-maxdepth", "3", "-path", "/etc/r*/*")
    found = [match for line in _lines(done) if (match := _START_LINK.fullmatch(line))]
    return sorted(
        {match["sysv"] or match["openrc"] for match in found if look.subject in match.group("s", "o")}
    )


async def look_at_process(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`. The name is the one in `/proc/PID/comm`."""
    done = await _run(
        look, "find", "/proc", "-mindepth", "2", "-maxdepth", "2", "-name", "comm", "-exec", "cat", "{}", "+"
    )
    names = _lines(done)
    if not names:
        raise CommandError(f"/proc cannot be read: {_tail(done)}")
    if "find" in names:
        names.remove("find")  # pgrep found its own process
    wanted = look.subject.encode()[:NAME_LIMIT_BYTES].decode(errors="replace")
    return {"running": wanted in names}


async def look_at_command(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`. The command is a shell command line, as in goss. It comes from the manifest."""
    limit_s = look.limit_s(COMMAND_MS)
    command = Command(argv=("sh", "-c", look.subject), time_limit_s=limit_s)
    done = await look.host.runner.run(command)
    if done.timed_out:
        return dict.fromkeys(look.asked, NoValue(f"the command did not end within {limit_s:g} s"))
    return {
        "exit-status": max(done.code, -1),  # -1 if a signal ended the command, as in goss
        "stdout": done.stdout.decode(errors="replace"),
        "stderr": done.stderr.decode(errors="replace"),
    }


async def _run(look: GossQuery, *argv: str) -> Completed:
    done = await look.host.runner.run(Command(argv=argv, time_limit_s=PROGRAM_LIMIT_S))
    if done.timed_out:
        raise CommandError(f"{argv[0]} did not end within {PROGRAM_LIMIT_S:g} s")
    return done


def _lines(done: Completed) -> list[str]:
    return [line for line in done.stdout.decode(errors="replace").split("\n") if line]


def _tail(done: Completed) -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {done.code}"
