"""Decides the steps of a symlink resource. No I/O."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from msgspec.structs import replace

from ccm_agent.model.errors import FileError
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.checks import check_each, check_path_name, check_path_text, refuse
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.owners import is_same_owner
from ccm_agent.resources.symlink.model import SymlinkProperties, SymlinkState

REPLACEABLE = ("file", "directory")
"""The kinds of entries that `force` may replace or remove."""


def check(wanted: SymlinkProperties) -> None:
    """Refuse invalid properties."""
    check_each(
        wanted,
        _check_name,
        _check_target,
        lambda wanted: check_path_text(wanted.owner, "owner"),
        lambda wanted: check_path_text(wanted.group, "group"),
    )


def _check_name(wanted: SymlinkProperties) -> None:
    name = wanted.name
    check_path_name(name, "symlink")
    if name == "/":
        refuse("the root of the file system cannot be a symlink", "name")


def _check_target(wanted: SymlinkProperties) -> None:
    target = wanted.target
    if not target:
        if wanted.ensure != ABSENT:
            refuse("`target` is required: the path that the symlink points to", "target")
        return
    check_path_text(target, "target")
    if is_own_target(wanted.name, target):
        refuse("`target` is the symlink itself", "target")


def is_own_target(name: str, target: str) -> bool:
    """Whether a symlink would refer to itself."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) == name


def reach(wanted: SymlinkProperties) -> HostAccess:
    """Return the host objects that the resource accesses; see `ResourceType`."""
    return HostAccess(paths=(wanted.name,))


def decide(wanted: SymlinkProperties, found: SymlinkState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the symlink type; see docs/resources/symlink.md."""
    if found.error:
        return Decision(error=FileError(f"{wanted.name} cannot be read: {found.error}"))
    if why := _why_kept(wanted, found):
        return Decision(error=FileError(f"{wanted.name} {why}"))
    if wanted.ensure == ABSENT:
        return _absent(wanted, found)
    # with `ignore: [target]`, an existing symlink keeps its target
    wanted = replace(wanted, target=wanted.target or found.target)
    changes = tuple(_changes(wanted, found))
    if not changes:
        return Decision()
    verb = {ABSENT: "created", PRESENT: "changed"}.get(found.ensure, f"replaced the {found.ensure} with")
    return Decision(
        steps=(Step(noop=f"Would have {verb} the symlink", action=lambda p: p.link(wanted)),),
        reason=f"{changes[0].property} mismatch: found {changes[0].before or 'none'}, wanted {changes[0].after}",
        changes=changes,
    )


def _absent(wanted: SymlinkProperties, found: SymlinkState) -> Decision:
    if found.ensure == ABSENT:
        return Decision()
    what = "symlink" if found.ensure == PRESENT else found.ensure
    return Decision(
        steps=(Step(noop=f"Would have removed the {what}", action=lambda p: p.remove(wanted)),),
        reason=f"it still exists: found {what}",
        changes=(
            PropertyChange(property="ensure", before=found.ensure, after=ABSENT),
            *([PropertyChange(property="target", before=found.target, after="")] if found.target else []),
        ),
    )


def _why_kept(wanted: SymlinkProperties, found: SymlinkState) -> str:
    """Return the reason why the existing entry at the symlink's path must not be replaced; "" if it may be."""
    kind = found.ensure
    if kind in (PRESENT, ABSENT):
        return ""
    if kind not in REPLACEABLE:
        return "is a FIFO, socket or device, not a symlink; remove it yourself"
    if kind == "directory" and not found.is_empty:
        return "is a directory with content, not a symlink; move the content away"
    if not wanted.force:
        return f"is a {kind}, not a symlink; `force: true` replaces or removes it"
    if wanted.ensure == PRESENT and not wanted.target:
        return f"is a {kind}, and `ignore` contains `target`, so it was kept"
    return ""


def _changes(wanted: SymlinkProperties, found: SymlinkState) -> Iterator[PropertyChange]:
    if found.ensure != PRESENT:
        yield PropertyChange(property="ensure", before=found.ensure, after=PRESENT)
    if found.target != wanted.target:
        yield PropertyChange(property="target", before=found.target, after=wanted.target)
    if wanted.owner and not is_same_owner(wanted.owner, found.owner, found.uid):
        yield PropertyChange(property="owner", before=found.owner, after=wanted.owner)
    if wanted.group and not is_same_owner(wanted.group, found.group, found.gid):
        yield PropertyChange(property="group", before=found.group, after=wanted.group)
