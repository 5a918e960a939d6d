"""`ccmctl run stop`: stop a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from ccm_agent.clikit.text import fold_names, plural, short_id
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.rollout_records import Phase
from ccm_agent.model.wire import AnswerState
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.runs.stored_runs import format_outcome, format_starter, pick_up, run_argument
from ccm_ctl.commands.runs.targets import NOT_AGREED, yes_option
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.orders import abort_with_run
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.gather import Reply
from ccm_ctl.fleet.runs.history import NEWEST, History, Recorded
from ccm_ctl.fleet.runs.open_runs import settle_stopped
from ccm_ctl.fleet.runs.run_request import send_stop
from ccm_ctl.render import records
from ccm_ctl.render.outcome import format_counts
from ccm_ctl.render.record_types.runs import RunLine


@verb(
    "stop",
    examples=["ccmctl run stop 2zFX", "ccmctl run stop last --yes", "ccmctl run stop 2zFX --kill"],
    options=[
        run_argument(),
        click.Option(
            ["--kill"],
            is_flag=True,
            help="End the command of the current resource, too. Older agents wait until it has finished.",
        ),
        yes_option(),
    ],
)
def stop(application: Application, run: str, kill: bool, yes: bool) -> Exit:
    """
    Stop a run. Nodes finish the current resource and skip the rest.

    `last` is your own newest run; name a run of another operator by its ID. Stopping a rollout
    aborts it. For `last` and for a paused rollout, you are asked to confirm. `ccmctl run watch` shows the progress.

    Exit codes: 0 the nodes stop, or the run has ended; 1 it could not be stopped; 2 a node refuses to stop; 3 a node did not
    answer.
    """

    async def work(fleet: Fleet) -> Exit:
        recorded, state, _, follower = await pick_up(application, fleet, run, offline_ok=True)
        record = recorded.record
        # Use only events of the stream, because another operator's record that the run has ended must not prevent the stop.
        await follower.look()
        is_closed = recorded.state.state == "done" and not recorded.closed_by
        if is_closed or state.is_done:
            words = format_counts(state.counts(), plan=record.action == "plan")
            if is_closed:
                words = format_outcome(record.action, recorded.state, "")
            application.terminal.record(RunLine, run=record.run, state="done")
            application.terminal.show(f"{_title(recorded)} has ended already: {words}\n")
            return Exit.OK
        if not yes and await _is_paused(fleet, record.run):
            short = short_id(record.run)
            question = (
                f"{_title(recorded)} is a paused rollout; stopping it aborts it, which cannot be undone "
                f"(`ccmctl run resume {short}` continues it). abort it?"
            )
            if not await application.terminal.ask(
                question, otherwise=f"use `ccmctl run abort {short}`, or --yes"
            ):
                return NOT_AGREED
        elif run == NEWEST and not yes:
            question = f"stop {_title(recorded)} on {plural(record.nodes, 'node')}?"
            if not await application.terminal.ask(question, otherwise="use --yes"):
                return NOT_AGREED

        await abort_with_run(fleet, recorded)
        if recorded.is_on_record:
            await History(fleet).mark_stopped(record.run, fleet.operator, is_stopping=True)
        nodes = set(recorded.nodes) - set(recorded.offline)
        replies, silent = await send_stop(fleet, record, nodes, is_kill=kill)
        unreached = await settle_stopped(fleet, recorded, replies) if recorded.is_on_record else []
        return _show(application, recorded, replies, silent, unreached, is_kill=kill)

    return application.run(work)


async def _is_paused(fleet: Fleet, run: str) -> bool:
    found = await RolloutStore(fleet).look(run)
    return found is not None and found.state.phase is Phase.PAUSED


def _show(
    application: Application,
    recorded: Recorded,
    replies: Mapping[str, Reply],
    silent: Sequence[str],
    unreached: Sequence[str],
    *,
    is_kill: bool,
) -> Exit:
    """Print the replies of the nodes, and return the exit code."""
    terminal = application.terminal
    refused = {
        name: reply.answer.reason
        for name, reply in sorted(replies.items())
        if reply.answer.state == AnswerState.REFUSED
    }
    ended = sorted(name for name, reply in replies.items() if reply.answer.outcome)
    stopping = len(replies) - len(refused) - len(ended)
    run = short_id(recorded.record.run)
    terminal.record(
        RunLine,
        run=recorded.record.run,
        state="stopping",
        stopping=stopping,
        ended=ended or None,
        refused=refused or None,
        silent=list(silent) or None,
    )
    words = f"{_title(recorded)}: {plural(stopping, 'node')} stopping"
    before = len(ended) - len(unreached)
    lines = [f"{words}, {before} already ended" if before else words]
    if unreached:
        lines.append(f"the request had not reached {fold_names(unreached)}, and will be refused there")
    lines += [f"{name} refuses to stop: {reason}" for name, reason in refused.items()]
    if silent:
        lines.append(f"no answer: {fold_names(silent)}")
    lines.append(f"  watch:  ccmctl run watch {run}")
    if stopping and not is_kill:
        lines.append(
            f"  kill:   ccmctl run stop {run} --kill   (ends the command of the current resource, too)"
        )
    terminal.show("\n".join(lines) + "\n")
    return Exit.FAILED if refused else Exit.MISSING if silent else Exit.OK


def _title(recorded: Recorded) -> str:
    record = recorded.record
    by = format_starter(recorded.cause, recorded.origin, record.requester)
    return f"run {short_id(record.run)} ({records.title_of(record)} by {by})"
