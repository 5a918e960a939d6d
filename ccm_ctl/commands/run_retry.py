"""`ccmctl run retry`: the same request again, to the nodes on which it did not succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ccm_agent.clikit.durations import TimeOption
from ccm_agent.clikit.text import one_line, short_id
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.wire import COMPLIANT_STATES, MANIFEST_APPLY, ManifestRequest, NodeState, Request
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.stored_runs import format_starter, run_argument
from ccm_ctl.commands.targets import NOT_AGREED, confirm, yes_option

if TYPE_CHECKING:
    from ccm_agent.model.moments import GivenTime
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.history import Recorded
    from ccm_ctl.fleet.ports import Fleet

ENDS = tuple(str(state) for state in NodeState if state.is_final and state not in COMPLIANT_STATES)
"""The ends that can be retried."""


@verb(
    "retry",
    examples=[
        "ccmctl run retry last                           # all nodes on which it did not succeed",
        "ccmctl run retry 2zFX --only failed,unreachable",
        "ccmctl run retry 2zFX motd.yaml                 # a run of a single file: name it again",
    ],
    options=[
        run_argument(),
        click.Argument(["path"], metavar="[FILE]", required=False, type=click.Path()),
        click.Option(
            ["--only"],
            default="",
            metavar="STATE[,STATE…]",
            help=f"Retry only nodes with these end states: {', '.join(ENDS)}.",
        ),
        click.Option(
            ["--deadline"],
            type=TimeOption(),
            default="1h",
            show_default=True,
            help="Nodes that have not started by this time will not start.",
        ),
        yes_option(),
    ],
)
def retry(
    application: Application, run: str, path: str | None, only: str, deadline: GivenTime, yes: bool
) -> Exit:
    """
    Repeat a run on the nodes on which it did not succeed.

    The nodes get exactly the same manifest. A directory is stored with its run. A single file is not stored, because it may
    contain passwords, so name it again as FILE. A run of a schedule is repeated as long as its schedule is stored unchanged.

    `last` is your own newest run; name a run of another operator by its ID. In a fleet with signatures, the operator who started
    the run must have signed its record, and must still be allowed to send the same request to the same nodes. If not, start a new
    run. Exit codes are those of `ccmctl apply`.
    """
    wanted = _states(only)

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.commands.apply import parse_deadline
        from ccm_ctl.commands.run_view import start_and_watch
        from ccm_ctl.fleet.find_run import find_run
        from ccm_ctl.fleet.run_again import prepare_retry

        recorded = await find_run(fleet, run)
        until = parse_deadline(deadline, fleet.clock.now())
        launch = await prepare_retry(fleet, recorded, wanted, until, path)
        # of a run that no operator started, only the word of nodes says that it was a plan
        if launch.request.protocol == MANIFEST_APPLY and not await confirm(
            application, format_retry(recorded, launch.request), launch.resolved, yes=yes
        ):
            return NOT_AGREED
        return await start_and_watch(application, fleet, launch, offline_ok=False)

    return application.run(work)


def format_retry(recorded: Recorded, request: Request) -> str:
    """What a retry does: the action, what it applies, and who is the author."""
    record = recorded.record
    by = format_starter(recorded.cause, recorded.origin, record.requester)
    if isinstance(request, ManifestRequest) and request.undo:
        return f"undo {short_id(request.undo)} again (run {short_id(record.run)} by {one_line(by)}) on"
    content = request.content if isinstance(request, ManifestRequest) else None
    bundle = f"bundle {content.bundle.digest[:12]}, " if content is not None and content.bundle else ""
    return f"apply {one_line(record.name)} again ({bundle}run {short_id(record.run)} by {one_line(by)}) to"


def _states(only: str) -> frozenset[NodeState]:
    words = [word.strip() for word in only.split(",")] if only else list(ENDS)
    for word in words:
        if word not in ENDS:
            raise UsageError(f"--only {only}: `{word}` is not one of {', '.join(ENDS)}")
    return frozenset(NodeState(word) for word in words)
