"""`ccmctl run-now`: make nodes converge now instead of at their next interval."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from ccm_agent.clikit.durations import Duration
from ccm_agent.clikit.options import takes
from ccm_agent.clikit.table import Cell, Column
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.clikit.text import counted, one_line, short_id
from ccm_agent.model.exits import Exit
from ccm_agent.model.wire import FAILED_STATES, NodeState
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.nodes.maintenance import MaintenanceOptions, maintenance_options
from ccm_ctl.commands.runs.targets import NOT_AGREED, confirm, no_fold_option
from ccm_ctl.fleet.nodes.discovery import resolve
from ccm_ctl.fleet.nodes.node_commands import (
    DONE,
    NOTHING,
    Convergences,
    ManifestResult,
    NodeConvergence,
    converge,
)
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.outcome import MEANINGS
from ccm_ctl.render.record_types.nodes import ReplyLine

_WELL = (NodeState.STABLE, NodeState.CHANGED, NOTHING, DONE)


class RunNowOptions(MaintenanceOptions, frozen=True, kw_only=True):
    """The options of `ccmctl run-now`."""

    wait: int


@verb(
    "run-now",
    examples=["ccmctl run-now -t node=web1", 'ccmctl run-now -t role=web --why "after the fix" --yes'],
    options=[
        *maintenance_options(is_why_required=False),
        click.Option(
            ["--wait"],
            type=Duration(),
            default="1h",
            show_default=True,
            metavar="TIME",
            help="Stop waiting after this time. The nodes continue.",
        ),
        no_fold_option(),
    ],
)
@takes(RunNowOptions)
def run_now(application: Application, given: RunNowOptions) -> Exit:
    """
    Converge nodes now on their assignments and on the manifests in their configuration, and wait for the results.

    Offline nodes converge when they return. Disabled nodes refuse. Requires credentials with `--maintain`.

    Exit codes: 0 all nodes succeeded; 2 a node failed, refused or was stopped; 3 a node was offline, lost or did not answer.
    """

    async def work(fleet: Fleet) -> Exit:
        terminal = application.terminal
        _, resolved = await resolve(fleet, given.nodes.spec())
        if not await confirm(application, "converge now on", resolved, yes=given.yes):
            return NOT_AGREED
        view = _View(application, len(resolved.nodes) - len(resolved.offline))
        application.interrupt_message = "stopped waiting; the nodes continue"
        found = await converge(fleet, resolved, given.why, given.wait, view.on_turn)
        terminal.live("")
        application.interrupt_message = ""
        _show(application, found)
        states = {one.state for one in found}
        if states & set(FAILED_STATES):
            return Exit.FAILED
        return Exit.OK if states <= set(_WELL) else Exit.MISSING

    return application.run(work)


class _View:
    """Shows progress while nodes converge: a line for each failure, and a live line with the number of finished nodes."""

    def __init__(self, application: Application, total: int) -> None:
        self._terminal = application.terminal
        self._total = total
        self._told: set[str] = set()

    def on_turn(self, found: Convergences) -> None:
        for name in sorted(found.ended.keys() - self._told):
            self._told.add(name)
            one = found.ended[name]
            _print_record(self._terminal, one)
            if one.state in FAILED_STATES:
                self._terminal.note(one_line(f"{name}: {one.state}: {_what(one)}"))
        self._terminal.flush()
        if self._terminal.is_live:
            busy = f" · {len(found.working)} converging" if found.working else ""
            self._terminal.live(f"run-now  {len(found.ended)}/{self._total}{busy}")


def _show(application: Application, found: Sequence[NodeConvergence]) -> None:
    terminal = application.terminal
    for one in found:
        if one.state == NodeState.OFFLINE:
            _print_record(terminal, one)
    ordered = sorted(found, key=lambda one: (one.state in FAILED_STATES, one.state not in _WELL))
    columns = [Column("NODE"), Column("STATE"), Column("WHAT", fold=True), Column("RUN", spare=1)]
    terminal.table(columns, [_row(one) for one in ordered], is_repeatable=False)
    counts: dict[str, int] = {}
    for one in found:
        counts[one.state] = counts.get(one.state, 0) + 1
    terminal.show(f"{counted(counts)}\n")


def _row(one: NodeConvergence) -> list[str | Cell]:
    meaning = MEANINGS.get(NodeState(one.state), "") if one.state in set(NodeState) else "good"
    runs = " ".join(short_id(result.run) for result in one.results if result.run)
    return [one.node, Cell(one.state, meaning), _what(one), runs]


def _what(one: NodeConvergence) -> str:
    """Describe the result of each manifest and assignment, failures first."""
    if one.reason:
        return one_line(one.reason)
    ordered = sorted(one.results, key=lambda result: result.state in _WELL)
    return one_line(", ".join(_format_result(result) for result in ordered))


def _format_result(result: ManifestResult) -> str:
    counts = counted({"changed": result.changed, "failed": result.failed})
    words = f"{result.name} {counts or result.state}"
    return f"{words}: {result.reason}" if result.reason else words


def _print_record(terminal: Terminal, one: NodeConvergence) -> None:
    terminal.record(
        ReplyLine,
        node=one.node,
        state=one.state,
        reason=one.reason or None,
        body={"ended": msgspec.to_builtins(one.results)} if one.results else None,
    )
