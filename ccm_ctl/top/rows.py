"""The tables of the terminal view, as plain text: nodes, runs, events and failing resources."""

from __future__ import annotations

from collections import Counter
from heapq import nsmallest
from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.clikit.text import ago, natural, one_line
from ccm_agent.model.ids import short_id
from ccm_ctl.dashboard.attention_lines import find_rollout_items
from ccm_ctl.fleet.nodes.attention import ORDER, needs_attention
from ccm_ctl.fleet.nodes.node_condition import MEANINGS, OFFLINE, SILENT
from ccm_ctl.render.records import title_of
from ccm_ctl.render.rollout import rollout_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ccm_ctl.dashboard.attention_lines import AttentionLine
    from ccm_ctl.dashboard.feed import EventFrame
    from ccm_ctl.fleet.assignments.convergence import NodeStanding
    from ccm_ctl.fleet.nodes.node_condition import NodeCondition
    from ccm_ctl.fleet.nodes.nodes import Node
    from ccm_ctl.fleet.runs.run_list import ListedRun
    from ccm_ctl.top.fleet_watch import FleetWatch

VIEWS = ("nodes", "runs", "events", "failing")
"""The tables, in the order of the keys 1 to 4 that show them."""

COLUMNS = {
    "nodes": ("NODE", "STATE", "LAST RUN", "NOTE"),
    "runs": ("RUN", "WHEN", "NODES", "WHAT", "STATE"),
    "events": ("TIME", "NODE", "EVENT"),
    "failing": ("RESOURCE", "NODES", "LAST", "ERROR"),
}

ROWS_SHOWN = 500
"""The maximum number of rows of a table. Others can be shown with a filter."""

CELL_CHARACTERS = 200

FIRST = (*ORDER, *(state for state in MEANINGS if state not in ORDER))
"""States of nodes and rollouts, first those that need attention."""


class TableRow(Struct, frozen=True):
    """
    A row of a table.

    Attributes:
        key: Identifies the row's subject, even if the cells change.
        cells: Safe texts of one line each.
        meaning: A key of COLORS.
        node, run: The node and the run whose pages the row opens.
    """

    key: str
    cells: tuple[str, ...]
    meaning: str = ""
    node: str = ""
    run: str = ""


def rows_of(view: str, watch: FleetWatch, now: datetime) -> list[TableRow]:
    """Return the rows of a table, up to the maximum."""
    make = {"nodes": node_rows, "runs": run_rows, "events": event_rows, "failing": failing_rows}[view]
    return make(watch, now)[:ROWS_SHOWN]


def count_states(watch: FleetWatch) -> Counter[str]:
    """Return the number of displayed nodes per state."""
    return Counter(found.state for _, found, _ in _shown(watch))


def node_rows(watch: FleetWatch, now: datetime) -> list[TableRow]:
    """
    Return the rows of nodes, and of rollouts that need an operator. Those that need attention come first, starting with the
    worst.
    """
    # rows are made only for the first nodes, because making a row takes longer than ordering a node
    first = nsmallest(ROWS_SHOWN, _shown(watch), key=lambda one: (_rank(one[1], now), natural(one[0].name)))
    found = [(_rank(one[1], now), natural(one[0].name), _node_row(*one, now)) for one in first]
    for item in rollout_items(watch, now):
        cells = _safe(
            f"run {short_id(item.run)}", item.state, ago(item.since, now), f"{item.sentence}; Enter opens it"
        )
        found.append(
            (
                ORDER.index(item.state),
                natural(item.run),
                TableRow(item.run, cells, item.meaning, run=item.run),
            )
        )
    found.sort(key=lambda one: one[:2])
    return [row for *_, row in found[:ROWS_SHOWN]]


def rollout_items(watch: FleetWatch, now: datetime) -> list[AttentionLine]:
    """Return the rollouts that need an operator."""
    return find_rollout_items(watch.rollouts, now)


def _rank(found: NodeCondition, now: datetime) -> float:
    """
    Return a node's rank in the table. A node that has been offline only briefly comes directly after those that need attention.
    """
    if found.state in ORDER and not needs_attention(found, now):
        return len(ORDER) - 0.5
    return FIRST.index(found.state)


def _node_row(
    node: Node, found: NodeCondition, standings: Mapping[str, NodeStanding], now: datetime
) -> TableRow:
    record = node.record
    last = f"{record.last_state} {ago(record.last_time, now)}" if record and record.last_run else "none"
    state = f"{found.state} (unverified)" if node.unverified else found.state
    cells = _safe(node.name, state, last, _note(found, standings, now))
    return TableRow(node.name, cells, found.meaning, node=node.name)


