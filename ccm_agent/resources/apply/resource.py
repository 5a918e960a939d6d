"""Decides the steps of an apply resource. There is always exactly one step."""

from __future__ import annotations

import re

from ccm_agent.model.errors import Place, PropertyError
from ccm_agent.resources.apply.model import ApplyProperties, ApplyState
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def check(wanted: ApplyProperties) -> None:
    """Refuse a name that is a URL or looks like one."""
    if _SCHEME.match(wanted.name):
        message = f"`{wanted.name}` is a URL, and a child manifest must be a file; write ./ before a name with a colon"
        raise PropertyError(message, place=Place(path="$.name"))


def reach(wanted: ApplyProperties) -> HostAccess:
    """Return the child's file, which is read. The child's resources are checked one by one."""
    return HostAccess(reads=(wanted.name,))


def decide(wanted: ApplyProperties, found: ApplyState, context: DecisionContext) -> Decision:
    """Return the same step for every state, because the steps of the child's resources are decided separately."""
    return Decision(steps=(Step(noop="", action=lambda provider: provider.apply_manifest(wanted)),))


def has_changed(before: ApplyState, after: ApplyState) -> bool:
    """Whether a resource of the child changed."""
    return after.changed_count > 0
