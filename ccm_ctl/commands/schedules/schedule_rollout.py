"""`ccmctl schedule` for rollouts. Rollout servers start them and drive them in waves."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from ccm_agent.clikit.options import Options
from ccm_agent.clikit.table import Column
from ccm_agent.clikit.text import clock, one_line, short_id
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.rollout_records import RolloutState
from ccm_agent.model.wire import MANIFEST_APPLY, MANIFEST_PLAN, ManifestRequest
from ccm_ctl.commands.rollouts.rollout_drive import start_rollout
from ccm_ctl.commands.rollouts.rollout_options import RolloutFlags, refuse_credentials
from ccm_ctl.commands.runs.run_view import choose_exit
from ccm_ctl.commands.runs.targets import ManifestOptions, TargetOptions
from ccm_ctl.fleet.rollout.plan import make_plan
from ccm_ctl.fleet.rollout.scheduled import START_WITHIN_S, ScheduledRollout
from ccm_ctl.fleet.rollout.starts import StartsStore
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.render.record_types.runs import ScheduledStartLine

if TYPE_CHECKING:
    from ccm_agent.clikit.terminal import Terminal
    from ccm_agent.model.formats.moments import GivenTime
    from ccm_agent.model.records.rollout_records import ScheduledStart, ScheduleStarts
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.content import Content
    from ccm_ctl.fleet.nodes.nodes import Inventory, TargetSet
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.runs.run_request import Launch
    from ccm_ctl.fleet.schedules.stored_schedule import Schedule

DEADLINE_S = 3600.0
"""The default time within which a node must start after its request, in seconds."""

GRACE_S = 10.0
"""The time in seconds after which a due start is considered missed. A running server starts within a few seconds."""


class ScheduleAddOptions(Options, frozen=True, kw_only=True):
    """The options of `ccmctl schedule add`."""

    name: str
    path: str
    nodes: TargetOptions
    cron: str
    tz: str
    every: int | None
    at: GivenTime | None
    valid_for: int
    deadline: int | None
    catch_up: bool
    noop: bool
    rollout: RolloutFlags
    source: ManifestOptions
    yes: bool


def is_scheduled_rollout(given: ScheduleAddOptions) -> bool:
    """
    Whether the options of `schedule add` make a rollout.

    Raises:
        UsageError: The options contradict each other.
    """
    if not given.rollout.is_rollout:
        if given.rollout.start_within is not None:
            raise UsageError("--start-within requires a rollout; add --batch, --canary or --rollout")
        return False
    if given.catch_up:
        raise UsageError(
            "--catch-up cannot be combined with a rollout, which includes nodes that return while it is in progress"
        )
    return True


def make_rollout(
    fleet: Fleet, content: Content, inventory: Inventory, resolved: TargetSet, given: ScheduleAddOptions
) -> ScheduledRollout:
    """
    Return the document that is stored and signed. The waves are checked against the nodes that are present now.

    Raises:
        UsageError: The options or the file are not valid for these nodes.
    """
    refuse_credentials(given.source.data)
    definition = given.rollout.definition()
    make_plan(definition, inventory, resolved)
    request = ManifestRequest(
        protocol=MANIFEST_PLAN if given.noop else MANIFEST_APPLY,
        targets=resolved.targets,
        where=resolved.where,
        requester=fleet.operator,
        name=content.name,
        bundle=content.bundle,
        digest=content.digest,
        data=list(given.source.data),
    )
    within, deadline = given.rollout.start_within, given.deadline
    return ScheduledRollout(
        request=request,
        scope=" ".join(resolved.scopes),
        definition=definition,
        start_within_s=float(within if within is not None else START_WITHIN_S),
        deadline_s=float(deadline if deadline is not None else DEADLINE_S),
    )


async def run_rollout_now(
    application: Application,
    fleet: Fleet,
    rollout: ScheduledRollout,
    launch: Launch,
    inventory: Inventory,
) -> Exit:
    """Start the rollout of a schedule immediately from a prepared run, and drive it."""
    plan, order = make_plan(rollout.definition, inventory, launch.resolved)
    launch = msgspec.structs.replace(launch, resolved=launch.resolved.in_order(order))
    state = RolloutState(run=launch.record.run, plan=plan, deadline_s=rollout.deadline_s)
    return await start_rollout(application, fleet, launch, state, offline_ok=False)


async def show_rollout_status(application: Application, fleet: Fleet, one: Schedule, *, offline: str) -> Exit:
    """Show the most recent starts of a scheduled rollout, and the state of the newest run."""
    from ccm_ctl.commands.runs.stored_runs import attend, look, show_stored

    assert one.rollout is not None
    terminal = application.terminal
    stored = await StartsStore(fleet).look(one.name, one.rollout)
    starts = stored.starts
    if stored.unverified:
        terminal.warn(f"{one.name}: the stored starts are ignored and not shown: {stored.unverified}")
    missed = _missed(fleet, one, starts)
    for start in starts.starts:
        _print_start(terminal, one.name, start)
    terminal.show(f"{one.name}: rollout with {one_line(str(one.rollout.definition))}\n")
    if missed:
        terminal.warn(missed)
    _show_starts(application, starts)
    if not starts.run:
        return Exit.COULD_NOT_RUN
    terminal.show("\n")
    recorded = await History(fleet).load(starts.run)
    state, watch, follower = await attend(application, fleet, recorded, offline_ok=offline == "ok")
    await look(follower, state, recorded)
    show_stored(application, fleet, recorded, state, watch, is_ended=state.is_done)
    code = choose_exit(state, offline_ok=offline == "ok")
    was_skipped = bool(missed) or not starts.starts[0].run
    return Exit.MISSING if code is Exit.OK and was_skipped else code


def _missed(fleet: Fleet, one: Schedule, starts: ScheduleStarts) -> str:
    """Describe a due start that no server has handled; "" if there is none."""
    known = starts.starts[0].due if starts.starts else None
    if one.last is None or (known is not None and one.last <= known):
        return ""
    if fleet.clock.now() - one.last < timedelta(seconds=GRACE_S):
        return ""
    return f"the start of {clock(one.last)} waits for a rollout server; run `ccmctl rollout serve`"


def _show_starts(application: Application, starts: ScheduleStarts) -> None:
    rows = [
        [
            clock(start.due),
            short_id(start.run) if start.run else "",
            f"skipped: {start.reason}" if start.reason else "started",
            start.by,
        ]
        for start in starts.starts
    ]
    columns = [Column("DUE"), Column("RUN"), Column("RESULT", fold=True), Column("SERVER", spare=1)]
    application.terminal.table(columns, rows, "not started yet\n")


def _print_start(terminal: Terminal, name: str, start: ScheduledStart) -> None:
    terminal.record(
        ScheduledStartLine,
        name=name,
        due=start.due,
        run=start.run or None,
        reason=start.reason or None,
        by=start.by,
    )
