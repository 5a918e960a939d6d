"""
Diagnose a node: explain its state in one sentence with the main reason, and list the commands to run next.

`fleet.nodes.node_condition` determines the state. This module only explains it and does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from ccm_agent.bus.layout import ASSIGNMENTS, FACTS
from ccm_agent.clikit.text import ago, clock, ended, lasting, one_line, plural, shortened, span
from ccm_agent.model.ids import is_id, short_id
from ccm_agent.model.outcome import FailedResource
from ccm_agent.model.wire import DUPLICATE_IDENTITY, AgentEvent, Disabled, NodeState
from ccm_ctl.commands.nodes.site_lines import format_behind
from ccm_ctl.fleet.nodes import node_condition as condition
from ccm_ctl.fleet.nodes.node_diagnostics import ANSWERED, SILENT, Evidence, Status, decide_node
from ccm_ctl.fleet.nodes.sites import SiteSource

UNIT = "ccm-agent"
"""The name of the agent's service in the packages."""

HEADLINE_ERROR = 160
"""The maximum number of characters of an error in the headline."""


class Next(Struct, frozen=True):
    """A command to run, and its purpose. `where` is the machine on which to run it; "" is this machine."""

    command: str
    purpose: str
    where: str = ""


class Reason(Struct, frozen=True, kw_only=True):
    """
    The reason for the state of a node.

    Attributes:
        sentence: A sentence for people that starts with the node's name.
        state, meaning: The state of the node and its color. `explain` sets both.
        next: Commands to run, the most useful first.
        failed: The failed resources, if they are the reason.
        run: The run that is the reason; "" if there is none.
    """

    sentence: str
    state: str = ""
    meaning: str = ""
    next: tuple[Next, ...] = ()
    failed: tuple[FailedResource, ...] = ()
    run: str = ""


def explain(evidence: Evidence, now: datetime) -> Reason:
    """Explain the state of a node."""
    found = decide_node(evidence, now)
    reason = _EXPLAIN[found.state](evidence, now)
    reason = msgspec.structs.replace(reason, state=found.state, meaning=found.meaning)
    return _with_kill(reason, evidence)


def _with_kill(reason: Reason, evidence: Evidence) -> Reason:
    """Add the command that kills the current run, which may hang, unless the reason already concerns that run."""
    run = evidence.status.run
    if not is_id(run) or reason.run == run:
        return reason
    kill = Next(
        f"ccmctl run stop {short_id(run)} --kill", "to end its current run, including the running command"
    )
    return msgspec.structs.replace(reason, next=(*reason.next, kill))


def is_duplicate(evidence: Evidence) -> bool:
    """Whether two agents use the same identity, according to the node's last report."""
    record = evidence.node.record
    return record is not None and record.conflict.startswith(DUPLICATE_IDENTITY)


def went(evidence: Evidence) -> AgentEvent | None:
    """Return the event of the agent's shutdown; None if the agent has started since then or sent no such event."""
    goodbye, hello = evidence.told.get("shutdown"), evidence.told.get("startup")
    if goodbye is None or (hello is not None and hello.timestamp > goodbye.timestamp):
        return None
    return goodbye


def open_refusal(evidence: Evidence) -> AgentEvent | None:
    """
    Return the last refusal of a document by the node; None if the node has since accepted a newer document.

    The node has accepted a newer one if it has converged on the stored assignment, or uses the currently assigned facts.
    """
    refused = evidence.told.get("refused")
    if refused is None:
        return None
    what = str(refused.details.get("refused", ""))
    keys = {standing.key: name for name, standing in evidence.standing.items()}
    name = keys.get(what.removeprefix(f"{ASSIGNMENTS}/"))
    if name is not None:
        judged = evidence.judged.get(name)
        return None if judged is not None and judged.is_converged else refused
    is_own_facts = what == f"{FACTS}/{evidence.node.name}"
    has_facts = evidence.asked == ANSWERED and not evidence.status.refused_facts
    return None if is_own_facts and has_facts else refused


