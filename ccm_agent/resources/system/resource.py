"""Decides the steps of a system resource. No I/O."""

from __future__ import annotations

import re

from ccm_agent.model.errors import FileError
from ccm_agent.model.resource import ABSENT
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.checks import check_each, refuse
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.system.model import (
    DEBIAN_LOCALE_FILE,
    HOSTNAME,
    HOSTNAME_FILE,
    KERNEL_HOSTNAME,
    LOCALE,
    LOCALE_FILE,
    SETTINGS,
    TIMEZONE,
    ZONE_FILE,
    ZONE_LINK,
    ZONES,
    SystemProperties,
    SystemState,
)

HOSTNAME_LENGTH = 64
"""HOST_NAME_MAX of Linux; see gethostname(2)."""
LENGTH = 255
SHOWN = 100
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_ZONE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_][A-Za-z0-9_+-]*)*")
_LOCALE = re.compile(r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)?(?:\.[A-Za-z0-9-]+)?(?:@[A-Za-z0-9]+)?")
_PLACES = {
    HOSTNAME: (KERNEL_HOSTNAME, HOSTNAME_FILE),
    TIMEZONE: (ZONE_LINK, ZONE_FILE),
    LOCALE: (LOCALE_FILE, DEBIAN_LOCALE_FILE),
}
"""The possible locations of each setting."""


def check(wanted: SystemProperties) -> None:
    """Refuse unknown settings, and values that could add a line to a file or change a path."""
    check_each(wanted, _check_name, _check_presence, _check_value)


def _check_name(wanted: SystemProperties) -> None:
    if wanted.name not in SETTINGS:
        refuse(f"unknown setting {wanted.name[:SHOWN]!r}; the settings are {', '.join(SETTINGS)}", "name")


def _check_presence(wanted: SystemProperties) -> None:
    if wanted.ensure != ABSENT and not wanted.value:
        refuse("`value` is required", "value")
    if wanted.ensure == ABSENT and wanted.value:
        refuse("`value` cannot be used with `ensure: absent`", "value")
    if wanted.ensure == ABSENT and wanted.name == HOSTNAME:
        refuse("a host name cannot be absent", "ensure")


def _check_value(wanted: SystemProperties) -> None:
    value, shown = wanted.value, repr(wanted.value[:SHOWN])
    if not value:
        return
    if wanted.name == HOSTNAME:
        is_valid = all(_LABEL.fullmatch(one) for one in value.split("."))
        if not is_valid or len(value) > HOSTNAME_LENGTH:
            refuse(
                f"{shown} is not a host name: letters, digits and `-`, in parts separated by dots, at most {HOSTNAME_LENGTH} "
                "characters",
                "value",
            )
    elif wanted.name == TIMEZONE and value == "localtime":
        refuse(
            "`localtime` is /etc/localtime itself; write the name of a zone, such as `Europe/Berlin`", "value"
        )
    elif wanted.name == TIMEZONE and (not _ZONE.fullmatch(value) or len(value) > LENGTH):
        refuse(f"{shown} is not a time zone, such as `Europe/Berlin` or `UTC`", "value")
    elif wanted.name == LOCALE and (not _LOCALE.fullmatch(value) or len(value) > LENGTH):
        refuse(f"{shown} is not a locale, such as `de_DE.UTF-8` or `C.UTF-8`", "value")


def reach(wanted: SystemProperties) -> HostAccess:
    """Return the host objects that the resource accesses; see `ResourceType`."""
    return HostAccess(paths=_PLACES.get(wanted.name, ()))


def decide(wanted: SystemProperties, found: SystemState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the system type; see docs/resources/system.md."""
    if not found.is_available:
        return Decision(error=FileError(_problem(wanted)))
    # with `absent`, no value is desired
    changes = tuple(
        PropertyChange(property=place, before=value, after=wanted.value)
        for place, value in found.values.items()
        if value != wanted.value
    )
    reason = "; ".join(f"{one.property} is {one.before!r}, wanted {one.after!r}" for one in changes)
    return Decision(steps=tuple(map(_step, changes)), reason=reason, changes=changes)


def _step(change: PropertyChange) -> Step:
    place, value = change.property, change.after
    noop = f"Would have set {place} to {value}" if value else f"Would have removed the value of {place}"
    return Step(noop=noop, action=lambda p: p.set(place, value))


def _problem(wanted: SystemProperties) -> str:
    """Return the reason why the desired value is not supported."""
    if wanted.name == TIMEZONE:
        return f"there is no time zone {wanted.value} in {ZONES}: install `tzdata`, or correct the name"
    return (
        f"`locale -a` does not list {wanted.value}: generate it with `locale-gen` (Debian), install its `glibc-langpack` (dnf "
        "systems), or correct the name"
    )
