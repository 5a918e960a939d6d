"""Decides what an apply resource needs: always to be applied."""

from __future__ import annotations

import re

from ccm_agent.model.errors import Place, PropertyError
from ccm_agent.resources.apply.model import ApplyProperties, ApplyState
from ccm_agent.resources.contract import Decision, DecisionContext, Reach, Step

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def check(wanted: ApplyProperties) -> None:
    """Refuse what is not a path: a URL, or a name that looks like one."""
    if _SCHEME.match(wanted.name):
        message = f"`{wanted.name}` is a URL, and a child manifest must be a file; write ./ before a name with a colon"
        raise PropertyError(message, place=Place(path="$.name"))


def reach(wanted: ApplyProperties) -> Reach:
    """The child's file is read; what is in it is judged resource by resource."""
    return Reach(reads=(wanted.name,))


def decide(wanted: ApplyProperties, found: ApplyState, context: DecisionContext) -> Decision:
    """One step, whatever was found: whether something is to be done is decided by the child's resources."""
    return Decision(steps=(Step(noop="", action=lambda provider: provider.apply_manifest(wanted)),))


def has_changed(before: ApplyState, after: ApplyState) -> bool:
    """Some resource of the child changed."""
    return after.changed_count > 0