def format_disabled(disabled: Disabled, now: datetime) -> str:
    """Format the state of a disabled node: `2 h ago by ann until …: why`."""
    until = f" until {clock(disabled.until)}" if disabled.until else " until an operator enables it"
    if disabled.until:
        until += f" ({format_due(disabled.until, now)})"
    by = f" by {disabled.by}" if disabled.by else ""
    return one_line(f"{ago(disabled.since, now)}{by}{until}: {disabled.why or 'no reason was given'}")


def format_due(moment: datetime, now: datetime) -> str:
    """Format a time in the future: `in 12 min`, or `due` if the time has passed."""
    seconds = (moment - now).total_seconds()
    return f"in {span(seconds)}" if seconds >= 1 else "due"


def _never_seen(evidence: Evidence, _now: datetime) -> Reason:
    node = evidence.node
    why = "facts are assigned to it" if node.assigned else "its record was removed"
    return Reason(
        sentence=f"{node.name} was never seen: {why}, but no agent of that name has written its record.",
        next=(
            Next(f"systemctl status {UNIT}", "is the agent installed and running?", node.name),
            Next(f"ccmctl node add {node.name} > {node.name}.creds", "credentials, if it has none"),
            Next(f"ccmctl node rm {node.name}", "if it will not be used"),
        ),
    )


def _offline(evidence: Evidence, now: datetime) -> Reason:
    node, site, goodbye = evidence.node, evidence.site, went(evidence)
    if goodbye is not None:
        words = f"its agent was stopped at {clock(goodbye.timestamp)} ({ago(goodbye.timestamp, now)})"
    elif site is not None and (site.is_cut or site.lag):
        return _at_site(evidence, site, now)
    else:
        heard = f"{clock(evidence.heard_of)} ({ago(evidence.heard_of, now)})" if evidence.heard_of else ""
        since = f"last heartbeat at {heard}" if heard else "the time of its last heartbeat is unknown"
        words = f"{since}, and it did not sign off: the machine, its network or its agent is down"
    return Reason(
        sentence=f"{node.name} is off: {words}.",
        next=(
            Next(f"systemctl status {UNIT}; journalctl -u {UNIT} -n 50", "is it running?", node.name),
            Next(f"ccmctl node rm {node.name}", "if it is gone for good"),
        ),
    )


def _duplicate(evidence: Evidence, _now: datetime) -> Reason:
    name = evidence.node.name
    return Reason(
        sentence=f"{name} is the identity of two agents, so both refuse all work until one of them is stopped.",
        next=(
            Next(f"systemctl disable --now {UNIT}", "then give it its own identity", "the wrong machine"),
            Next(f"ccmctl why {name}", "to check again a moment later"),
        ),
    )


def _clock(evidence: Evidence, _now: datetime) -> Reason:
    name, why = evidence.node.name, evidence.node.wrong_clock
    return Reason(
        sentence=ended(
            f"{name} has a wrong clock, so it refuses signed requests and documents: {one_line(why)}"
        ),
        next=(
            Next(
                "timedatectl set-ntp true", "to set the clock; the agent then continues automatically", name
            ),
            Next("ccmctl doctor", "to list other wrong clocks"),
        ),
    )


def _disabled(evidence: Evidence, now: datetime) -> Reason:
    record = evidence.node.record
    assert record is not None
    assert record.disabled is not None
    return Reason(
        sentence=ended(f"{evidence.node.name} was disabled {format_disabled(record.disabled, now)}"),
        next=(Next(f"ccmctl enable -t node={evidence.node.name}", "to let it converge again"),),
    )


def _failed(evidence: Evidence, now: datetime) -> Reason:
    record = evidence.node.record
    found = next((item for item in evidence.judged.items() if item[1].state == NodeState.FAILED), None)
    if found is not None:
        name, judged = found
        return _failure(
            evidence, judged.run, f"the assignment {name}", judged.reason, lasting(judged.since, now)
        )
    assert record is not None
    return _failure(evidence, record.last_run, "its last run", "", lasting(record.last_time, now))


