"""Decides the steps of a sysctl resource. No I/O."""

from __future__ import annotations

import re

from ccm_agent.model.errors import FileError
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.checks import check_each, refuse
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.sysctl.model import SysctlProperties, SysctlState, normal, parameter_path

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@+-]*")
FILE = re.compile(r"/etc/sysctl\.d/[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]*\.conf|/etc/sysctl\.conf")
NAME_LENGTH = 255
VALUE_BYTES = 4000
"""The maximum size of a value. The kernel accepts at most one page per write, including the newline."""


def check(wanted: SysctlProperties) -> None:
    """Refuse names, values and files that sysctl or the kernel could misinterpret."""
    check_each(wanted, _check_name, _check_presence, _check_values, _check_file)


def _check_name(wanted: SysctlProperties) -> None:
    name = wanted.name
    if len(name) > NAME_LENGTH:
        refuse(
            f"the name of a kernel parameter can have at most {NAME_LENGTH} characters, not {len(name)}",
            "name",
        )
    if not NAME.fullmatch(name):
        refuse(
            f"{name!r} is not the name of a kernel parameter: only letters, digits and `_./@+-` are allowed, as in "
            "`vm.swappiness`",
            "name",
        )
    parts = parameter_path(name).split("/")
    if any(part in ("", ".", "..") for part in parts[1:]) or len(parts) < 5:
        refuse(f"{name!r} is not the name of a kernel parameter; write it as in `vm.swappiness`", "name")


def _check_presence(wanted: SysctlProperties) -> None:
    if wanted.ensure == PRESENT and not wanted.value.strip():
        refuse("`value` is required: the value of the parameter", "value")
    if wanted.ensure == ABSENT and wanted.value:
        refuse(
            "`value` cannot be used with `ensure: absent`; `live_value` sets the value in the running kernel",
            "value",
        )
    if wanted.live_value and not wanted.apply:
        refuse("`live_value` cannot be used with `apply: false`", "live_value")


def _check_values(wanted: SysctlProperties) -> None:
    for field, value in (("value", wanted.value), ("live_value", wanted.live_value)):
        if any((ord(one) < 32 and one != "\t") or ord(one) == 127 for one in value):
            refuse(f"`{field}` has a newline or another control character", field)
        if len(value.encode(errors="replace")) > VALUE_BYTES:
            refuse(f"`{field}` is longer than {VALUE_BYTES} bytes, which the kernel does not accept", field)
        if value != value.strip():
            refuse(f"`{field}` begins or ends with a space", field)


def _check_file(wanted: SysctlProperties) -> None:
    if not FILE.fullmatch(wanted.file) or ".." in wanted.file or len(wanted.file) > NAME_LENGTH:
        refuse(
            f"`file` must be `/etc/sysctl.d/NAME.conf` or `/etc/sysctl.conf`, not {wanted.file[:NAME_LENGTH]!r}",
            "file",
        )


def reach(wanted: SysctlProperties) -> HostAccess:
    """Return the host objects that the resource accesses; see `ResourceType`."""
    # this also applies with `apply: false`: the line takes effect at the next boot, and kernel.core_pattern runs programs as
    # root
    return HostAccess(paths=(wanted.file, parameter_path(wanted.name)))


def decide(wanted: SysctlProperties, found: SysctlState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the sysctl type; see docs/resources/sysctl.md."""
    sets_live = _sets_live(wanted, found)
    if problem := _problem(wanted, found, sets_live=sets_live):
        return Decision(error=FileError(problem))
    steps: list[Step] = []
    reasons: list[str] = []
    changes: list[PropertyChange] = []
    if sets_live:
        # set the live value before the file is written, because a value that the kernel refuses must not be set at each boot
        live = wanted.wanted_live
        steps.append(
            Step(noop=f"Would have set the live value to {live}", action=lambda p: p.set_live(wanted))
        )
        reasons.append(f"the live value is {found.live_value!r}, wanted {live!r}")
        changes.append(PropertyChange(property="live_value", before=found.live_value, after=live))
    if wanted.ensure == ABSENT and found.ensure != ABSENT:
        noop = f"Would have removed the parameter from {wanted.file}"
        steps.append(Step(noop=noop, action=lambda p: p.remove_line(wanted)))
        reasons.append(f"{wanted.file} has a line for it")
        changes.append(PropertyChange(property="value", before=found.value, after=""))
    elif wanted.ensure == PRESENT and (found.ensure == ABSENT or normal(found.value) != normal(wanted.value)):
        noop = f"Would have written the value {wanted.value} to {wanted.file}"
        steps.append(Step(noop=noop, action=lambda p: p.write_line(wanted)))
        reasons.append(f"{wanted.file} has {found.value!r}, wanted {wanted.value!r}")
        changes.append(PropertyChange(property="value", before=found.value, after=wanted.value))
    return Decision(steps=tuple(steps), reason="; ".join(reasons), changes=tuple(changes))


def _sets_live(wanted: SysctlProperties, found: SysctlState) -> bool:
    live = wanted.wanted_live
    return live != "" and found.exists and normal(found.live_value) != normal(live)


def _problem(wanted: SysctlProperties, found: SysctlState, *, sets_live: bool) -> str:
    """Return the reason why the parameter cannot be managed here; "" if it can."""
    name, live = wanted.name, wanted.wanted_live
    if not found.exists and (live or wanted.ensure == PRESENT) and not wanted.ignore_missing:
        return (
            f"the kernel has no parameter {name} ({parameter_path(name)} does not exist): load the module that provides it, or "
            "set `ignore_missing: true`"
        )
    if live and found.exists and found.error:
        return f"the live value of {name} cannot be read: {found.error}"
    if sets_live and found.is_read_only:
        return (
            f"the live value of {name} cannot be set: /proc/sys is read-only here, as in most containers; set it on the "
            "container's host, or set `apply: false` to manage the file only"
        )
    return ""
