"""Format the history of one node: each session with its changes, and a table of the states of resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.clikit.table import Style, paint
from ccm_agent.clikit.text import clock, counted, one_line, plural, short_id, span
from ccm_agent.model.noop_words import noop_words
from ccm_agent.model.outcome import Outcome
from ccm_agent.model.records.verdicts import BAD
from ccm_ctl.render.event import MEANINGS

if TYPE_CHECKING:
    from ccm_agent.model.outcome import TransactionEvent
    from ccm_ctl.fleet.nodes.node_past import PastAgentEvent, PastSession

RESOURCES_SHOWN = 20
"""The maximum number of resources that are named for one session. `--json` contains all of them."""

_STATES = {"failed": "bad", "stopped": "bad", "changed": "change", "running": "change", "stable": "good"}


def draw_session(session: PastSession, starter: str, style: Style) -> str:
    """
    Return a line for a session, followed by a line for each changed or failed resource.

    Args:
        session: The session.
        starter: A description of the session's starter.
        style: Width and color.
    """
    summary = session.summary
    action = "apply" if session.applies else "plan" if session.start and session.start.noop else "check"
    words = f"{action} {session.manifest or '(unknown)'} by {starter}:"
    state = "would change" if action == "plan" and session.state == "changed" else session.state
    took = f"in {span(summary.total_duration / 1e9)}" if summary else ""
    if summary and summary.reason:
        took += f" ({summary.reason})"
    head = [
        paint(clock(session.time), "quiet", style),
        short_id(session.run),
        *_flags(session.verdict, style),
        one_line(words),
        paint(one_line(state), _STATES.get(session.state, ""), style),
    ]
    lines = [" ".join([*head, one_line(took)]).rstrip()]
    if session.start and session.start.message:
        lines.append(f"    message: {one_line(session.start.message)}")
    shown = [event for event in session.events if event.outcome is not Outcome.STABLE or event.noop_message]
    lines += [f"    {_draw_event(event, style)}" for event in shown[:RESOURCES_SHOWN]]
    if len(shown) > RESOURCES_SHOWN:
        lines.append(f"    and {plural(len(shown) - RESOURCES_SHOWN, 'more resource')}")
    if summary and not session.events and session.state not in ("stable", "running"):
        counts = {"changed": summary.changed_resources, "failed": summary.failed_resources}
        lines += [f"    {counted(counts)}"] if counted(counts) else []
    return "".join(f"{line}\n" for line in lines)


def draw_agent_event(past: PastAgentEvent, style: Style) -> str:
    """Return a line for an event about the agent itself."""
    word = past.event.protocol.rpartition(".")[2].replace("_", " ")
    text = one_line(f"agent {word}: {past.event.message}")
    return " ".join([paint(clock(past.time), "quiet", style), *_flags(past.verdict, style), text]) + "\n"


def _draw_event(event: TransactionEvent, style: Style) -> str:
    outcome = event.outcome
    note = noop_words(event) if event.noop else "; ".join(event.error) or event.pruned
    word = "" if event.noop and event.noop_message else f" {outcome}"
    text = f"{event.type}#{event.name}{word}{f': {note}' if note else ''}"
    return paint(one_line(text), MEANINGS.get(outcome, ""), style)


def _flags(verdict: object, style: Style) -> list[str]:
    return [paint(f"[{verdict}]", "bad", style)] if verdict in BAD else []
