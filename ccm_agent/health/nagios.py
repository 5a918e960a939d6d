"""Checks in the format of Nagios plugins: the exit status is the result, and standard output describes it."""

from __future__ import annotations

import shlex

from ccm_agent.health.host import HealthCheckHost
from ccm_agent.model.errors import CommandError
from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.health import HealthCheck, HealthResult, HealthStatus
from ccm_agent.model.ports import Command, Completed

OUTPUT_LIMIT_BYTES = 64 * 1024
"""The maximum size of the output. Plugins usually print a few lines. If there is more, only the end is kept."""


async def attempt(check: HealthCheck, host: HealthCheckHost) -> HealthResult:
    """
    Run the command once, without a shell, in `/`, with a minimal environment.

    Returns UNKNOWN with the reason if the command cannot be started or times out. It never raises.
    """
    try:
        argv = shlex.split(check.command)
    except ValueError as err:
        return _unknown(f"the command cannot be read as words: {err}")
    limit_s = max(0.0, parse_duration(check.timeout)) if check.timeout else 0.0
    command = Command(argv=tuple(argv), output_limit_bytes=OUTPUT_LIMIT_BYTES, time_limit_s=limit_s)
    try:
        done = await host.runner.run(command)
    except CommandError as err:
        return _unknown(err.message)
    if done.timed_out:
        return _unknown(f"did not end within {check.timeout}")
    return HealthResult(status=_status(done), output=done.stdout.decode(errors="replace").strip())


def _status(done: Completed) -> int:
    return done.code if done.code in (0, 1, 2) else HealthStatus.UNKNOWN


def _unknown(why: str) -> HealthResult:
    return HealthResult(status=HealthStatus.UNKNOWN, output=why)