def _failure(evidence: Evidence, run: str, what: str, reason: str, since: str) -> Reason:
    name = evidence.node.name
    summary = evidence.summaries.get(run)
    failed = tuple(summary.failed) if summary is not None else ()
    if failed:
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        why = f"{failed[0].resource}{more} failed in {what}: {_first(failed[0].error)}"
    else:
        said = reason or (summary.reason if summary else "") or "the reason is no longer in the stream"
        why = f"{what} failed: {_first([said])}"
    looking = Next(f"ccmctl events --no-follow -n {name} -r {short_id(run)}", "its events of that run")
    # a suggested shell command must not contain untrusted text from a node
    is_run = is_id(run)
    return Reason(
        sentence=ended(f"{name} has failed{since}: {one_line(why)}"),
        next=(*((looking,) if is_run else ()), *_again(evidence, run)),
        failed=failed,
        run=run,
    )


def _again(evidence: Evidence, run: str) -> tuple[Next, ...]:
    """Return the command that repeats a failed run. It depends on the origin of the run."""
    start = evidence.starts.get(run)
    cause = start.cause if start is not None else ""
    if run in evidence.recorded:
        cause = "request"  # even if the start of the run is no longer in the stream
    elif start is None and not any(judged.run == run for judged in evidence.judged.values()):
        # the cause is unknown, and `run-now` does not run schedules
        return (Next(f"ccmctl history {evidence.node.name}", "its events before and after"),)
    if cause == "request":
        # agents do not repeat requests; `run-now` only applies assignments and configured manifests
        again = "the request; send it again when the cause is fixed"
        return (Next(f"ccmctl run show {short_id(run)}", again),) if is_id(run) else ()
    if cause == "schedule":
        return (Next("ccmctl schedule list", "the time of its next run"),)
    name = evidence.node.name
    return (Next(f"ccmctl run-now -t node={name}", "to try again when the cause is fixed"),)


def _outdated(evidence: Evidence, _now: datetime) -> Reason:
    name, record = evidence.node.name, evidence.node.record
    assert record is not None
    return Reason(
        sentence=one_line(ended(f"{name} obeys plans only: {record.plans_only}")),
        next=(
            Next("ccmctl signers renew", "to confirm the signers list, as an administrator"),
            Next("ccmctl doctor", "does the broker have the newest list?"),
        ),
    )


def _refused(evidence: Evidence, _now: datetime) -> Reason:
    name, record = evidence.node.name, evidence.node.record
    found = next((item for item in evidence.judged.items() if item[1].has_failed), None)
    if found is not None:
        what = f"the assignment {found[0]}: {found[1].reason or 'no reason was given'}"
        following = Next(f"ccmctl assignment status {found[0]}", "do other nodes refuse it, too?")
    elif record is not None and record.conflict:
        what = f"what is assigned to it: {record.conflict}"
        following = Next("ccmctl assignment list", "all assignments")
    elif evidence.status.refused_facts:
        why = evidence.status.refused_facts
        what = f"its assigned facts and keeps the earlier ones: {why}"
        following = Next(f"ccmctl facts history {name}", "who wrote them")
    else:
        what = f"requests: {evidence.told['refused'].message}"
        following = Next("ccmctl doctor", "are the clocks right, and does the node trust this operator?")
    return Reason(sentence=one_line(ended(f"{name} refuses {what}")), next=(following,))


def _stopped(evidence: Evidence, now: datetime) -> Reason:
    found = next((item for item in evidence.judged.items() if item[1].state == NodeState.STOPPED), None)
    if found is None:
        return _stopped_by_request(evidence, now)
    assignment, judged = found
    why = f": {judged.reason}" if judged.reason else ""
    return Reason(
        sentence=one_line(
            ended(
                f"{evidence.node.name} was stopped{lasting(judged.since, now)} in the assignment {assignment}{why}"
            )
        ),
        next=_again(evidence, judged.run),
        run=judged.run,
    )


def _stopped_by_request(evidence: Evidence, now: datetime) -> Reason:
    node, record = evidence.node.name, evidence.node.record
    assert record is not None
    summary = evidence.summaries.get(record.last_run)
    why = f": {summary.reason}" if summary is not None and summary.reason else ""
    return Reason(
        sentence=one_line(
            ended(f"the last run of {node} ended before it was complete{lasting(record.last_time, now)}{why}")
        ),
        next=_again(evidence, record.last_run),
        run=record.last_run,
    )


