"""Show a run while it is running and when it ends, for `apply`, `ensure` and `run watch`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from ccm_agent.clikit.text import fold_names, natural, one_line, plural, short_id
from ccm_agent.model.errors import BusError
from ccm_agent.model.exits import Exit
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.records.rollout_records import GivenOrder
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.records.verdicts import Verdict
from ccm_agent.model.wire import NodeState
from ccm_ctl.app import Application
from ccm_ctl.commands.runs.failure_lines import FailureLines
from ccm_ctl.commands.runs.node_results import (
    build_result,
    format_ahead,
    format_failure,
    format_reason,
    result_fields,
)
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.background_runs import EndsWriter
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.node_run import EventReceived, News, NodeRun
from ccm_ctl.fleet.runs.proof import RunProof, read_proof
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.run_request import Launch
from ccm_ctl.fleet.runs.run_session import follow_run, new_run
from ccm_ctl.render import records
from ccm_ctl.render.command import command_report, command_result, output_fields
from ccm_ctl.render.left_out import format_left_out, format_locked, format_losses, format_not_undone
from ccm_ctl.render.outcome import (
    At,
    end_line,
    live_line,
    run_report,
)
from ccm_ctl.render.output import IN_BRIEF, IN_FULL
from ccm_ctl.render.record_types.runs import EndLine, EventLine, OutputLine, ResultLine, RunLine
from ccm_ctl.render.resource_diffs import diff_blocks
from ccm_ctl.render.verdicts import part_sentence

SLOWEST_SHOWN = 2

_FAILED_STATES = (NodeState.FAILED, NodeState.REFUSED, NodeState.LOST, NodeState.UNREACHABLE)
"""The end states that are printed during the run. The causes of the other end states are known to the operator."""

AHEAD_TOLD = 5
"""The maximum number of runs ahead in the queues of nodes that are printed during a run. The table contains all of them."""

NUMBERS_SHOWN = 1000
"""The maximum number of missing events whose numbers are in the sentence about them."""


class RunView:
    """
    Shows a run on the terminal while it is running and when it ends.

    Args:
        application: Shows the run.
        fleet: Stores the record of the run.
        record: The record of the request.
        run: The state of the run.
        offline_ok: Whether offline nodes do not affect the exit code.
        offer: The command that applies the manifest to offline nodes when they reconnect; "" if there is none.
        proof: Verifies the run's messages; None if these credentials cannot verify them.
        shows_output: Whether to show the output of all commands, not only of resources with `logoutput`.
        is_on_record: Whether the run has an operator's record, which is kept up to date.
        manifest: The sent manifest, to show the lines of errors; "" if it is not known here.
    """

    def __init__(
        self,
        application: Application,
        fleet: Fleet,
        record: RunRecord,
        run: Run,
        *,
        offline_ok: bool,
        offer: str = "",
        proof: RunProof | None = None,
        shows_output: bool = False,
        is_on_record: bool = True,
        manifest: str = "",
    ) -> None:
        self.record = record
        self._manifest = manifest
        self._shows_output = shows_output
        self._proof = proof
        self._terminal = application.terminal
        self._application = application
        self._fleet = fleet
        self._run = run
        self._history = History(fleet)
        self._offline_ok = offline_ok
        self._offer = offer
        self._told: dict[str, NodeState] = {}
        self._untold: dict[str, None] = dict.fromkeys(run.nodes)
        self._is_on_record = is_on_record
        self.rollout_orders: list[GivenOrder] = []
        self._ends = EndsWriter(fleet, run)
        self._told_away = False
        self._told_ahead: set[str] = set()
        self._failures = FailureLines(application.terminal)

    @property
    def is_plan(self) -> bool:
        """Whether the run changes nothing."""
        return self.record.action == "plan"

    @property
    def title(self) -> str:
        """The action and the name of the run."""
        return records.title_of(self.record)

    def begin(self) -> None:
        """Print the start of the run, and the command to watch it again."""
        record, run = self.record, short_id(self.record.run)
        offline = f" ({record.offline} offline)" if record.offline else ""
        self._terminal.record(RunLine, **records.run_fields(record))
        self._terminal.note(f"run {run}: {self.title} on {plural(record.nodes, 'node')}{offline}")
        if record.message:
            self._terminal.note(f"message: {one_line(record.message)}")
        self._application.interrupt_message = (
            f"stopped watching; the nodes keep running\n"
            f"  watch:  ccmctl run watch {run}\n  stop:   ccmctl run stop {run}"
        )

    async def on_turn(self, news: list[News]) -> None:
        """Show updates, and record end states that no stream stores."""
        for one in news:
            if isinstance(one, EventReceived):
                self._tell_event(one)
            else:
                self._tell_ahead(one.node)
                self._untold[one.node] = None
        self._tell_ends()
        self._tell_away()
        if self._terminal.is_live:
            self._terminal.live(self._line())
        self._terminal.flush()
        if self._is_on_record:
            await self._ends.on_turn(news)

    async def finish(self) -> Exit:
        """Show the results, close the record, and return the exit code."""
        self._tell_ends(everything=True)
        self._terminal.live("")
        try:
            if self._is_on_record and self._run.is_ended:
                await self._history.finish(self._run)
        except BusError as err:
            self._terminal.note(f"the run's record could not be closed: {err}")
        self._application.interrupt_message = ""
        code = choose_exit(self._run, offline_ok=self._offline_ok)
        self.show()
        self._terminal.record(
            EndLine,
            run=self.record.run,
            counts={str(state): count for state, count in self._run.counts().items()},
            exit=int(code),
        )
        self._tell_offline()
        self._tell_open()
        return code

    def show(self) -> None:
        """Show the table, the failures and the last line."""
        if self._terminal.json:
            return
        if self._run.ignored:
            names = fold_names(self._run.ignored)
            self._terminal.note(f"ignored: {names} answered, but their assigned facts do not match this run")
        if self.record.action == "exec":
            self._show_command()
            self._tell_losses()
            return
        is_every_output = self._shows_output or self.record.action == "ensure"
        results = [
            build_result(node, is_every_output=is_every_output, manifest=self._manifest)
            for node in self._run.nodes.values()
        ]
        seconds = _took_s(self.record, self._run, self._fleet.clock.now())
        style = self._terminal.style
        last = end_line(self.title, self._run.counts(), seconds, self.record.run, style, plan=self.is_plan)
        limits = IN_FULL if self.record.action == "ensure" else IN_BRIEF
        report = run_report(results, style, plan=self.is_plan, run=self.record.run, output=limits)
        if blocks := self._diffs():
            self._terminal.show("\n".join(blocks) + "\n")
        self._terminal.show(f"{report}\n{last}" if report else last)
        nodes = self._run.nodes.items()
        for sentence in (
            *format_left_out({name: summary.left_out for name, one in nodes if (summary := one.summary)}),
            *format_locked({name: one.events.values() for name, one in nodes}),
            *format_not_undone({name: one.events.values() for name, one in nodes}),
        ):
            self._terminal.warn(sentence)
        self._tell_losses()
        self._tell_unproven()

    def _tell_losses(self) -> None:
        nodes = self._run.nodes.items()
        for sentence in format_losses(
            {name: summary.warnings for name, one in nodes if (summary := one.summary)}
        ):
            self._terminal.warn(sentence)

    def _diffs(self) -> list[str]:
        """Return the diffs of the run; [] if they were not requested."""
        if not self.record.request.get("diff"):
            return []
        told = [
            (name, node.events[number])
            for name, node in sorted(self._run.nodes.items(), key=lambda item: natural(item[0]))
            for number in sorted(node.events)
        ]
        old = {name for name, event in told if event.changed and event.diff is None and event.type != "apply"}
        if old:
            self._terminal.note(f"no diffs from {fold_names(old)}: the agents are too old")
        return diff_blocks(told, self._terminal.style)

    def _show_command(self) -> None:
        """Show the output of the command for each node, and the last line."""
        results = {
            name: command_result(node.state, format_reason(node), node.events)
            for name, node in self._run.nodes.items()
        }
        seconds = _took_s(self.record, self._run, self._fleet.clock.now())
        style = self._terminal.style
        self._terminal.show(command_report(self.title, results, seconds, self.record.run, style))
        self._tell_unproven()

    def _tell_event(self, one: EventReceived) -> None:
        """Print an event as a record. The event of a command is printed without the fields that are equal on all nodes."""
        verdict, event = self.event_verdict(one.node), one.event
        if self.record.action != "exec":
            self._terminal.record(EventLine, event=event, verdict=verdict)
        elif isinstance(event, TransactionEvent):
            fields = output_fields(event)
            self._terminal.record(OutputLine, run=self.record.run, node=one.node, **fields, verdict=verdict)

    def result_fields(self, node: NodeRun) -> dict[str, Any]:
        """Return the result of a node as record fields, with its verdict."""
        fields = result_fields(self.record.run, node)
        if self._proof is None:
            return fields
        report = self._proof.report(node.node, len(node.lacking))
        return fields | {
            "verdict": str(report.verdict),
            "unproven": report.unproven or None,
            "forged": report.forged or None,
            "reasons": report.reasons or None,
        }

    def event_verdict(self, node: str) -> str | None:
        """Return the current verdict on the events of a node; None if these credentials cannot verify events."""
        return str(self._proof.of_events(node)) if self._proof is not None else None

    def _tell_unproven(self) -> None:
        """Print a sentence for each node whose events are missing or not genuine, and the nodes that do not sign events."""
        if self._proof is None:
            return
        unsigned = []
        for name, node in sorted(self._run.nodes.items()):
            report = self._proof.report(name, len(node.lacking))
            if report.verdict is Verdict.UNSIGNED:
                unsigned.append(name)
            numbers = node.lacking.first(NUMBERS_SHOWN) if report.missing else []
            if sentence := part_sentence(report, numbers):
                self._terminal.note(sentence)
        if unsigned:
            self._terminal.note(
                f"not signed: {fold_names(unsigned)}; `ccmctl signers list` shows how long this is allowed"
            )

    def _tell_offline(self) -> None:
        """Print the offline nodes, and the command that applies the manifest when they reconnect."""
        offline = [name for name, node in self._run.nodes.items() if node.state is NodeState.OFFLINE]
        if offline and self._offer:
            who = "to apply this when it returns" if len(offline) == 1 else "to apply this when they return"
            self._terminal.note(f"offline: {fold_names(offline)}; {who}, assign it:\n  {self._offer}")

    def _tell_open(self) -> None:
        """Print the nodes that had not ended when the operator stopped watching, and the command that shows their results."""
        names = [node.node for node in self._run.expected if not node.state.is_final]
        if names and self._run.is_given_up:
            verb = "has" if len(names) == 1 else "have"
            run = short_id(self.record.run)
            self._terminal.note(
                f"stopped watching; {fold_names(names)} {verb} not ended\n"
                f"  watch:  ccmctl run watch {run}\n  show:   ccmctl run show {run}"
            )

    def _tell_ends(self, *, everything: bool = False) -> None:
        """
        Print records of ended nodes, each after all events of the node. A lost node that reconnects is printed again.

        While other nodes are still running, failures are also printed for people. The table at the end contains them too.
        """
        is_going_on = not everything and not self._run.is_done
        for name in list(self._untold):
            node = self._run.nodes[name]
            if not node.state.is_final:
                del self._untold[name]
            elif everything or not node.has_gap:
                del self._untold[name]
                if self._told.get(name) is not node.state:
                    self._told[name] = node.state
                    self._terminal.record(ResultLine, **self.result_fields(node))
                    is_listed = is_going_on or self._failures.has_named
                    if is_listed and node.state in _FAILED_STATES:
                        self._failures.name(name, str(node.state), format_failure(node))
        if everything:
            self._failures.close()

    def _tell_ahead(self, name: str) -> None:
        """Print each run ahead in the queue of a node, with its operator. Each run is printed once."""
        ahead = self._run.nodes[name].ahead
        if ahead is not None and ahead.run not in self._told_ahead and len(self._told_ahead) < AHEAD_TOLD:
            self._told_ahead.add(ahead.run)
            self._terminal.note(
                f"{name}: queued {format_ahead(ahead)}\n  watch:  ccmctl run watch {short_id(ahead.run)}"
            )

    def _tell_away(self) -> None:
        is_away = self._run.away_since is not None
        if is_away != self._told_away:
            self._told_away = is_away
            self._terminal.note(
                "broker connection lost; nodes keep running, waiting to reconnect"
                if is_away
                else "broker connection restored; reading missed events"
            )

    def _line(self) -> str:
        now = asyncio.get_running_loop().time()
        busy = [
            At(
                node=node.node,
                resource=node.progress.resource,
                seconds=node.progress.resource_s + now - node.heard_at,
                position=node.progress.position,
                total=node.progress.total,
            )
            for node in self._run.nodes.values()
            if node.state is NodeState.RUNNING and node.progress and node.progress.resource
        ]
        slowest = sorted(busy, key=lambda at: -at.seconds)[:SLOWEST_SHOWN]
        note = "waiting for the broker" if self._run.away_since is not None else ""
        return live_line(
            self.title, self._run.counts(), slowest, note, self._terminal.live_style, plan=self.is_plan
        )


async def start_and_watch(
    application: Application,
    fleet: Fleet,
    launch: Launch,
    *,
    offline_ok: bool,
    timeout_s: int | None = None,
    offer: str = "",
    on_end: Callable[[Run, RunProof | None], Awaitable[None]] | None = None,
) -> Exit:
    """
    Send a request and follow its run to the end. See RunView for `offline_ok` and `offer`. Then call `on_end` with the run and
    the proof that verified its messages.

    After `timeout_s`, nodes that have not ended are treated as lost. The default is a day after the request's deadline.
    """
    run = new_run(fleet, launch, timeout_s)
    proof = await read_proof(fleet, launch.resolved)
    manifest = getattr(launch.request, "manifest", None) or ""
    view = RunView(
        application,
        fleet,
        launch.record,
        run,
        offline_ok=offline_ok,
        offer=offer,
        proof=proof,
        manifest=manifest,
    )
    await follow_run(fleet, launch, run, proof, on_begin=view.begin, on_turn=view.on_turn)
    code = await view.finish()
    if on_end is not None:
        await on_end(run, proof)
    return code


def choose_exit(run: Run, *, offline_ok: bool) -> Exit:
    """Return the exit code for the end of a run."""
    states = set(run.counts())
    if states & {NodeState.FAILED, NodeState.STOPPED, NodeState.REFUSED}:
        return Exit.FAILED
    forgiven = {NodeState.STABLE, NodeState.CHANGED} | ({NodeState.OFFLINE} if offline_ok else set())
    return Exit.MISSING if states - forgiven else Exit.OK


def _took_s(record: RunRecord, run: Run, now: datetime) -> float:
    """
    Return the duration of a run in seconds, until its last summary, or until now if a summary is missing.

    The result is at least the duration of the run's longest session.
    """
    began = record.time or now
    ends, longest_ns = [], 0
    for node in run.expected:
        if summary := node.summary:
            longest_ns = max(longest_ns, summary.total_duration)
            ends += [summary.end_time] if summary.end_time else []
    end = max(ends) if run.is_done and ends else now
    # The end is from the nodes' clocks, so impossible values are limited.
    return max(longest_ns / 1e9, min((end - began).total_seconds(), (now - began).total_seconds()))
