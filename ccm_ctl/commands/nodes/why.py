"""`ccmctl why`: explain the state of a node on one screen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click
import msgspec

from ccm_agent.bus.subjects import format_scope
from ccm_agent.clikit.table import Style
from ccm_agent.clikit.text import (
    ago,
    clock,
    counted,
    fold_names,
    lasting,
    one_line,
    plural,
    short_id,
    size,
    span,
)
from ccm_agent.model.exits import Exit
from ccm_agent.model.ids import is_id
from ccm_agent.model.outcome import SessionSummary
from ccm_agent.model.records.rollout_records import Phase
from ccm_ctl.app import Application
from ccm_ctl.commands.assignments.assignment import standing_fields
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.nodes.diagnosis import (
    Reason,
    explain,
    format_current_run,
    format_disabled,
    format_due,
    is_duplicate,
    open_refusal,
)
from ccm_ctl.commands.nodes.site_lines import format_contact
from ccm_ctl.commands.rollouts.slots import release_command
from ccm_ctl.fleet.assignments.assignments import Standing
from ccm_ctl.fleet.assignments.convergence import NodeStanding
from ccm_ctl.fleet.nodes.node_diagnostics import (
    ANSWERED,
    DENIED,
    Evidence,
    LocalManifest,
    NodeRollout,
    decide_node,
    read_evidence,
)
from ccm_ctl.fleet.nodes.slot_holders import NodeSlot
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.outcome import MEANINGS
from ccm_ctl.render.record_types.why import WhyLine
from ccm_ctl.render.why import Fact, SuggestedCommand, screen

DIGEST_SHOWN = 12
"""The maximum number of characters of a digest that are shown. `--json` contains all of them."""

ASSIGNMENTS_SHOWN = 5
"""The maximum number of assignments on the screen. Those with problems are first."""

REFRESHES_SHOWN = 5
"""The maximum number of pending refreshes on the screen."""

UNDOS_SHOWN = 5
"""The maximum number of unfinished undos on the screen."""

FAILED_SHOWN = 3
"""The maximum number of failed resources after the first one. The others are only counted."""


@verb(
    "why",
    examples=["ccmctl why web1", "ccmctl why web1 --json"],
    options=[click.Argument(["name"], metavar="NODE")],
)
def why(application: Application, name: str) -> Exit:
    """
    Explain the state of a node: the reason, the details, and the commands to run next.

    Asks the agent if it is connected, and reads everything else from the broker. The exit code is 0 for every state.
    """

    async def work(fleet: Fleet) -> Exit:
        evidence = await read_evidence(fleet, name)
        now = fleet.clock.now()
        terminal = application.terminal
        terminal.record(WhyLine, **describe(evidence, now))
        if not terminal.json:
            terminal.show(why_screen(evidence, explain(evidence, now), now, terminal.style))
        return Exit.OK

    return application.run(work)


def why_screen(evidence: Evidence, reason: Reason, now: datetime, style: Style) -> str:
    """Return the whole screen as text for people."""
    output = reason.failed[0].output if reason.failed else ""
    steps = [SuggestedCommand(one.command, one.purpose, one.where) for one in reason.next]
    return screen(reason.sentence, reason.meaning, list(_facts(evidence, reason, now)), output, steps, style)


def describe(evidence: Evidence, now: datetime) -> dict[str, Any]:
    """Return the whole record as fields."""
    from ccm_ctl.commands.nodes.nodes import node_fields

    reason = explain(evidence, now)
    summary = evidence.summaries.get(reason.run)
    built = msgspec.to_builtins
    return {
        **node_fields(evidence.node, decide_node(evidence, now), evidence.site),
        "present": evidence.node.is_present,
        "state": reason.state,
        "reason": reason.sentence,
        "next": built(reason.next),
        "failed": built(reason.failed) or None,
        "summary": built(summary) if summary else None,
        "assignments": [
            {key: value for key, value in standing_fields(judged).items() if value is not None}
            for judged in evidence.judged.values()
        ]
        or None,
        "agents": evidence.twins or None,
        "rollouts": [_rollout_record(one) for one in evidence.rollouts] or None,
        "heard_of": evidence.heard_of,
        "told": dict(sorted(evidence.told.items())) or None,
        "answered": evidence.asked,
        "status": evidence.answer,
    }


def _rollout_record(one: NodeRollout) -> dict[str, Any]:
    """Return an open rollout of the node as a record field."""
    return {
        "run": one.state.run,
        "action": one.record.action,
        "name": one.record.name,
        "requester": one.record.requester,
        "phase": str(one.state.phase),
        "reason": one.state.reason,
        "planned": one.is_planned,
    }


def _facts(evidence: Evidence, reason: Reason, now: datetime) -> Iterator[Fact]:
    """Yield the details, the most useful first."""
    record = evidence.node.record
    if evidence.node.unverified:
        yield Fact("unverified", one_line(evidence.node.unverified_note), "bad")
    for failed in reason.failed[1 : FAILED_SHOWN + 1]:
        yield Fact("also failed", f"{failed.resource}: {next(iter(failed.error), '')}", "bad")
    if (rest := len(reason.failed) - FAILED_SHOWN - 1) > 0:
        yield Fact("also failed", f"{rest} more")
    if is_duplicate(evidence):
        for twin in evidence.twins:
            yield Fact("one agent", f"machine {twin.machine}, started {twin.started}", "bad")
    if record is not None and record.disabled is not None and reason.state != "disabled":
        yield Fact("disabled", format_disabled(record.disabled, now), "change")
    for lock in record.locks if record is not None else ():
        if lock.until > now:
            yield Fact(
                "locked", one_line(f"{lock.resource}, {lock.sentence.removeprefix('locked ')}"), "change"
            )
    if (site := evidence.site) is not None:
        yield Fact("site", f"{site.site}, {format_contact(site)}", "bad" if site.is_cut else "")
    yield from _assignment_facts(evidence, now)
    for pending in record.refresh_pending[:REFRESHES_SHOWN] if record is not None else ():
        yield Fact("refresh pending", pending, "change")
    for run in record.incomplete_undos[:UNDOS_SHOWN] if record is not None else ():
        if is_id(run):
            command = f"ccmctl undo {short_id(run)} -t node={evidence.node.name}"
            yield Fact("undo", f"of run {short_id(run)} has not completed; `{command}` completes it", "bad")
    for rollout in evidence.rollouts:
        yield Fact("rollout", _format_rollout(rollout), "change")
    for slot in evidence.slots:
        yield Fact("slot", _format_slot(slot, evidence.node.name), "bad" if slot.has_failed else "change")
    yield Fact("last run", _last_run(evidence, now))
    yield from _agent_facts(evidence, reason, now)
    if refused := open_refusal(evidence):
        yield Fact("refused", f"{ago(refused.timestamp, now)}: {refused.message}")
    if lost := evidence.told.get("lost_events"):
        yield Fact("lost", f"{ago(lost.timestamp, now)}: {lost.message}", "bad")
    if record is not None:
        started = f", started {clock(record.started)} ({ago(record.started, now)})" if record.started else ""
        machine = (
            f", on machine {record.machine[:DIGEST_SHOWN]}"
            if record.machine and not is_duplicate(evidence)
            else ""
        )
        yield Fact("agent", f"{record.version}{started}{machine}")


def _assignment_facts(evidence: Evidence, now: datetime) -> Iterator[Fact]:
    order = sorted(evidence.judged.items(), key=lambda item: (item[1].is_converged, item[0]))
    for name, judged in order[:ASSIGNMENTS_SHOWN]:
        meaning = next((mean for word, mean in MEANINGS.items() if word == judged.state), "")
        words = _format_assignment(name, judged, evidence.standing[name], now)
        yield Fact("assignment", words, "good" if judged.is_converged else meaning or "change")
    if (rest := len(order) - ASSIGNMENTS_SHOWN) > 0:
        yield Fact("assignment", f"and {rest} more")
    if not order:
        yield Fact("assignment", "no assignment selects this node")
    for own in evidence.status.manifests[:ASSIGNMENTS_SHOWN]:
        yield Fact("manifest", _format_manifest(own, now), "change" if own.trouble else "")


def _format_assignment(name: str, judged: NodeStanding, standing: Standing, now: datetime) -> str:
    """Format an assignment: `base 7 failed for 2 min; bundle 0123abcd, data 41; next attempt in 3 min`."""
    since = lasting(judged.since, now)
    mode = " (plan)" if standing.assignment.mode == "plan" else ""
    words = f"{name} {standing.revision} of {format_scope(standing.assignment.scope)}{mode}: {judged.state}{since}"
    if judged.digest:
        other = f"revision {judged.revision}, " if judged.revision != standing.revision else ""
        data = f", data {judged.data_revision}" if judged.data_revision else ""
        words += f"; it has {other}bundle {judged.digest[:DIGEST_SHOWN]}{data}"
    if standing.following is not None:
        words += f"; the rollout {short_id(standing.following.assignment.rollout)} has not reached it yet"
    if judged.next_time:
        words += f"; next attempt {format_due(judged.next_time, now)}"
    return words


def _format_rollout(one: NodeRollout) -> str:
    """Format a rollout: `3MVT (apply work by op1) is paused: 1 node failed; it has not asked this node`."""
    record, state = one.record, one.state
    what = f"{short_id(state.run)} ({record.action} {record.name} by {record.requester})"
    is_paused = state.phase is Phase.PAUSED
    words = f"{what} is {f'paused: {state.reason}' if is_paused else 'in progress'}"
    if one.is_planned:
        words += "; this node has not started"
    goes_on = f"; `ccmctl run resume {short_id(state.run)}` continues it" if is_paused else ""
    return one_line(f"{words}{goes_on}")


def _format_slot(slot: NodeSlot, node: str) -> str:
    """Format a slot: `pg, kept after exec#restart failed; web1 and web4 wait for it; …`, or `waits for pg, which web2 holds`."""
    if slot.position:
        held = (
            f", which {fold_names(slot.holders)} {'holds' if len(slot.holders) == 1 else 'hold'}"
            if slot.holders
            else ""
        )
        place = f"; {slot.position} of {len(slot.waiting)} in the queue" if len(slot.waiting) > 1 else ""
        return one_line(f"waits for {slot.name}{held}{place}")
    words = f"{slot.name}, kept after {slot.resource} failed" if slot.has_failed else f"holds {slot.name}"
    if slot.waiting:
        words += f"; {fold_names(slot.waiting)} {'waits' if len(slot.waiting) == 1 else 'wait'} for it"
    if slot.has_failed:
        words += f"; `{release_command(slot.name, node)}` frees it when {node} is healthy"
    return one_line(words)


def _format_manifest(own: LocalManifest, now: datetime) -> str:
    """Describe a manifest from the node's configuration, according to the agent's report."""
    words = f"{own.name}: digest {own.digest[:DIGEST_SHOWN]}" if own.digest else own.name
    if own.next is not None:
        words += f"; next attempt {format_due(own.next, now)}"
    return f"{words}; cannot be fetched: {own.trouble}" if own.trouble else words


def _last_run(evidence: Evidence, now: datetime) -> str:
    """Describe the newest finished run: its time, its name and its result."""
    record = evidence.node.record
    if record is None or not record.last_run:
        return "none yet" if record is not None else ""
    words = f"{short_id(record.last_run)} {record.last_state} {ago(record.last_time, now)}"
    summary = evidence.summaries.get(record.last_run)
    return f"{words}: {_format_summary(summary)}" if summary is not None else words


def _format_summary(summary: SessionSummary) -> str:
    counts = {
        "failed": summary.failed_resources,
        "changed": summary.changed_resources,
        "skipped": summary.skipped_resources,
        "stable": summary.stable_resources,
        "unknown until applied": summary.unknown_count,
    }
    numbers = counted(counts)
    # if a run ended before its first resource, its duration is not useful
    how = (
        f"{numbers} in {span(summary.total_duration / 1e9)}" if numbers else summary.reason or "no resources"
    )
    what = f"{summary.manifest}: " if summary.manifest else ""
    data = ", ".join(
        f"{url.removeprefix('kv://')} {revision}" for url, revision in summary.data_revisions.items()
    )
    return f"{what}{how}{f', data {data}' if data else ''}"


def _agent_facts(evidence: Evidence, reason: Reason, now: datetime) -> Iterator[Fact]:
    """Yield details about the agent's presence and its reply."""
    presence, status = evidence.node.presence, evidence.status
    if presence is None:
        return
    words = f"last heartbeat {ago(presence.time, now)}" if presence.time else "heartbeats arrive"
    if evidence.asked == ANSWERED:
        words += "; its agent answers"
    elif evidence.asked == DENIED:
        words += "; you have no permission to query its agent"
    yield Fact("present", words)
    if status.run and reason.state not in ("running", "waiting"):
        yield Fact("running", format_current_run(status.run, status), "change")
    if status.waiting:
        names = ", ".join(one.name or one.run for one in status.waiting)
        yield Fact("queue", f"{plural(len(status.waiting), 'run')}: {names}")
    if status.spool.events or status.trouble:
        count, volume = plural(status.spool.events, "event"), size(status.spool.bytes)
        trouble = f": {status.trouble}" if status.trouble else ""
        yield Fact("unsent", f"{count} in its spool ({volume}){trouble}")
    if status.policy is not None:
        rules, digest = plural(status.policy.rules, "rule"), status.policy.digest[:DIGEST_SHOWN]
        trouble = f"cannot be used, so the agent runs nothing: {status.policy.trouble}"
        yield Fact(
            "policy",
            trouble if status.policy.trouble else f"{rules}, digest {digest}",
            "bad" if status.policy.trouble else "",
        )
    if status.refused_facts:
        yield Fact("facts", f"refused, so the earlier ones still apply: {status.refused_facts}", "bad")
