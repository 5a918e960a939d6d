"""The results of nodes in a run: a `NodeResult` for people, and records for programs."""

from __future__ import annotations

import re
from typing import Any

from ccm_agent.clikit.text import short_id
from ccm_agent.manifest.findings import ERROR, Finding, format_finding
from ccm_agent.model.errors import Place
from ccm_agent.model.noop_words import noop_words
from ccm_agent.model.outcome import RELEASED, Outcome, TransactionEvent
from ccm_agent.model.wire import REPORTING, NodeState, RunAhead
from ccm_ctl.fleet.runs.node_run import NodeRun
from ccm_ctl.render.event import format_pending
from ccm_ctl.render.outcome import Failure, NodeResult, ResourceResult
from ccm_ctl.render.output import CommandOutput

_PLACE = re.compile(r"(?P<place>(?P<source>[^\s:]{1,255}):(?P<line>[0-9]{1,9}):(?P<column>[0-9]{1,9})): ")
"""The position in a manifest at the start of an error."""

MISSING_TOLD = 1000
"""The maximum number of missing events whose numbers `--json` lists, lowest first. `missing_count` is the total."""


def build_result(node: NodeRun, *, is_every_output: bool = False, manifest: str = "") -> NodeResult:
    """
    Return the result of a node for display.

    Args:
        node: The node in the run.
        is_every_output: Whether to show all outputs, not only those of resources with `logoutput`.
        manifest: The sent manifest, to show the line of an error; "" if it is not known here.
    """
    events = [node.events[number] for number in sorted(node.events)]
    summary = node.summary
    placed = _PLACE.match(node.reason) if node.state is NodeState.FAILED else None
    told = [
        event
        for event in events
        if event.outcome is not Outcome.STABLE or event.noop_message or event.unknown
    ]
    return NodeResult(
        node=node.node,
        state=node.state,
        reason=format_reason(node) if placed is None else placed["place"],
        joined=node.joined,
        seconds=summary.total_duration / 1e9 if summary else 0,
        resources=tuple(_resource(event) for event in told),
        stable=summary.stable_resources if summary else 0,
        failures=(*_failures(node, events), *_session_failure(node, placed, manifest)),
        missing=len(node.lacking),
        outputs=tuple(
            output for output in map(_output, events) if output.text and (is_every_output or output.is_logged)
        ),
    )


def _session_failure(node: NodeRun, placed: re.Match[str] | None, manifest: str) -> tuple[Failure, ...]:
    """Return the error that ended the session of a node, in the form of `ccm lint`; () if it has no position in the manifest."""
    if placed is None:
        return ()

    place = Place(placed["source"], int(placed["line"]), int(placed["column"]))
    message = node.reason[placed.end() :]
    finding = Finding(level=ERROR, message=message, rule=node.code or "session", place=place)
    return (Failure("", format_finding(finding, manifest)),)


def format_reason(node: NodeRun) -> str:
    """Return the reason for a node's state, or the run that it waits for; "" if the state needs no reason."""
    if node.reason or node.state.is_final:
        return node.reason
    if node.state is NodeState.QUEUED and node.position:
        place = f"number {node.position} in its queue"
        return f"{place}, {format_ahead(node.ahead)}" if node.ahead else place
    if node.progress and node.progress.state == REPORTING:
        return "its events wait for the broker"
    if node.progress and node.progress.resource:
        return f"at {node.progress.resource}"
    return ""


def format_failure(node: NodeRun) -> str:
    """Return the first failed resource and its error. If there is none, return the node's error, or "" if it reported none."""
    failures = _failures(node, [node.events[number] for number in sorted(node.events)])
    if not failures:
        return node.reason
    first, more = failures[0], len(failures) - 1
    what = ": ".join(part for part in (first.resource, first.error.partition("\n")[0].strip()) if part)
    return f"{what} (and {more} more)" if more else what


def format_ahead(ahead: RunAhead) -> str:
    """Format a run ahead in a queue: `behind run 3HAAgFJs (apply site by anna)`. A run that the node started has no operator."""
    by = f" by {ahead.requester}" if ahead.requester else ""
    what = f"{ahead.action} {ahead.name}".strip() or "run"
    return f"behind run {short_id(ahead.run)} ({what}{by})"


def _resource(event: TransactionEvent) -> ResourceResult:
    note = noop_words(event) if event.noop else event.pruned
    if event.code == RELEASED:
        note = "; ".join(event.error)
    if event.unknown and not event.skipped:
        note = f"{note or event.outcome}; its health checks are {Outcome.UNKNOWN}"
    note = f"{note}{format_pending(event.refresh_pending)}".removeprefix("; ")
    return ResourceResult(f"{event.type}#{event.name}", str(event.outcome), note)


def _output(event: TransactionEvent) -> CommandOutput:
    """Return the output of a successful command. The output of a failed command is shown with its error."""
    properties = event.properties if isinstance(event.properties, dict) else {}
    return CommandOutput(
        f"{event.type}#{event.name}",
        "" if event.failed else event.output,
        is_cut="output" in event.cut,
        is_logged=properties.get("logoutput") is True,
    )


def _failures(node: NodeRun, events: list[TransactionEvent]) -> tuple[Failure, ...]:
    summary = node.summary
    if summary and summary.failed:
        return tuple(
            Failure(failed.resource, "\n".join(failed.error), failed.output) for failed in summary.failed
        )
    return tuple(
        Failure(f"{event.type}#{event.name}", "\n".join(event.error), event.output)
        for event in events
        if event.failed
    )


def result_fields(run: str, node: NodeRun) -> dict[str, Any]:
    """Return the result of a node as record fields."""
    return {
        "run": run,
        "node": node.node,
        "state": str(node.state),
        "reason": node.reason or None,
        "code": node.code or None,
        "joined": node.joined or None,
        "ahead": node.ahead if node.state is NodeState.QUEUED else None,
        "missing": node.lacking.first(MISSING_TOLD) or None,
        "missing_count": len(node.lacking) or None,
        "summary": node.summary,
    }
