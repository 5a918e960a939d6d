"""The tables of the terminal view, as plain text: nodes, runs, events and failing resources."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.clikit.text import ago, one_line, short_id
from ccm_ctl.render.records import title_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from ccm_ctl.dashboard.feed import EventFrame
    from ccm_ctl.fleet.convergence import NodeStanding
    from ccm_ctl.fleet.discovery import Node
    from ccm_ctl.fleet.run_list import ListedRun
    from ccm_ctl.top.fleet_watch import FleetWatch

VIEWS = ("nodes", "runs", "events", "failing")
"""The tables, in the order of their keys 1 to 4."""

COLUMNS = {
    "nodes": ("NODE", "STATE", "LAST RUN", "ASSIGNMENTS"),
    "runs": ("RUN", "WHEN", "NODES", "WHAT", "STATE"),
    "events": ("TIME", "NODE", "EVENT"),
    "failing": ("RESOURCE", "NODES", "LAST", "ERROR"),
}

ROWS_SHOWN = 500
"""The most rows of a table; a filter selects others."""

CELL_CHARACTERS = 200

FAILING, DRIFT, DISABLED, OFFLINE, EXPECTED, RUNNING, PRESENT = (
    "failing", "drift", "disabled", "offline", "expected", "running", "present",
)  # fmt: skip
STATES = {
    FAILING: "bad", DRIFT: "change", DISABLED: "change", OFFLINE: "gone", EXPECTED: "quiet", RUNNING: "good", PRESENT: "good",
}  # fmt: skip
"""States of nodes with their meanings as keys of COLORS; nodes that need attention come first."""


class TableRow(Struct, frozen=True):
    """
    A row of a table.

    Attributes:
        key: Identifies what the row is about, also when its cells change.
        cells: Safe texts of one line.
        meaning: A key of COLORS.
        node, run: The node and the run that it opens.
    """

    key: str
    cells: tuple[str, ...]
    meaning: str = ""
    node: str = ""
    run: str = ""


def rows_of(view: str, watch: FleetWatch, now: datetime) -> list[TableRow]:
    """The rows of a table, as many as are shown."""
    make = {"nodes": node_rows, "runs": run_rows, "events": event_rows, "failing": failing_rows}[view]
    return make(watch, now)[:ROWS_SHOWN]


def node_state(node: Node, standings: Mapping[str, NodeStanding]) -> str:
    """The state of a node; of several, the one that needs attention most."""
    if not node.is_present:
        return OFFLINE if node.record is not None else EXPECTED
    if any(one.has_failed for one in standings.values()) or (
        node.record is not None and node.record.last_state == "failed"
    ):
        return FAILING
    if node.record is not None and node.record.disabled is not None:
        return DISABLED
    if node.presence is not None and node.presence.run:
        return RUNNING
    return PRESENT if all(one.is_converged for one in standings.values()) else DRIFT


def count_states(watch: FleetWatch) -> Counter[str]:
    """How many of the shown nodes are in which state."""
    return Counter(node_state(node, standings) for node, standings in _shown(watch))


def node_rows(watch: FleetWatch, now: datetime) -> list[TableRow]:
    """The nodes, those that need attention first."""
    order = list(STATES)
    found = [(node_state(node, standings), node, standings) for node, standings in _shown(watch)]
    found.sort(key=lambda one: (order.index(one[0]), one[1].name))
    rows = []
    for state, node, standings in found[:ROWS_SHOWN]:
        record = node.record
        last = f"{record.last_state} {ago(record.last_time, now)}" if record and record.last_run else "none"
        lagging = [f"{name} {one.state}" for name, one in sorted(standings.items()) if not one.is_converged]
        converged = len(standings) - len(lagging)
        assignments = ", ".join([*lagging, *([f"{converged} converged"] if converged else [])])
        shown_state = f"{state} (unverified)" if node.unverified else state
        cells = _safe(node.name, shown_state, last, assignments)
        rows.append(TableRow(node.name, cells, STATES[state], node=node.name))
    return rows


def run_rows(watch: FleetWatch, now: datetime) -> list[TableRow]:
    """The runs, the newest first."""
    return [_run_row(one, watch.waves.get(one.record.run, ""), now) for one in watch.runs or []]


def _run_row(one: ListedRun, wave: str, now: datetime) -> TableRow:
    record, counts = one.record, one.state.counts
    words = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
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
    """The events of the shown nodes, the newest first."""
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
    """The resources whose last kept event on a node is a failure, those that fail on most nodes first."""
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


def _shown(watch: FleetWatch) -> list[tuple[Node, dict[str, NodeStanding]]]:
    overview, shown = watch.overview, watch.shown
    if overview is None:
        return []
    nodes = overview.inventory.nodes.items()
    return [(node, overview.standings[name]) for name, node in nodes if shown is None or name in shown]


def _shown_events(watch: FleetWatch) -> list[EventFrame]:
    """The newest first."""
    shown = watch.shown
    return [frame for frame in reversed(watch.events) if shown is None or frame.node in shown]


def _safe(*cells: str) -> tuple[str, ...]:
    return tuple(one_line(cell)[:CELL_CHARACTERS] for cell in cells)
