"""`ccmctl run`: what was started, here or elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from ccm_agent.clikit.durations import Duration
from ccm_agent.model.exits import Exit
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.render import records

if TYPE_CHECKING:
    from ccm_agent.model.run_records import RunState
    from ccm_ctl.app import Application
    from ccm_ctl.commands.run_view import RunView
    from ccm_ctl.fleet.follow import Follower
    from ccm_ctl.fleet.history import Recorded
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.run import Run

_RUN = click.Argument(["run"], metavar="RUN")


@group("run", no_args_is_help=True, examples=["ccmctl run list", "ccmctl run watch last"])
def run(application: Application) -> None:
    """
    List, show, watch and stop runs of all operators.

    RUN is a run ID, an unambiguous prefix of one, or `last`.
    """


@verb(
    "list",
    examples=["ccmctl run list", "ccmctl run list --limit 100 --json"],
    options=[click.Option(["--limit"], type=click.IntRange(1), default=20, show_default=True, metavar="N")],
)
def _list(application: Application, limit: int) -> Exit:
    """List recent runs, newest first."""

    async def work(fleet: Fleet) -> Exit:
        from ccm_agent.clikit.table import Column
        from ccm_agent.clikit.text import ago, plural
        from ccm_ctl.commands.run_view import run_fields
        from ccm_ctl.fleet.history import History

        terminal = application.terminal
        rows = []
        listed = await History(fleet).newest(limit)
        for record, state, closed_by in listed.runs:
            terminal.record(
                records.RUN,
                **run_fields(record),
                state=state.state,
                counts=state.counts,
                closed_by=closed_by or None,
            )
            rows.append(
                [
                    record.run,
                    ago(record.time, fleet.clock.now()),
                    record.requester,
                    f"{record.action} {record.name}",
                    str(record.nodes),
                    _outcome_words(record.action, state, closed_by),
                ]
            )
        columns = [Column("RUN"), Column("WHEN", spare=1), Column("BY", spare=2), Column("WHAT", fold=True)]
        columns += [Column("NODES", right=True), Column("OUTCOME", fold=True)]
        terminal.table(columns, rows, "no run yet\n")
        if listed.left_out:
            what = plural(len(listed.left_out), "key")
            terminal.note(f"left out: {what} of CCM_RUNS that cannot be read, such as {listed.left_out[0]}")
        return Exit.OK

    return application.run(work)


@verb(
    "show",
    examples=["ccmctl run show last", "ccmctl run show 2zFX --events", "ccmctl run show last --json | jq ."],
    options=[_RUN, click.Option(["--events"], is_flag=True, help="Also show each event.")],
)
def _show(application: Application, run: str, events: bool) -> Exit:
    """Show the current state of a run."""

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.commands.run_view import run_fields
        from ccm_ctl.render.event import event_line

        recorded, state, watch, follower = await _picked_up(application, fleet, run, offline_ok=True)
        await _look(follower, state, recorded)
        terminal = application.terminal
        terminal.record(records.RUN, **run_fields(recorded.record), state=recorded.state.state)
        lines = []
        for _, node in sorted(state.nodes.items()):
            for event in (node.events[number] for number in sorted(node.events)):
                terminal.record(records.EVENT, event=event, verdict=watch.event_verdict(node.node))
                lines.append(event_line(node.node, event, terminal.style))
            terminal.record(records.RESULT, **watch.result_fields(node))
        if events and lines:
            terminal.show("".join([*lines, "\n"]))
        watch.show()
        return Exit.OK

    return application.run(work)


@verb(
    "watch",
    examples=["ccmctl run watch last", "ccmctl run watch 2zFX --json"],
    options=[
        _RUN,
        click.Option(
            ["--offline"],
            type=click.Choice(["fail", "ok"]),
            default="fail",
            help="With `ok`, offline nodes do not cause exit code 3.",
        ),
        click.Option(
            ["--timeout"], type=Duration(), metavar="TIME", help="Stop waiting after this time. [24h]"
        ),
    ],
)
def _watch(application: Application, run: str, offline: str, timeout: int | None) -> Exit:
    """
    Watch a run until it ends. Earlier events are read from the stream.

    Exits with the same codes as the command that started the run.
    """

    async def work(fleet: Fleet) -> Exit:
        recorded, state, watch, follower = await _picked_up(
            application, fleet, run, offline_ok=offline == "ok", timeout_s=timeout
        )
        watch.begin()
        await _look(follower, state, recorded)
        await follower.follow()
        return await watch.finish()

    return application.run(work)


@verb(
    "stop",
    examples=["ccmctl run stop last"],
    options=[_RUN],
)
def _stop(application: Application, run: str) -> Exit:
    """
    Stop a run. Nodes finish the current resource and skip the rest.

    It returns when the nodes were told; `ccmctl run watch` shows how they come to their end.
    """

    async def work(fleet: Fleet) -> Exit:
        from ccm_agent.model.errors import RunError
        from ccm_ctl.fleet.history import History
        from ccm_ctl.fleet.run_request import send_stop

        history = History(fleet)
        recorded = await history.load(await history.find(run))
        if recorded.state.state == "done" and not recorded.closed_by:
            raise RunError(f"{recorded.record.run}: has ended already; `ccmctl run show` shows how")

        def stopping(state: RunState) -> None:
            state.state, state.stopped_by = "stopping", fleet.operator

        await history.change(recorded.record.run, stopping)
        await send_stop(fleet, recorded.record)
        application.terminal.record(records.RUN, run=recorded.record.run, state="stopping")
        application.terminal.show(
            f"the nodes of run {recorded.record.run} are told to stop\n"
            f"  watch:  ccmctl run watch {recorded.record.run}\n"
        )
        return Exit.OK

    return application.run(work)


for _command in (_list, _show, _watch, _stop):
    run.add_command(_command)


async def _picked_up(
    application: Application, fleet: Fleet, word: str, *, offline_ok: bool, timeout_s: int | None = None
) -> tuple[Recorded, Run, RunView, Follower]:
    """A run that was started before, ready to be looked at or followed."""
    from ccm_ctl.commands.run_view import RunView
    from ccm_ctl.fleet.follow import Follower
    from ccm_ctl.fleet.history import History
    from ccm_ctl.fleet.joining import Joining
    from ccm_ctl.fleet.proof import read_proof
    from ccm_ctl.fleet.run import LIMIT_S, Run

    history = History(fleet)
    recorded = await history.load(await history.find(word))
    now = asyncio.get_running_loop().time()
    limit_s = timeout_s or LIMIT_S
    state = Run(recorded.record.run, recorded.nodes, recorded.offline, now, asked=False, limit_s=limit_s)
    proof = await read_proof(fleet)
    watch = RunView(application, fleet, recorded.record, state, offline_ok=offline_ok, proof=proof)
    may_join = Joining(fleet, recorded.record.targets, recorded.record.where).may_join
    follower = Follower(fleet, state, ask=None, may_join=may_join, on_turn=watch.on_turn, proof=proof)
    return recorded, state, watch, follower


async def _look(follower: Follower, state: Run, recorded: Recorded) -> None:
    """Take in what the stream holds, then what only the record knows: the stream counts more."""
    from ccm_ctl.fleet.history import restore_ends

    await follower.look()
    restore_ends(state, recorded, asyncio.get_running_loop().time())


def _outcome_words(action: str, state: RunState, closed_by: str) -> str:
    from ccm_agent.model.wire import NodeState
    from ccm_ctl.render.outcome import count_words

    if state.state != "done":
        return state.state if state.state == "stopping" else "open"
    counts: dict[Any, int] = {
        NodeState(word): count for word, count in state.counts.items() if word in set(NodeState)
    }
    words = count_words(counts, plan=action == "plan") or "nothing was done"
    return f"{words} (seen by {closed_by})" if closed_by else words