def _at_site(evidence: Evidence, site: SiteSource, now: datetime) -> Reason:
    name = evidence.node.name
    sentence = format_behind(name, site, condition.last_heartbeat(evidence.node), now)
    return Reason(
        sentence=sentence, next=(Next(f"ccmctl why {name}", "its state there", f"the site {site.site}"),)
    )


def _silent(evidence: Evidence, now: datetime) -> Reason:
    if evidence.site is not None:
        return _at_site(evidence, evidence.site, now)
    name, heard = evidence.node.name, condition.last_heartbeat(evidence.node)
    last = f"its last heartbeat was {ago(heard, now)}" if heard is not None else "its heartbeats arrive"
    words = (
        f"{last}, but its agent does not answer: it hangs, or the machine is overloaded or down"
        if evidence.asked == SILENT
        else f"{last}, so it missed one: its agent, its network or the machine may be down"
    )
    return Reason(
        sentence=f"{name} is silent: {words}.",
        next=(
            Next(f"ccmctl ping -t node={name}", "does it answer now?"),
            Next(f"journalctl -u {UNIT} -n 50", "its latest log lines", name),
        ),
    )


def _disk(evidence: Evidence, _now: datetime) -> Reason:
    """Explain that the state folder cannot be written. A kill would lose events, and runs cannot be undone."""
    name, trouble = evidence.node.name, evidence.status.spool.trouble
    return Reason(
        sentence=one_line(
            f"{name} cannot write its state: {trouble} Events wait in memory and are lost at a restart, and runs cannot be "
            "undone."
        ),
        next=(Next("df -h /var/lib/choria/ccm", "free space on the disk of the agent's state", name),),
    )


def _running(evidence: Evidence, now: datetime) -> Reason:
    run, status = decide_node(evidence, now).run, evidence.status
    name, blocked = evidence.node.name, _behind(evidence)
    words = format_current_run(run, status)
    return Reason(
        sentence=one_line(
            f"{name} cannot start {blocked} until this run ends: {words}."
            if blocked
            else f"{name} is busy: {words}."
        ),
        next=(
            Next(f"ccmctl events -n {name} -r {short_id(run)}", "to watch it"),
            *(
                ()
                if status.stopping
                else (Next(f"ccmctl run stop {short_id(run)}", "to end it after its current resource"),)
            ),
            Next(f"ccmctl run stop {short_id(run)} --kill", "to end that resource's command, too"),
        )
        if is_id(run)
        else (),
        run=run,
    )


def _behind(evidence: Evidence) -> str:
    """Return the name of the work that waits for the end of the current run; "" if there is none."""
    status = evidence.status
    for name, judged in evidence.judged.items():
        if judged.is_on_its_way and name != status.name:
            return f"the assignment {name}"
    return status.waiting[0].name or status.waiting[0].run if status.waiting else ""


def format_current_run(run: str, status: Status) -> str:
    """Describe the current run and its progress."""
    words = f"run {short_id(run)}" + (f" of {status.name}" if status.name else "")
    at = status.progress
    if at is not None and at.run == run and at.resource:
        place = f" ({at.position} of {at.total})" if at.total else ""
        words += f", at {at.resource}{place} for {span(at.resource_s)}"
    if status.stopping:
        words += f"; {status.stopping} stopped it, and it ends after this resource"
    for lock, holder in status.waits_for.items():
        words += f"; it waits for the {lock} lock, which {holder} holds"
    return words


