"""Format messages of agents, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ccm_agent.clikit.table import Style, paint
from ccm_agent.clikit.text import clock, counted, one_line, plural, span
from ccm_agent.model.noop_words import noop_words
from ccm_agent.model.outcome import Outcome, SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.wire import REPORTING, AgentEvent, Answer, Progress

TIME_WIDTH, DATED_WIDTH = len("12:00:00"), len("2026-12-01 12:00:00Z")

MEANINGS = {
    Outcome.CHANGED: "change",
    Outcome.REFRESHED: "change",
    Outcome.FAILED: "bad",
    Outcome.UNMET: "bad",
    Outcome.UNKNOWN: "change",
    Outcome.STABLE: "good",
}

NOOP_OUTCOMES = {Outcome.CHANGED: "would change", Outcome.REFRESHED: "would refresh"}
"""The words for the outcomes of a noop run."""


def event_line(node: str, said: object, style: Style, flag: str = "", *, is_dated: bool = False) -> str:
    """
    Format a message as one line that ends with a newline: the time, the node, and the event.

    Args:
        node: The node's name.
        said: The node's message.
        style: The width and color.
        flag: A verdict to print before the text, such as `forged`; "" for none.
        is_dated: Whether to print the date as well as the time.
    """
    moment, text, meaning = format_message(said)
    when = ""
    if moment is not None:
        when = clock(moment) if is_dated else moment.strftime("%H:%M:%S")
    when = when.ljust(DATED_WIDTH if is_dated else TIME_WIDTH)
    what = (
        f"{paint(f'[{flag}]', 'bad', style)} {one_line(text)}"
        if flag
        else paint(one_line(text), meaning, style)
    )
    return f"{paint(when, 'quiet', style)} {one_line(node)}  {what}\n"


def format_message(said: object) -> tuple[datetime | None, str, str]:
    """
    Return the time of the node's clock, a sentence (which may contain unsafe characters), and its meaning as a key of COLORS.
    """
    match said:
        case TransactionEvent():
            return said.timestamp, _format_resource(said), MEANINGS.get(said.outcome, "")
        case SessionStart():
            kind = "plans" if said.noop else "checks" if said.health_check_only else "applies"
            cause = f" ({said.cause})" if said.cause and said.cause != "request" else ""
            why = f": {said.message}" if said.message else ""
            what = f"{kind} {said.manifest}: {plural(said.resources, 'resource')}{cause}{why}"
            return said.timestamp, what, ""
        case SessionSummary():
            meaning = {"failed": "bad", "changed": "change", "stable": "good"}.get(said.state, "")
            return said.timestamp, _format_summary(said), meaning
        case Answer():
            reason = f": {said.reason}" if said.reason else ""
            place = f" (number {said.position})" if said.position else ""
            return said.time, f"{said.state}{place}{reason}", "bad" if said.state == "refused" else ""
        case Progress():
            if said.state == REPORTING:
                return (
                    None,
                    f"reporting: its events have waited for the broker for {span(said.run_s)}",
                    "quiet",
                )
            place = f" ({said.position} of {said.total})" if said.total else ""
            return None, f"{said.state} at {said.resource}{place} for {span(said.resource_s)}", "quiet"
        case AgentEvent():
            word = said.protocol.rpartition(".")[2].replace("_", " ")
            return said.timestamp, f"agent {word}: {said.message}", ""
    return None, str(type(said).__name__), ""


def _format_resource(event: TransactionEvent) -> str:
    outcome = NOOP_OUTCOMES.get(event.outcome, event.outcome) if event.noop else event.outcome
    words = f"{event.type}#{event.name} {outcome}"
    if event.noop and event.noop_message:
        words += f": {noop_words(event)}"
    elif event.pruned:
        words += f": {event.pruned}"
    if event.error:
        words += f": {'; '.join(event.error)}"
    return f"{words}{format_pending(event.refresh_pending)} ({span(event.duration / 1e9)})"


def format_pending(pending: Sequence[str]) -> str:
    """Format the resources whose refresh a later run repeats: `; refresh pending: exec#reload and 2 more`."""
    if not pending:
        return ""
    more = f" and {len(pending) - 1} more" if len(pending) > 1 else ""
    return f"; refresh pending: {pending[0]}{more}"


def _format_summary(summary: SessionSummary) -> str:
    counts = {
        NOOP_OUTCOMES[Outcome.CHANGED] if summary.noop else "changed": summary.changed_resources,
        "failed": summary.failed_resources,
        "skipped": summary.skipped_resources,
        "stable": summary.stable_resources,
        "unknown until applied": summary.unknown_count,
    }
    reason = f" ({summary.reason})" if summary.reason else ""
    numbers = counted(counts)
    took = f": {numbers} in {span(summary.total_duration / 1e9)}" if numbers else ""
    # a plan does not change anything, so it must not end as `changed`
    state = "ended" if summary.noop and summary.state == "changed" else f"ended {summary.state}"
    return f"{state}{reason}{took}{format_pending(summary.refresh_pending)}"
