"""Before a change, warn about rollouts and runs that are open on the same nodes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import click

from ccm_agent.clikit.commands import Option
from ccm_agent.clikit.text import fold_names, one_line, short_id
from ccm_agent.model.records.run_records import RunRecord
from ccm_ctl.app import Application
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.concurrent import (
    ConcurrentRollout,
    ConcurrentRolloutError,
    find_concurrent_rollouts,
)
from ccm_ctl.render.records import title_of
from ccm_ctl.render.rollout import rollout_line

TOLD = 5
"""The maximum number of rollouts that are named, because each of them is loaded with its nodes."""


def alongside_option(**rest: Any) -> click.Parameter:
    """Return the option `--alongside` for commands that start or continue a rollout."""
    text = "Continue although another rollout is in progress on the same nodes. Its limits are then not guaranteed."
    return Option(["--alongside"], is_flag=True, help=text, **rest)


async def warn_of_open(
    application: Application, fleet: Fleet, nodes: Collection[str], *, is_refused: bool = False, but: str = ""
) -> None:
    """
    Print the open rollouts and runs that also change some of these nodes.

    Args:
        application: Prints the warnings.
        fleet: The bus.
        nodes: The nodes.
        is_refused: Whether the change must not start while a rollout is in progress on the same nodes. This is true for a rollout
            that no operator has confirmed.
        but: The run of this rollout, which is not reported; "" if the rollout is new.

    Raises:
        ConcurrentRolloutError: Another rollout is in progress, and `is_refused` is true.
    """
    from ccm_ctl.fleet.runs.open_runs import find_open_runs

    terminal = application.terminal
    found = await find_concurrent_rollouts(fleet, nodes, besides=but)
    for one in found:
        if is_refused and one.is_in_progress:
            raise ConcurrentRolloutError(
                f"{_format_rollout(one)}; two rollouts do not keep each other's limits: wait with `ccmctl run watch "
                f"{short_id(one.state.run)}`, or add --alongside"
            )
    for one in found[:TOLD]:
        terminal.warn(_format_rollout(one))
    if len(found) > TOLD:
        terminal.warn("more rollouts are open on these nodes; see `ccmctl rollout list`")
    for record, busy in await find_open_runs(fleet, nodes):
        terminal.warn(f"{fold_names(busy)}: {_title(record)} has not ended on {_these(busy)}")


def _format_rollout(one: ConcurrentRollout) -> str:
    where = rollout_line(one.state).removeprefix("rollout: ")
    return f"{fold_names(one.nodes)}: {_title(one.record)} is an open rollout on {_these(one.nodes)}, too: {where}"


def _title(record: RunRecord) -> str:
    return f"run {short_id(record.run)} ({one_line(title_of(record))} by {one_line(record.requester)})"


def _these(nodes: Collection[str]) -> str:
    return "this node" if len(nodes) == 1 else "these nodes"
