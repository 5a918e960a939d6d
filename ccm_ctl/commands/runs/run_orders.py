"""`ccmctl run pause|resume|promote|abort`: control a rollout."""

from __future__ import annotations

import shlex

import click

from ccm_agent.clikit.text import fold_names, short_id
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.rollout_records import Lease, OrderKind, Phase, RolloutState
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.rollouts.rollout_servers import tell_servers
from ccm_ctl.commands.runs.open_rollouts import alongside_option, warn_of_open
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.handover import check_can_hand_over
from ccm_ctl.fleet.rollout.lease import wait_out
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import History, Recorded
from ccm_ctl.fleet.runs.run_request import send_stop

_RUN = click.Argument(["run"], metavar="RUN")
_WHY = click.Option(["--why"], default="", metavar="TEXT", help="Record the reason.")
_NO_WAIT = click.Option(
    ["--no-wait"], is_flag=True, help="Fail immediately if a driver that may be dead still has its lease."
)
_DETACH = click.Option(
    ["--detach"], is_flag=True, help="Let a rollout server drive it, and return immediately."
)


@verb("pause", examples=["ccmctl run pause last --why 'error rate is up'"], options=[_RUN, _WHY])
def pause_run(application: Application, run: str, why: str) -> Exit:
    """
    Pause a rollout: no further node starts.

    Nodes that have started finish their run. `ccmctl run stop` stops those too.
    """

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.fleet.rollout.orders import Orders

        state = await Orders(fleet, await _find(fleet, run)).give(OrderKind.PAUSE, why=why)
        return _say(application, state, "paused")

    return application.run(work)


@verb("abort", examples=["ccmctl run abort last --why 'wrong version'"], options=[_RUN, _WHY])
def abort_run(application: Application, run: str, why: str) -> Exit:
    """
    End a rollout: no further node starts, and nodes that have started skip their remaining resources.

    Waits until the nodes have ended, at most 10 s for those in a resource. Then `ccmctl run retry` works.

    This cannot be undone; `ccmctl run pause` can. A node that had accepted the run and is cut off from the broker may still
    start it; repeat the abort when it is back. If an assignment is rolled out, nodes that have started keep the new revision and
    converge on it until `ccmctl rollback NAME` restores the previous one.
    """

    async def work(fleet: Fleet) -> Exit:
        recorded = await _find(fleet, run)
        state = await abort_rollout(application, fleet, recorded, why)
        record = recorded.record
        if record.action == "assign" and (state.asked or state.returned):
            name = shlex.quote(record.name)
            application.terminal.note(
                f"nodes that have started keep the new revision of {record.name}\n"
                f"  restore:  ccmctl rollback {name}   (ccmctl unassign {name} if it was the first revision)"
            )
        return Exit.OK

    return application.run(work)


async def abort_rollout(application: Application, fleet: Fleet, recorded: Recorded, why: str) -> RolloutState:
    """
    End a rollout, stop the nodes that have started, and show the rollout.

    Raises:
        RunError: The run has ended, or is not a rollout.
    """
    from ccm_ctl.commands.runs.stored_runs import format_busy
    from ccm_ctl.fleet.rollout.orders import Orders
    from ccm_ctl.fleet.runs.open_runs import settle_aborted

    state = await Orders(fleet, recorded).give(OrderKind.ABORT, why=why)
    await History(fleet).mark_stopped(recorded.record.run, fleet.operator)
    asked = [*recorded.nodes[: state.asked], *state.returned]
    replies, silent = await send_stop(fleet, recorded.record, asked, is_kill=False)
    application.terminal.live("waiting until the nodes have ended")
    try:
        run = await settle_aborted(fleet, recorded, replies, silent)
    finally:
        application.terminal.live("")
    if silent:
        application.terminal.note(
            f"no answer to the stop: {fold_names(silent)}; a node that had accepted the run may still start it\n"
            f"  repeat the abort when it is back:  ccmctl run abort {short_id(recorded.record.run)}"
        )
    _say(application, state, "aborted")
    if busy := [node.node for node in run.expected if not node.state.is_final]:
        application.terminal.note(format_busy(busy, recorded.record.run))
    return state


@verb(
    "resume",
    examples=["ccmctl run resume last", "ccmctl run resume 2zFX --detach"],
    options=[_RUN, _DETACH, _NO_WAIT, alongside_option()],
)
def resume_run(application: Application, run: str, detach: bool, no_wait: bool, alongside: bool) -> Exit:
    """
    Continue a rollout that is paused, or whose driver is gone.

    The limits ignore nodes that failed so far. If no other process drives the rollout, this command does. It waits until the
    lease of a dead driver has expired, at most 20 s.
    """
    return _continue(
        application, run, is_promoted=False, detach=detach, waits=not no_wait, alongside=alongside
    )


