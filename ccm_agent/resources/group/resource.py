"""Decides the steps of a group resource. No I/O."""

from __future__ import annotations

from ccm_agent.model.errors import DesiredStateError, Place, PropertyError
from ccm_agent.model.resource import ABSENT
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.account_files import GROUP, GSHADOW, PASSWD
from ccm_agent.resources.account_names import check_exclusive, check_name, check_names, merge
from ccm_agent.resources.checks import check_each
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.group.model import GroupProperties, GroupState

ROOT = "root"


def check(wanted: GroupProperties) -> None:
    """Refuse invalid properties."""
    check_each(
        wanted,
        lambda wanted: check_name(wanted.name, "group", "name"),
        _check_gid,
        lambda wanted: check_names(wanted.members, "user", "members"),
        lambda wanted: check_exclusive(
            wanted.members, is_exclusive=wanted.members_exclusive, field="members"
        ),
    )


def _check_gid(wanted: GroupProperties) -> None:
    if wanted.gid == 0 and wanted.name != ROOT:
        raise PropertyError("`gid: 0` is root's group; choose another number", place=Place(path="$.gid"))


def reach(wanted: GroupProperties) -> HostAccess:
    """Return the host objects that the resource accesses; see `ResourceType`."""
    primary = (PASSWD,) if wanted.gid is not None else ()
    return HostAccess(paths=(GROUP, GSHADOW, *primary))


def decide(wanted: GroupProperties, found: GroupState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the group type; see docs/resources/group.md."""
    is_absent = found.ensure == ABSENT
    if found.metadata.gid == 0 and (wanted.ensure == ABSENT or wanted.gid not in (None, 0)):
        what = "removed" if wanted.ensure == ABSENT else "given another number"
        return Decision(error=DesiredStateError(f"the group {wanted.name} has gid 0, so it is not {what}"))
    if wanted.ensure == ABSENT:
        return Decision() if is_absent else _remove(wanted, found)
    name = wanted.name
    steps: list[Step] = []
    changes: list[PropertyChange] = []
    if is_absent:
        steps.append(Step(noop="Would have created the group", action=lambda p: p.create(wanted)))
        changes.append(PropertyChange(property="ensure", before=ABSENT, after=wanted.ensure))
    if wanted.gid is not None and wanted.gid != found.metadata.gid:
        gid = wanted.gid
        if not is_absent:
            noop = f"Would have changed the gid to {gid}"
            steps.append(Step(noop=noop, action=lambda p: p.set_gid(name, gid)))
        before = "" if is_absent else str(found.metadata.gid)
        changes.append(PropertyChange(property="gid", before=before, after=str(gid)))
    _members(wanted, found, steps, changes)
    reason = "; ".join(
        f"{one.property} mismatch: found {one.before or 'none'}, wanted {one.after or 'none'}"
        for one in changes
    )
    return Decision(steps=tuple(steps), reason=reason, changes=tuple(changes))


def _remove(wanted: GroupProperties, found: GroupState) -> Decision:
    return Decision(
        steps=(Step(noop="Would have removed the group", action=lambda p: p.remove(wanted.name)),),
        reason="the group still exists",
        changes=(PropertyChange(property="ensure", before=found.ensure, after=ABSENT),),
    )


def _members(
    wanted: GroupProperties, found: GroupState, steps: list[Step], changes: list[PropertyChange]
) -> None:
    if wanted.members is None:
        return
    name, current = wanted.name, found.metadata.members
    after = merge(current, wanted.members, is_exclusive=wanted.members_exclusive)
    if after == current:
        return
    missing = [one for one in after if one not in current]
    if wanted.members_exclusive:
        steps.append(Step(noop="Would have set the members", action=lambda p: p.set_members(name, after)))
    else:
        steps.append(Step(noop="Would have added members", action=lambda p: p.add_members(name, missing)))
    changes.append(PropertyChange(property="members", before=",".join(current), after=",".join(after)))