def _waiting(evidence: Evidence, now: datetime) -> Reason:
    name, judged = next(item for item in evidence.judged.items() if not item[1].is_converged)
    node, revision = evidence.node.name, evidence.standing[name].revision
    when = f"; it tries {_when(judged.next_time, now)}" if judged.next_time else ""
    is_late = judged.state == NodeState.EXPIRED
    what = f"the assignment {name}, revision {revision}"
    did = f"did not start {what} in time" if is_late else f"waits to apply {what}"
    why = judged.reason or "it has not started"
    return Reason(
        sentence=one_line(f"{node} {did}: {why}{when}."),
        next=(
            Next(f"ccmctl run-now -t node={node}", "to start it now"),
            Next(f"ccmctl assignment status {name}", "the state of the other nodes"),
        ),
    )


def _refresh_pending(evidence: Evidence, _now: datetime) -> Reason:
    """Explain that a resource has changed, but its subscriber has not been refreshed and still uses the old state."""
    record = evidence.node.record
    assert record is not None
    name, pending = evidence.node.name, record.refresh_pending
    more = f" and {len(pending) - 1} more" if len(pending) > 1 else ""
    return Reason(
        sentence=one_line(
            f"{name} has not refreshed {pending[0]}{more}: an earlier run ended before it did."
        ),
        next=(
            Next(f"ccmctl run-now -t node={name}", "if its assignments or manifests declare the resource"),
            Next(f"ccmctl apply MANIFEST -t node={name}", "if a request declared the resource"),
        ),
    )


def _undelivered(evidence: Evidence, _now: datetime) -> Reason:
    status = evidence.status
    count = plural(status.spool.events, "event")
    return Reason(
        sentence=one_line(
            f"{evidence.node.name} cannot report its results ({count} in its spool): {status.trouble}."
        ),
        next=(Next("ccmctl init", "do the streams exist, and does the broker have free space?"),),
    )


def _drifted(evidence: Evidence, now: datetime) -> Reason:
    node = evidence.node.name
    name, judged = next((name, judged) for name, judged in evidence.judged.items() if judged.has_drifted)
    looking = (
        (Next(f"ccmctl run diff {judged.run} -n {node}", "what would change"),) if is_id(judged.run) else ()
    )
    return Reason(
        sentence=f"{node} has drifted{lasting(judged.since, now)}: the assignment {name} would change it, but only plans.",
        next=(*looking, Next(f"ccmctl assignment status {name}", "the state of the other nodes")),
        run=judged.run,
    )


def _well(evidence: Evidence, now: datetime) -> Reason:
    name, record, count = evidence.node.name, evidence.node.record, len(evidence.judged)
    if record is None or not (record.last_run or count):
        sentence = f"{name} is present, and nothing has been applied to it yet."
    else:
        kept = f"{plural(count, 'assignment')} converged" if count else "nothing is assigned to it"
        last = (
            f"its last run ended {record.last_state} {ago(record.last_time, now)}" if record.last_run else ""
        )
        sentence = f"{name} is in the desired state: {', '.join(part for part in (kept, last) if part)}."
    return Reason(
        sentence=sentence,
        next=(Next(f"ccmctl events --no-follow -n {name}", "its recent events"),),
    )


def _when(moment: datetime, now: datetime) -> str:
    return format_due(moment, now) if moment > now else "any moment"


def _first(errors: Sequence[str]) -> str:
    """Return the first line of the first error, shortened for the headline. All errors are printed below the headline."""
    return shortened(one_line(next(iter(errors), "").partition("\n")[0]), HEADLINE_ERROR)


_EXPLAIN: dict[str, Callable[[Evidence, datetime], Reason]] = {
    condition.NEVER_SEEN: _never_seen,
    condition.OFFLINE: _offline,
    condition.DUPLICATE: _duplicate,
    condition.CLOCK: _clock,
    condition.DISABLED: _disabled,
    condition.PLANS_ONLY: _outdated,
    condition.FAILED: _failed,
    condition.STOPPED: _stopped,
    condition.REFUSED: _refused,
    condition.SILENT: _silent,
    condition.DISK: _disk,
    condition.RUNNING: _running,
    condition.EXPIRED: _waiting,
    condition.WAITING: _waiting,
    condition.REFRESH_PENDING: _refresh_pending,
    condition.UNDELIVERED: _undelivered,
    condition.DRIFTED: _drifted,
    condition.CONVERGED: _well,
    condition.UNASSIGNED: _well,
}