@verb("promote", examples=["ccmctl run promote last"], options=[_RUN, _DETACH, _NO_WAIT, alongside_option()])
def promote_run(application: Application, run: str, detach: bool, no_wait: bool, alongside: bool) -> Exit:
    """
    Continue a rollout, and skip the wait and the gate after the current wave.

    If no other process drives the rollout, this command does. It waits until the lease of a dead driver has expired.
    """
    return _continue(
        application, run, is_promoted=True, detach=detach, waits=not no_wait, alongside=alongside
    )


def _continue(
    application: Application, run: str, *, is_promoted: bool, detach: bool, waits: bool, alongside: bool
) -> Exit:
    async def work(fleet: Fleet) -> Exit:
        return await continue_rollout(
            application,
            fleet,
            await _find(fleet, run),
            is_promoted=is_promoted,
            detach=detach,
            waits=waits,
            alongside=alongside,
        )

    return application.run(work)


async def continue_rollout(
    application: Application,
    fleet: Fleet,
    recorded: Recorded,
    *,
    is_promoted: bool = False,
    detach: bool = False,
    waits: bool = True,
    alongside: bool = False,
) -> Exit:
    """
    Continue a rollout that is paused or whose driver has ended. Drive it if no other process does.

    Args:
        application: Shows the rollout.
        fleet: The bus.
        recorded: The run of the rollout, with its record.
        is_promoted: Whether to skip the wait and the gate after the current wave.
        detach: Whether to let a rollout server drive the rollout.
        waits: Whether to wait until the lease of a dead driver expires.
        alongside: Whether to continue although another rollout is in progress on the same nodes.

    Raises:
        RunError: The rollout has ended, or another driver has its lease.
    """
    from ccm_ctl.commands.rollouts.rollout_drive import resume_driving
    from ccm_ctl.fleet.rollout.orders import Orders
    from ccm_ctl.fleet.runs.run_again import known_ends

    if detach:
        check_can_hand_over(fleet, recorded.record.action)
    is_refused, own = not alongside, recorded.record.run
    await warn_of_open(application, fleet, recorded.nodes, is_refused=is_refused, but=own)
    if waits:
        await _wait_for_driver(application, fleet, own, is_promoted=is_promoted)
    orders = Orders(fleet, recorded, await known_ends(fleet, recorded))
    kind = OrderKind.PROMOTE if is_promoted else OrderKind.RESUME
    state = await orders.give(kind, detaches=lambda _: detach)
    is_driven = state.lease is not None and state.lease.until > fleet.clock.now()
    if detach and not is_driven:
        await tell_servers(application, fleet, "drives")
    if is_driven or detach:
        return _say(application, state, "promoted" if is_promoted else "resumed")
    return await resume_driving(application, fleet, recorded)


async def _wait_for_driver(application: Application, fleet: Fleet, run: str, *, is_promoted: bool) -> None:
    """Wait until the lease of a dead driver expires, and show a countdown."""
    store, terminal, told = RolloutStore(fleet), application.terminal, list[str]()

    def tell(lease: Lease, left_s: int) -> None:
        sentence = f"{lease.operator} on {lease.host} has the lease of this rollout"
        if not told:
            terminal.note(f"{sentence}; waiting until it expires, in {left_s} s (--no-wait does not wait)")
        told.append(sentence)
        terminal.live(f"{sentence} for {left_s} s")

    found = await store.look(run)
    if found is None:
        return  # the state was removed, or the run is not a rollout
    is_needed = not is_promoted and found.state.phase is not Phase.PAUSED
    try:
        await wait_out(store, run, fleet.clock, tell, is_needed=is_needed)
    finally:
        terminal.live("")


async def _find(fleet: Fleet, word: str) -> Recorded:
    history = History(fleet)
    return await history.load(await history.find(word))


def _say(application: Application, state: RolloutState, done: str) -> Exit:
    from ccm_ctl.commands.rollouts.rollout_drive import print_rollout

    asked = state.asked + len(state.returned)
    print_rollout(application.terminal, state)
    application.terminal.show(
        f"run {short_id(state.run)}: {done} after {asked} of {state.plan.total} nodes had started\n"
    )
    return Exit.OK
