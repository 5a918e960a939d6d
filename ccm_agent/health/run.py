"""Run the health checks of a resource: choose the format, repeat failed tries, and pause between them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from ccm_agent.health import nagios
from ccm_agent.health.host import HealthCheckHost
from ccm_agent.model.errors import DocumentError, PropertyError
from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.health import HealthCheck, HealthResult, HealthStatus
from ccm_agent.model.suggestions import did_you_mean

Attempt = Callable[[HealthCheck, HealthCheckHost], Awaitable[HealthResult]]
"""Runs a check once in one format. Returns UNKNOWN with a reason instead of raising."""


async def _goss(check: HealthCheck, host: HealthCheckHost) -> HealthResult:
    from ccm_agent.health.goss.check import attempt  # manifests without goss rules do not need this module

    return await attempt(check, host)


FORMATS: dict[str, Attempt] = {"nagios": nagios.attempt, "goss": _goss}
"""The function that runs each format. A new format needs a module in this folder and an entry here."""

_BY_KEY = {"command": "nagios", "goss_rules": "goss"}


def normalise(check: HealthCheck) -> HealthCheck:
    """
    Return a check with its format and name set, as shown in events.

    Raises:
        PropertyError: The check has both or neither of `command` and `goss_rules`, or a value in it is not valid.
    """
    command = check.command.strip()
    # an empty mapping is allowed here; the check fails when it runs
    given = [
        key for key, value in (("command", command), ("goss_rules", check.goss_rules)) if value or value == {}
    ]
    if len(given) != 1:
        what = (
            "both `command` and `goss_rules`; use one"
            if given
            else "neither `command` nor `goss_rules`; add one"
        )
        raise PropertyError(f"a health check has {what}")
    wanted = _BY_KEY[given[0]]
    if check.format not in ("", wanted):
        hint = did_you_mean(check.format, _BY_KEY.values()) if check.format not in _BY_KEY.values() else ""
        raise PropertyError(
            f"the format `{check.format}` cannot be used with `{given[0]}`{hint}; leave it out or write {wanted}"
        )
    if check.tries < 0:
        raise PropertyError(f"`tries` of a health check is {check.tries}: write 1 or more")
    for field in ("timeout", "try_sleep"):
        _check_duration(field, getattr(check, field))
    if wanted == "goss":
        _check_form(check.goss_rules)
    name = check.name or _base_name(command)
    return msgspec.structs.replace(check, command=command, format=wanted, name=name)


async def run_check(check: HealthCheck, host: HealthCheckHost) -> HealthResult:
    """
    Run a normalized check until it is OK or no tries are left, and return the result of the last try.

    There is no pause between tries unless `try_sleep` is set, as in Choria CCM.
    """
    attempt = FORMATS.get(check.format)
    if attempt is None:
        why = f"this program cannot run checks of the format {check.format}"
        return HealthResult(status=HealthStatus.UNKNOWN, output=why, name=check.name)
    tries = max(1, check.tries)
    pause_s = parse_duration(check.try_sleep) if check.try_sleep else 0.0
    result = HealthResult(status=HealthStatus.UNKNOWN)
    for number in range(1, tries + 1):
        result = await attempt(check, host)
        result = msgspec.structs.replace(result, tries=number, name=check.name)
        if result.status == HealthStatus.OK or number == tries:
            break
        if pause_s > 0:
            await host.clock.sleep(pause_s)
    return result


def _base_name(command: str) -> str:
    # Choria CCM's default name of a check: Go's filepath.Base of the whole command line
    return command.rstrip("/").rpartition("/")[2]


def _check_form(rules: object) -> None:
    """Refuse rules that are not a mapping. Other mistakes make the check UNKNOWN when it runs."""
    from ccm_agent.health.goss.gossfiles import read_mapping
    from ccm_agent.health.goss.rules import holds_templates

    if not holds_templates(rules):
        read_mapping(rules)


def _check_duration(field: str, text: str) -> None:
    if not text:
        return
    try:
        parse_duration(text)  # negative durations are ignored, as in Choria CCM
    except DocumentError as err:
        raise PropertyError(f"`{field}` of a health check: {err.message}") from err
