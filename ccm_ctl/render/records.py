"""
The records that `ccmctl --json` prints, by name; `clikit.records` writes them.

Scripts rely on the shapes: fields are added, never changed. `record_types` describes them, and so does docs/reference/json.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.clikit.text import short_id
from ccm_agent.model.records.run_records import UNDO

if TYPE_CHECKING:
    from ccm_agent.model.records.run_records import RunRecord

RUN = "run"
"""A run: what was asked of how many nodes, or its entry in the list of runs."""
EVENT = "event"
"""An event of a node, as it is on the bus."""
RESULT = "result"
"""The state of a node in a run; a later record of the same node replaces it."""
OUTPUT = "output"
"""How the command of `exec` ended on a node, and what it wrote."""
END = "end"
"""A run has ended: nodes by state, and the exit code."""
ROLLOUT = "rollout"
"""The state of a rollout: phase, wave, and driver."""
ROLLOUT_SERVER = "rollout_server"
"""A rollout server that runs."""
NOTIFICATION_RULE = "notification_rule"
"""A rule that reports what happens in the fleet."""
GROUP = "group"
"""A saved selector."""
SLOT = "slot"
"""A node that holds a slot, or waits for one."""
IMPACT = "impact"
"""What a rollout would do to one service."""
IMPACT_SUMMARY = "impact_summary"
"""What the numbers of the impact count."""
NODE = "node"
REPLY = "reply"
LOCK = "lock"
FACTS = "facts"
DOCUMENT = "document"
MADE = "made"
SECRET = "secret"
"""A secret, without its value."""
SECRET_REVISION = "secret_revision"
SECRET_NODE = "secret_node"
"""A node that can, could or should be able to open a secret."""
SIGNER = "signer"
TOKEN = "token"
"""A join token."""
JOIN = "join"
"""The result of a node's request to join or to renew its credentials."""
SCHEDULE = "schedule"
SCHEDULED_START = "scheduled_start"
"""The result of a start of a scheduled rollout."""
ASSIGNMENT = "assignment"
"""An assignment, or a revision of one."""
BUNDLE = "bundle"
"""A bundle in the object store, and what needs it."""
STANDING = "standing"
"""The state of a node in an assignment."""
WHY = "why"
"""Why a node is as it is."""
EXPLAINED = "explained"
"""Where a value of hiera data comes from."""
LEFT = "left"
"""A node or operator that still has credentials of the layout with one account."""
CHECK = "check"
"""What one check of `doctor` found."""
CHECKS = "checks"
"""The checks of `doctor` by state, and the exit code."""
VERIFICATION = "verification"
"""What verifying the stored events of a node found."""
AUDIT = "audit"
"""An entry of the audit trail."""
AUDIT_AUTHOR = "audit_author"
"""What the check of one author's entries in the audit trail found."""
SESSION = "session"
"""A session in the history of a node."""
STATE = "state"
"""The state of a resource of a node, now or at a time."""
DIFFERENCE = "difference"
"""How the results of two runs differ on a node."""


def title_of(record: RunRecord) -> str:
    """What a run does, in a few words. Of an undo the run that it undoes, because any name can stand in a record."""
    undone = str(record.request.get("undo", "")) if record.action == UNDO else ""
    return f"{record.action} {short_id(undone) if undone else record.name}"


def run_fields(record: RunRecord) -> dict[str, Any]:
    """A run as it was requested: for programs, and for the pages of the dashboard."""
    return {
        "run": record.run,
        "action": record.action,
        "name": record.name,
        "requester": record.requester,
        "time": record.time,
        "targets": record.targets,
        "where": record.where or None,
        "message": record.message or None,
        "nodes": record.nodes,
        "offline": record.offline,
    }