def _note(found: NodeCondition, standings: Mapping[str, NodeStanding], now: datetime) -> str:
    """Return the text about the problem, its age, and the state of each assignment."""
    lagging = [f"{name} {one.state}" for name, one in sorted(standings.items()) if not one.is_converged]
    converged = len(standings) - len(lagging)
    heard = f"heard {ago(found.heard, now)}" if found.is_late or found.state in (OFFLINE, SILENT) else ""
    about = found.detail if found.state in ORDER and found.state != OFFLINE else ""
    parts = [heard, *lagging, f"{converged} converged" if converged else "", about]
    return "; ".join(part for part in parts if part)


def run_rows(watch: FleetWatch, now: datetime) -> list[TableRow]:
    """Return the rows of runs: first rollouts that need an operator, then the newest runs."""
    waves = {state.run: rollout_line(state) for state in watch.rollouts}
    waiting = {item.run for item in rollout_items(watch, now)}
    rows = [_run_row(one, waves.get(one.record.run, ""), now) for one in watch.runs or []]
    return sorted(rows, key=lambda row: row.run not in waiting)


def _run_row(one: ListedRun, wave: str, now: datetime) -> TableRow:
    record, counts = one.record, one.state.counts
    is_plan = record.action == "plan"
    words = ", ".join(
        f"would change {count}" if is_plan and state == "changed" else f"{count} {state}"
        for state, count in counts.items()
        if count
    )
    is_open = one.state.state != "done"
    state = "; ".join(part for part in (one.state.state if is_open else "", wave, words) if part)
    is_bad = any(counts.get(word) for word in ("failed", "refused", "stopped"))
    cells = _safe(
        short_id(record.run),
        ago(record.time, now),
        str(record.nodes),
        title_of(record) + (" (unverified)" if one.unverified else ""),
        state or one.state.state,
    )
    return TableRow(record.run, cells, "bad" if is_bad else "change" if is_open else "good", run=record.run)


def event_rows(watch: FleetWatch, now: datetime) -> list[TableRow]:
    """Return the rows of the displayed nodes' events, newest first."""
    del now
    return [
        TableRow(
            str(frame.id),
            _safe(f"{frame.time:%H:%M:%S}", frame.node, f"[{frame.verdict}] {frame.text}" if frame.verdict else frame.text),
            "bad" if frame.verdict else frame.meaning,
            node=frame.node,
            run=frame.run,
        )
        for frame in _shown_events(watch)[:ROWS_SHOWN]
    ]  # fmt: skip


def failing_rows(watch: FleetWatch, now: datetime) -> list[TableRow]:
    """
    Return the rows of resources whose last stored event on a node is a failure. Those that fail on the most nodes come first.
    """
    newest: dict[tuple[str, str], EventFrame] = {}
    for frame in _shown_events(watch):
        if frame.kind == "resource":
            newest.setdefault((frame.resource, frame.node), frame)
    failing: dict[str, list[EventFrame]] = {}
    for (resource, _), frame in newest.items():
        if frame.meaning == "bad":
            failing.setdefault(resource, []).append(frame)
    rows = []
    for resource, frames in sorted(failing.items(), key=lambda item: (-len(item[1]), item[0])):
        last = frames[0]
        error = last.text.removeprefix(f"{resource} {last.word}").removeprefix(": ")
        cells = _safe(resource, str(len(frames)), ago(last.time, now), f"{last.node}: {error}")
        rows.append(TableRow(resource, cells, "bad", node=last.node, run=last.run))
    return rows


def _shown(watch: FleetWatch) -> list[tuple[Node, NodeCondition, dict[str, NodeStanding]]]:
    overview, shown = watch.overview, watch.shown
    if overview is None:
        return []
    return [
        (node, overview.conditions[name], overview.standings[name])
        for name, node in overview.inventory.nodes.items()
        if shown is None or name in shown
    ]


def _shown_events(watch: FleetWatch) -> list[EventFrame]:
    """Return the events of the displayed nodes, newest first."""
    shown = watch.shown
    return [frame for frame in reversed(watch.events) if shown is None or frame.node in shown]


def _safe(*cells: str) -> tuple[str, ...]:
    return tuple(one_line(cell)[:CELL_CHARACTERS] for cell in cells)
