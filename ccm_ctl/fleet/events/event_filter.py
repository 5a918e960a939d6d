"""
Conditions on events, in the expression language of manifests.

    changed && type == "file" && name startsWith "/etc/nginx"
    kind == "summary" && state == "failed" && origin == "nightly"

Every name has a value for every event. If the event does not contain the value, it is false, 0, "" or an empty list. A condition
about resources is therefore false for other events, and does not cause an error.
"""

from __future__ import annotations

from typing import Any

from ccm_agent.model.errors import ExpressionError, UsageError
from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.wire import AgentEvent, Answer, Progress
from ccm_agent.templates.allowance import Allowance
from ccm_agent.templates.expr.program import ExpressionNames, Program, compile_expression
from ccm_ctl.fleet.events.messages import AgentMessage

LENGTH_LIMIT = 4096
"""The maximum length of a condition in characters."""

_DEFAULTS: dict[str, Any] = {
    "kind": "",
    "node": "",
    "run": "",
    "number": 0,
    "message": "",
    # resources
    "type": "",
    "name": "",
    "provider": "",
    "parent": "",
    "ensure": "",
    "outcome": "",
    "changed": False,
    "failed": False,
    "skipped": False,
    "refreshed": False,
    "noop": False,
    "corrective": False,
    "errors": [],
    "output": "",
    "seconds": 0.0,
    # sessions
    "manifest": "",
    "cause": "",
    "origin": "",
    "requester": "",
    "state": "",
    "reason": "",
    "code": "",
    "resources": 0,
    "changed_resources": 0,
    "failed_resources": 0,
}
NAMES = tuple(sorted(_DEFAULTS))
"""The names that a condition may use."""


class EventFilter:
    """
    A condition on events.

    Args:
        text: The condition, as the operator wrote it.

    Raises:
        UsageError: It does not parse, uses an unknown name, or is not a condition.
    """

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_LIMIT:
            raise UsageError(f"the condition has {len(text)} characters; at most {LENGTH_LIMIT} are allowed")
        try:
            self._program: Program = compile_expression(
                text, ExpressionNames(dict.fromkeys(_DEFAULTS, "any")), is_condition=True
            )
        except ExpressionError as err:
            raise UsageError(f"--where {text}: {err}") from err

    def fits(self, heard: AgentMessage, kind: str, allowance: Allowance | None = None) -> bool:
        """
        Whether the condition is true for an event.

        Args:
            heard: The event.
            kind: Its kind, in the words of `--type`.
            allowance: The common limit for all evaluations of a search. None: this evaluation has its own limit.

        Raises:
            ExpressionError: The condition cannot be evaluated for this event, such as `changed > 1`, or takes too long.
        """
        return self._program.run(_values(heard, kind), {}, allowance) is True


def _values(heard: AgentMessage, kind: str) -> dict[str, Any]:
    said = heard.said
    values = _DEFAULTS | {"kind": kind, "node": heard.node, "run": heard.run}
    values["number"] = getattr(said, "number", 0)
    match said:
        case TransactionEvent():
            values |= {
                "type": said.type,
                "name": said.name,
                "provider": said.provider,
                "parent": said.parent,
                "ensure": said.final_ensure,
                "outcome": str(said.outcome),
                "changed": said.changed,
                "failed": said.failed,
                "skipped": said.skipped,
                "refreshed": said.refreshed,
                "noop": said.noop,
                "corrective": said.corrective is True,
                "errors": list(said.error),
                "output": said.output,
                "code": said.code,
                "message": said.noop_message,
                "seconds": said.duration / 1e9,
            }
        case SessionStart():
            values |= {name: getattr(said, name) for name in ("manifest", "cause", "origin", "requester")}
            values |= {"noop": said.noop, "resources": said.resources}
        case SessionSummary():
            values |= {name: getattr(said, name) for name in ("manifest", "state", "reason", "code", "noop")}
            values |= {
                "resources": said.total_resources,
                "changed_resources": said.changed_resources,
                "failed_resources": said.failed_resources,
                "seconds": said.total_duration / 1e9,
            }
        case Answer():
            values |= {name: getattr(said, name) for name in ("state", "reason", "code")}
        case Progress():
            values |= {"state": said.state}
        case AgentEvent():
            values |= {"message": said.message}
    return values
