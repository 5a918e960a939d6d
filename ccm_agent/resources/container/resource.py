"""Decides the steps of a container resource. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from ccm_agent.model.errors import FileError
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.container.checks import sources
from ccm_agent.resources.container.model import (
    RUNNING,
    SECRET_MODE,
    STOPPED,
    ContainerProperties,
    ContainerState,
)
from ccm_agent.resources.container.quadlet import render, render_variables
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step

ACTIVE = frozenset({"active", "reloading"})
UNHEALTHY = "unhealthy"
_AT_REST = frozenset({"", "inactive", "failed"})
_NO_QUADLET = (
    "this host cannot run quadlets: install podman 4.4 or later, which Debian 13, Fedora and the current EL releases have "
    "(Debian 12 has 4.3); or write the unit with `systemd_unit`"
)
_OUTDATED = "systemd has not loaded the current quadlet, so the container may use an earlier version"
_NOT_ASKED = "the state of the container is not read"


def reach(wanted: ContainerProperties) -> HostAccess:
    """Return the host objects that the resource accesses; see `ResourceType`."""
    mounted = tuple(sources(wanted))
    return HostAccess(
        paths=(wanted.path, wanted.variables_path),
        trees=tuple(path for path, is_writable in mounted if is_writable),
        reads=tuple(wanted.environment_files),
        reads_trees=tuple(path for path, is_writable in mounted if not is_writable),
        services=(wanted.unit,),
    )


def decide(wanted: ContainerProperties, found: ContainerState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the container type; see docs/resources/container.md."""
    for path, kind in ((wanted.path, found.kind), (wanted.variables_path, found.variables_kind)):
        if kind not in ("absent", "file"):
            return Decision(error=FileError(f"{path} is not a regular file: it is a {kind}"))
    if found.error:
        return Decision(error=FileError(found.error))
    if found.is_foreign:
        why = f"{wanted.path} was not written by the type `container`, so it was kept: remove it by hand"
        return Decision(error=FileError(why))
    if wanted.ensure == ABSENT:
        return _decide_absent(wanted, found)
    # in a noop run, an earlier resource may be the one that installs podman
    if not found.has_quadlet and not context.noop:
        return Decision(error=FileError(_NO_QUADLET))
    if found.unsafe_link and wanted.ensure != STOPPED:
        return Decision(error=FileError(describe_unsafe_link(found.unsafe_link)))
    difference = _difference(wanted, found)
    if not difference and not found.active and context.is_restricted and wanted.ensure != PRESENT:
        return Decision(unknown=_NOT_ASKED)
    refreshed = bool(context.triggered_by) and not context.verifying and found.active in ACTIVE
    refreshed = refreshed and wanted.ensure == RUNNING
    steps = tuple(_steps(wanted, found, context, differs=bool(difference), refreshed=refreshed))
    return Decision(
        steps=steps,
        reason=difference or _run_difference(wanted, found) or (steps and _OUTDATED) or "",
        refreshed=refreshed,
        changes=tuple(_changes(wanted, found)) if steps else (),
        contents=(lambda p: p.compare(wanted)) if difference else None,
    )


def describe_unsafe_link(path: str) -> str:
    """Return the error for a symlink in the path of a volume."""
    return (
        f"{path} is a symlink that a user other than root can replace, and podman would follow it as root: use the path of its "
        "target"
    )


def _decide_absent(wanted: ContainerProperties, found: ContainerState) -> Decision:
    steps = []
    if found.active not in ("", "inactive") and found.kind == "file":
        steps.append(Step(noop="Would have stopped the container", action=lambda p: p.stop(wanted)))
    if found.kind == "file" or found.variables_kind == "file":
        steps.append(Step(noop="Would have removed the container", action=lambda p: p.remove(wanted)))
    return Decision(
        steps=tuple(steps),
        reason=f"{wanted.path} or {wanted.variables_path} exists" if steps else "",
        changes=tuple(_changes(wanted, found)) if steps else (),
        contents=(lambda p: p.compare(wanted)) if steps else None,
    )


def _steps(
    wanted: ContainerProperties,
    found: ContainerState,
    context: DecisionContext,
    *,
    differs: bool,
    refreshed: bool,
) -> Iterator[Step]:
    is_active = found.active in ACTIVE
    if differs:
        verb = "created" if found.kind == "absent" else "changed"
        yield Step(noop=f"Would have {verb} the container", action=lambda p: p.store(wanted))
    elif _is_outdated(found, context):
        yield Step(noop="Would have reloaded systemd", action=lambda p: p.reload(wanted))
    if wanted.ensure == STOPPED and found.active not in _AT_REST:
        yield Step(noop="Would have stopped the container", action=lambda p: p.stop(wanted))
    elif wanted.ensure == RUNNING and not is_active:
        yield Step(noop="Would have started the container", action=lambda p: p.start(wanted))
    elif wanted.ensure == RUNNING and (
        differs or refreshed or found.health == UNHEALTHY or _is_outdated(found, context)
    ):
        noop = "Would have restarted via subscribe" if refreshed else "Would have restarted the container"
        yield Step(noop=noop, action=lambda p: p.restart(wanted))


def _is_outdated(found: ContainerState, context: DecisionContext) -> bool:
    """Whether systemd has not read the current files: a run was killed after it wrote them, or another program changed them."""
    return found.needs_reload and not context.verifying


def _difference(wanted: ContainerProperties, found: ContainerState) -> str:
    mode = f"{wanted.mode_bits:04o}"
    variables = render_variables(wanted)
    if found.kind == "absent":
        return f"{wanted.path} does not exist"
    if found.checksum != digest(render(wanted)):
        return f"{wanted.path} has different content"
    if (found.mode, found.uid) != (mode, 0):
        return f"{wanted.path} has mode {found.mode} and owner {found.uid}, wanted {mode} and 0"
    if not variables:
        return "" if found.variables_kind == "absent" else f"{wanted.variables_path} exists"
    if found.variables_checksum != digest(variables):
        return f"{wanted.variables_path} has different variables"
    if (found.variables_mode, found.variables_uid) != (f"{SECRET_MODE:04o}", 0):
        return f"{wanted.variables_path} has mode {found.variables_mode} and owner {found.variables_uid}, wanted 0600 and 0"
    return ""


def _run_difference(wanted: ContainerProperties, found: ContainerState) -> str:
    if wanted.ensure == RUNNING and found.health == UNHEALTHY:
        return "the container is unhealthy"
    is_wrong = found.active not in (ACTIVE if wanted.ensure == RUNNING else _AT_REST)
    if wanted.ensure != PRESENT and is_wrong:
        return f"{wanted.unit} is {found.active or 'unknown'}, expected {wanted.ensure}"
    return ""


def _changes(wanted: ContainerProperties, found: ContainerState) -> Iterator[PropertyChange]:
    # with `present`, it is not managed whether the container runs
    before = PRESENT if wanted.ensure == PRESENT and found.ensure != ABSENT else found.ensure
    if before != wanted.ensure:
        yield PropertyChange(property="ensure", before=before, after=wanted.ensure)
    if wanted.ensure != ABSENT and found.image and found.image != wanted.image:
        yield PropertyChange(property="image", before=found.image, after=wanted.image)
    if found.health == UNHEALTHY:
        yield PropertyChange(property="health", before=UNHEALTHY, after="healthy")


def digest(content: bytes) -> str:
    """Return the SHA-256 of the content."""
    return hashlib.sha256(content).hexdigest()
