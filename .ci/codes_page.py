"""The error codes, in Markdown: those of error classes from their docstrings, and the others from the table in this module."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from docstrings import first_sentence
from tables import plain, table

OTHER_CODES = {
    "agent.disabled": "An operator disabled the node, and the request would change it.",
    "assignment.conflict": "Another assignment of the node manages the same resource.",
    "assignment.outranked": "A rollout released a revision where another assignment of the name takes precedence.",
    "assignment.superseded": "A rollout released a revision that is no longer assigned.",
    "assignment.vanished": "The assignment is no longer in its bucket.",
    "ccm.fault": "The agent failed unexpectedly during a run; its log has the traceback.",
    "ccm.internal": "A resource failed unexpectedly; the log has the traceback.",
    "dashboard.defect": "The dashboard failed unexpectedly; its log has the traceback.",
    "dashboard.refused": "The dashboard refuses the request, which may come from another site.",
    "dashboard.signed_out": "The browser is not signed in.",
    "dashboard.token": "The token in the dashboard's address is unknown, used or expired.",
    "host.health": "A health check of the resource failed.",
    "identity.duplicate": "Another agent uses the identity of the node.",
    "join.away": "The node was away for too long, so it left.",
    "join.bad_name": "The node's name is not valid.",
    "join.certificate": "The node's certificate is not valid. Join again.",
    "join.clock": "The node's clock differs by more than five minutes.",
    "join.configured": "The agent's configuration names another broker or node.",
    "join.dropped": "The request is too large, or its sender was refused too often.",
    "join.expired": "The node's credentials have expired. Join again.",
    "join.expired_token": "The join token has expired.",
    "join.leaving": "A `ccm leave` was interrupted; repeat it.",
    "join.left": "The node has left the fleet.",
    "join.malformed": "A request to join cannot be read.",
    "join.name": "The join token is for other names.",
    "join.name_taken": "The name belongs to another node.",
    "join.no_answer": "No join service answered.",
    "join.no_signers": "The fleet has no signers list for the node.",
    "join.not_accepted": "No operator accepted the node in time.",
    "join.other_fleet": "The node belongs to another fleet.",
    "join.other_name": "The node has joined under another name.",
    "join.refused": "The join service refused the node.",
    "join.revoked": "The key of the node was revoked.",
    "join.revoked_token": "The join token was revoked.",
    "join.service": "The join service failed; its operator may lack a right.",
    "join.signature": "A request to join is not signed by node and token.",
    "join.stale_signers": "The join service cannot rely on its signers list.",
    "join.token_rights": "The token assigns a role, but its author may not assign facts.",
    "join.unknown_token": "The fleet does not know the join token.",
    "join.untrusted_answer": "The fleet of the token did not sign the answers.",
    "join.used_up": "The join token is used up.",
    "join.waiting": "An operator must accept the node.",
    "lock.many": "The node has too many locks.",
    "lock.resource": "A request for locks names no resource, or one that is not `type#name`.",
    "lock.time": "A request for locks names no end, or one that is too far away.",
    "lock.unreadable": "The node cannot read its file of locks, so all resources are locked until it is unlocked.",
    "maintenance.past": "The end of disabling a node has passed.",
    "maintenance.why": "A request to disable or lock gives no reason.",
    "policy.broken": "The node's policy cannot be read, so the node refuses everything.",
    "policy.command": "The node's policy forbids a command that the resource runs.",
    "policy.mode": "The node's policy lets the operator plan but not apply.",
    "policy.package": "The node's policy forbids the package.",
    "policy.path": "The node's policy forbids the path.",
    "policy.registration": "The node's policy forbids the registration of services.",
    "policy.service": "The node's policy forbids the service.",
    "policy.source": "The node's policy forbids reading the file or fetching the URL.",
    "policy.type": "The node's policy forbids resources of the type.",
    "policy.unknown": "A restricted plan runs no commands, but only a command could predict the changes.",
    "policy.unsigned": "The node's policy forbids unsigned software.",
    "queue.full": "The queue of the node is full.",
    "request.unknown": "The agent does not know the kind of request; it may be older than the controller.",
    "resource.locked": "An operator locked the resource on the node.",
    "resource.not_selected": "The operator selected other resources.",
    "run.expired": "The deadline passed before the run started.",
    "run.interrupted": "The agent stopped or crashed during the run.",
    "run.paused": "The run paused, and another process of the agent continues it.",
    "run.stopped": "An operator stopped the run.",
    "run.superseded": "A newer request with that name and action replaced this one.",
    "run.unknown": "A stop names no run.",
    "run.unreceived": "The run was stopped before the node received its request.",
    "target.mismatch": "The node no longer matches the target of the request.",
}
"""Codes that do not belong to an error class."""


def error_codes() -> str:
    """Return every code with its meaning, in the order of the codes."""
    found = {**OTHER_CODES, **dict(_class_codes())}
    rows = [[f"`{code}`", plain(text)] for code, text in sorted(found.items())]
    return table(["Code", "Meaning"], rows)


def _class_codes() -> Iterator[tuple[str, str]]:
    import ccm_agent
    import ccm_ctl
    from ccm_agent.model.errors import CcmError

    for package in (ccm_agent, ccm_ctl):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    kinds = [CcmError]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if isinstance(code := kind.__dict__.get("code"), str) and kind.__module__.startswith(
            ("ccm_agent", "ccm_ctl")
        ):
            yield code, first_sentence(kind)
