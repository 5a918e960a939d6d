"""`ccmctl run retry`: repeat a request on the nodes where it did not succeed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import click

from ccm_agent.clikit.durations import TimeOption
from ccm_agent.clikit.options import Options, takes
from ccm_agent.clikit.text import one_line, plural, short_id
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.moments import GivenTime
from ccm_agent.model.records.rollout_records import RolloutPlan
from ccm_agent.model.wire import COMPLIANT_STATES, MANIFEST_APPLY, ManifestRequest, NodeState, Request
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.rollouts.rollout_options import RolloutFlags, rollout_options
from ccm_ctl.commands.runs.open_rollouts import warn_of_open
from ccm_ctl.commands.runs.run_view import start_and_watch
from ccm_ctl.commands.runs.stored_runs import format_starter, run_argument
from ccm_ctl.commands.runs.targets import NOT_AGREED, confirm, parse_deadline, run_message_option, yes_option
from ccm_ctl.fleet.nodes.inventory import read_verified
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.plan import plan_again
from ccm_ctl.fleet.rollout.store import RolloutStore, require_verified
from ccm_ctl.fleet.runs.find_run import find_run
from ccm_ctl.fleet.runs.history import Recorded
from ccm_ctl.fleet.runs.run_again import known_ends, prepare_retry
from ccm_ctl.fleet.runs.run_request import Launch

ENDS = tuple(str(state) for state in NodeState if state.is_final and state not in COMPLIANT_STATES)
"""The end states that can be retried. `skipped` is retried only if `--only` names it."""


class RetryOptions(Options, frozen=True, kw_only=True):
    """The options of `ccmctl run retry`."""

    run: str
    path: str | None
    only: str
    deadline: GivenTime
    message: str
    yes: bool
    rollout: RolloutFlags


@verb(
    "retry",
    examples=[
        "ccmctl run retry last                           # all nodes on which it did not succeed",
        "ccmctl run retry 2zFX --only failed,unreachable",
        "ccmctl run retry 2zFX --only skipped            # nodes that an aborted rollout did not reach",
        "ccmctl run retry 2zFX motd.yaml                 # a run of a single file: name it again",
    ],
    options=[
        run_argument(),
        click.Argument(["path"], metavar="[FILE]", required=False, type=click.Path()),
        click.Option(
            ["--only"],
            default="",
            metavar="STATE[,STATE…]",
            help=f"Retry only nodes with these end states: {', '.join(ENDS)}. [all but skipped]",
        ),
        click.Option(
            ["--deadline"],
            type=TimeOption(),
            default="1h",
            show_default=True,
            help="Nodes that have not started by this time will not start.",
        ),
        run_message_option(),
        yes_option(),
        *rollout_options(),
    ],
)
@takes(RetryOptions)
def retry(application: Application, given: RetryOptions) -> Exit:
    """
    Repeat a run on the nodes on which it did not succeed.

    The nodes get exactly the same manifest. A directory is stored with its run. A single file is not stored, because it may
    contain passwords, so name it again as FILE. A run of a schedule can be repeated while its schedule is unchanged.

    The retry of a rollout is a rollout with the same waves, gates and limits, or with those given here. Nodes that an
    abort skipped are included only with `--only skipped`.

    `last` is your own newest run; name a run of another operator by its ID. In a fleet with signatures, the operator who started
    the run must have signed its record, and must still be allowed to send the same request to the same nodes. If not, start a new
    run. Exit codes are those of `ccmctl apply`.
    """
    wanted, flags = _states(given.only), given.rollout

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.commands.runs.apply import roll_out

        recorded = await find_run(fleet, given.run)
        until = parse_deadline(given.deadline, fleet.clock.now())
        ends = await known_ends(fleet, recorded)
        launch = await prepare_retry(fleet, recorded, wanted, until, given.path, ends, message=given.message)
        waves = await _plan(fleet, recorded, launch, flags)
        for sentence in _warnings(recorded, ends, wanted, waves):
            application.terminal.note(sentence)
        if launch.request.protocol == MANIFEST_APPLY:
            is_refused = waves is not None and given.yes and not flags.alongside
            await warn_of_open(application, fleet, launch.resolved.nodes, is_refused=is_refused)
        # if no operator started the run, only events of the nodes show that it was a plan
        if launch.request.protocol == MANIFEST_APPLY and not await confirm(
            application, format_retry(recorded, launch.request), launch.resolved, yes=given.yes
        ):
            return NOT_AGREED
        if waves is not None:
            return await roll_out(application, fleet, launch, waves, flags, given.deadline)
        return await start_and_watch(application, fleet, launch, offline_ok=False)

    return application.run(work)


async def _plan(
    fleet: Fleet, recorded: Recorded, launch: Launch, flags: RolloutFlags
) -> tuple[RolloutPlan, list[str]] | None:
    """
    Return the plan of a retry, and its nodes in order; None if the retry is not a rollout.

    Raises:
        UsageError: The options are not valid for these nodes.
        RunError: The waves of the original rollout are not known, because its state is unverified.
    """
    found = await RolloutStore(fleet).look(recorded.record.run) if recorded.is_on_record else None
    if flags.has_waves or (found is None and flags.is_rollout):
        return flags.make_plan(await read_verified(fleet, launch.resolved.nodes), launch.resolved)
    if found is None:
        return None
    plan = require_verified(found).value.plan
    return plan_again(plan, recorded.nodes, launch.resolved.present)


def _warnings(
    recorded: Recorded,
    ends: Mapping[str, NodeState],
    wanted: Collection[NodeState],
    waves: tuple[RolloutPlan, list[str]] | None,
) -> list[str]:
    """Return the warnings before a retry, such as that the manifest itself failed or that the retry omits nodes."""
    failed = sum(state is NodeState.FAILED for state in ends.values())
    skipped = sum(state is NodeState.SKIPPED for state in ends.values())
    told = []
    if failed:
        told.append(f"this manifest failed on {plural(failed, 'node')}")
    if skipped:
        asks = "included now" if NodeState.SKIPPED in wanted else "not included now; use --only skipped"
        told.append(
            f"{plural(skipped, 'node')} {'was' if skipped == 1 else 'were'} not reached by the rollout; {asks}"
        )
    if waves is not None:
        told.append(f"a rollout in {plural(len(waves[0].waves), 'wave')}, like the run that it repeats")
    run = short_id(recorded.record.run)
    return [f"run {run}: {one}" for one in told]


def format_retry(recorded: Recorded, request: Request) -> str:
    """Describe a retry: the action, the manifest and the author of the request."""
    record = recorded.record
    by = format_starter(recorded.cause, recorded.origin, record.requester)
    if isinstance(request, ManifestRequest) and request.undo:
        return f"undo {short_id(request.undo)} again (run {short_id(record.run)} by {one_line(by)}) on"
    content = request.content if isinstance(request, ManifestRequest) else None
    bundle = f"bundle {content.bundle.digest[:12]}, " if content is not None and content.bundle else ""
    return f"apply {one_line(record.name)} again ({bundle}run {short_id(record.run)} by {one_line(by)}) to"


def _states(only: str) -> frozenset[NodeState]:
    every = [word for word in ENDS if word != str(NodeState.SKIPPED)]
    words = [word.strip() for word in only.split(",")] if only else every
    for word in words:
        if word not in ENDS:
            raise UsageError(f"--only {only}: `{word}` is not one of {', '.join(ENDS)}")
    return frozenset(NodeState(word) for word in words)
