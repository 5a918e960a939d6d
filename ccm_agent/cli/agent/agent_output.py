"""Format the state of the local agent for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from ccm_agent.cli.output import plain
from ccm_agent.clikit.text import short_id, span
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.maintenance import ResourceLock
from ccm_agent.model.wire import DISABLED, Disabled, NodeState

TOLD = {
    "knows": "the agent has been notified",
    "soon": "the agent did not answer; it reads the change within seconds",
    "off": "no agent is running; the next one reads the change",
}
"""Descriptions of the agent's state, by the values of `at_host`."""

_WIDTH = 13


def safe(text: object) -> str:
    """Make untrusted text safe: one line without terminal control sequences."""
    return plain(str(text))


def status_text(status: Mapping[str, Any], now: datetime) -> str:
    """Format a status as text for people."""
    lines = [_headline(status, now)]

    def line(label: str, text: str) -> None:
        lines.append(f"  {label + ':':<{_WIDTH}} {safe(text)}")

    if status.get("disabled"):
        line("Disabled", msgspec.convert(status["disabled"], Disabled).sentence.removeprefix("disabled "))
    for lock in msgspec.convert(status.get("locks", []), list[ResourceLock], strict=False):
        line("Locked", f"{lock.resource}, {lock.sentence.removeprefix('locked ')}")
    if status.get("conflict"):
        line("Conflict", status["conflict"])
    if status.get("plans_only"):
        line("Plans only", status["plans_only"])
    if status.get("wrong_clock"):
        line(
            "Wrong clock",
            f"{status['wrong_clock']}; the node refuses new requests and documents until the clock is correct",
        )
    if status.get("running"):
        trouble = f"; {status['trouble']}" if status.get("trouble") else ""
        line("Broker", ("connected" if status.get("connected") else "not connected") + trouble)
    line("Run", place_text(status) or "none")
    for lock, owner in status.get("waits_for", {}).items():
        line("Waits for", f"the lock `{lock}`, held by {owner}")
    for job in status.get("waiting", []):
        line("Waiting", f"{job.get('name') or 'a run'} ({short_id(str(job.get('run')))})")
    line("Last run", _last_run(status, now))
    spool = status.get("spool", {})
    lost = f", {spool['lost']} dropped" if spool.get("lost") else ""
    line("Spool", f"{spool.get('events', 0)} events wait for the broker{lost}")
    for one in status.get("manifests", []):
        line("Manifest", _manifest(one, now, is_running=bool(status.get("running"))))
    for name, state in status.get("assignments", {}).items():
        line("Assignment", _assignment(name, state, now))
    for pending in status.get("refresh_pending", []):
        line("Refresh", f"pending: {pending}")
    if status.get("policy"):
        line("Policy", _policy(status["policy"]))
    if status.get("refused_facts"):
        line("Facts", f"refused: {status['refused_facts']}")
    if status.get("scopes"):
        line("Listens to", ", ".join(status["scopes"]))
    return "\n".join(lines) + "\n"


def place_text(status: Mapping[str, Any]) -> str:
    """Describe the progress of the current run; "" when there is none."""
    if not status.get("run"):
        return ""
    at = status.get("progress") or {}
    parts = [f"{status.get('name') or 'a run'} ({short_id(status['run'])})"]
    if at.get("resource"):
        parts.append(f"at {at['resource']}, {at.get('position', 0)} of {at.get('total', 0)}")
    if at.get("run_s"):
        parts.append(f"for {span(at['run_s'])}")
    return ", ".join(parts)


def ended_text(ended: Sequence[Mapping[str, Any]]) -> str:
    """Describe the results of a convergence: a line for each manifest and assignment, and one for each failed resource."""
    if not ended:
        return "nothing to converge on: no manifest is configured, and no assignment selects this node\n"
    lines = []
    for one in ended:
        counts = f": {one.get('changed', 0)} changed, {one.get('failed', 0)} failed of {one.get('total', 0)}"
        reason = f"; {one['reason']}" if one.get("reason") else ""
        lines.append(f"{one['name']}: {one['state']}{counts if one.get('run') else ''}{reason}")
        for resource in one.get("resources", []):
            lines.append(f"  {resource['resource']}: {'; '.join(resource['error'])}")
    return "".join(f"{safe(line)}\n" for line in lines)


def exit_of(ended: Sequence[Mapping[str, Any]]) -> Exit:
    """Return the exit code for a convergence."""
    states = {one["state"] for one in ended}
    if states & {NodeState.FAILED, NodeState.STOPPED}:
        return Exit.FAILED
    return Exit.OK if states <= {NodeState.STABLE, NodeState.CHANGED} else Exit.COULD_NOT_RUN


def _headline(status: Mapping[str, Any], now: datetime) -> str:
    node, version = safe(status.get("node") or "this node"), safe(status.get("version", ""))
    if status.get("running"):
        since = _ago(status.get("started"), now)
        return (
            f"{node}: the agent is running (process {status.get('pid')}, version {version}, started {since})"
        )
    if status.get("holder"):
        return f"{node}: the agent (process {status['holder']}) does not answer; see its log"
    left = _ago(status.get("time"), now)
    return (
        f"{node}: the agent is not running; this status was saved {left}"
        if left
        else f"{node}: the agent is not running"
    )


def _last_run(status: Mapping[str, Any], now: datetime) -> str:
    if not status.get("last_run"):
        return "none since the agent started"
    return f"{status.get('last_state')} {_ago(status.get('last_time'), now)} ({short_id(status['last_run'])})"


def _manifest(one: Mapping[str, Any], now: datetime, *, is_running: bool) -> str:
    parts = [str(one.get("name"))]
    if one.get("digest"):
        parts.append(f"digest {str(one['digest'])[:12]}")
    due = _moment(one.get("next"))
    if is_running and due is not None:
        parts.append(f"next in {span(max((due - now).total_seconds(), 0))}")
    if one.get("trouble"):
        parts.append(f"cannot be fetched: {one['trouble']}")
    return ", ".join(parts)


def _policy(policy: Mapping[str, Any]) -> str:
    if policy.get("trouble"):
        return f"invalid, so the node refuses all requests from the bus: {policy['trouble']}"
    rules = policy.get("rules", 0)
    return f"{policy.get('path')}, digest {str(policy.get('digest'))[:12]}, {rules} {'rule' if rules == 1 else 'rules'}"


def _assignment(name: str, state: Mapping[str, Any], now: datetime) -> str:
    since = _moment(state.get("since"))
    lasts = f" for {span(max((now - since).total_seconds(), 0))}" if since is not None else ""
    parts = [f"{name}: {state.get('state', 'waiting')}{lasts}"]
    if state.get("digest"):
        parts.append(f"digest {str(state['digest'])[:12]}")
        parts.append(f"data {state.get('data_revision') or 'newest'}")
    due = _moment(state.get("next_time"))
    if due is not None:
        parts.append(f"next in {span(max((due - now).total_seconds(), 0))}")
    if state.get("reason") and state.get("state") != DISABLED:  # another line shows the reason
        parts.append(str(state["reason"]))
    return ", ".join(parts)


def _moment(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)) if text else None
    except ValueError:
        return None


def _ago(text: object, now: datetime) -> str:
    moment = _moment(text)
    return f"{span(max((now - moment).total_seconds(), 0))} ago" if moment is not None else ""
