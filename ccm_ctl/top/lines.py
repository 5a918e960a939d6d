"""The lines above and below the table. Each line consists of parts: safe texts, each with a style in rich's format."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ccm_agent.clikit.table import COLORS
from ccm_agent.clikit.text import one_line, plural
from ccm_ctl.dashboard.attention_lines import find_rollout_items
from ccm_ctl.fleet.nodes.node_condition import MEANINGS
from ccm_ctl.top.rows import FIRST, VIEWS, count_states

if TYPE_CHECKING:
    from datetime import datetime

    from ccm_ctl.top.fleet_watch import FleetWatch

Part = tuple[str, str]

SUBJECTS = {
    "nodes": "{nodes}, problems first; Enter shows the reason and the next step",
    "runs": "newest runs; the filter does not apply",
    "events": "events of {nodes}",
    "failing": "failing resources of {nodes}",
}
"""The name of each table's subject, for the second line."""


def counts_line(watch: FleetWatch, now: datetime) -> list[Part]:
    """Return the line with the number of nodes, the number of nodes and rollouts per state, and the event rate."""
    if watch.overview is None:
        return [("reading the fleet …", "")]
    counts = count_states(watch)
    parts = [(plural(counts.total(), "node"), "bold")]
    rollouts = Counter(item.state for item in find_rollout_items(watch.rollouts, now))
    for state in FIRST:
        if counts[state]:
            parts += [("  ", ""), (f"{counts[state]} {state}", COLORS[MEANINGS[state]])]
        elif rollouts[state]:
            words = f"{plural(rollouts[state], 'rollout')} {state}"
            parts += [("  ", ""), (words, COLORS["change"])]
    return [*parts, (f"  {watch.events_per_second():.1f} events/s", "")]


def status_line(watch: FleetWatch, view: str) -> list[Part]:
    """Return the line that describes the content of the table, or a problem."""
    reason = one_line(watch.problem)
    if watch.is_away:
        return [(f"broker unavailable, trying again{f': {reason}' if reason else ''}", COLORS["bad"])]
    if reason:
        return [(f"cannot be read, trying again: {reason}", COLORS["bad"])]
    if watch.filter_problem:
        return [(f"filter {watch.selector}: {one_line(watch.filter_problem)}", COLORS["change"])]
    nodes = f"nodes that match {watch.selector}" if watch.selector else "all nodes"
    return [(SUBJECTS[view].format(nodes=nodes), COLORS["quiet"])]


def keys_line(view: str) -> list[Part]:
    """Return the line with the most important keys. The key of the current table is emphasized."""
    parts: list[Part] = []
    for place, name in enumerate(VIEWS, 1):
        parts += [(f"{place} {name}", "bold reverse" if name == view else ""), ("  ", "")]
    return [*parts, ("/ filter  Enter open  ? keys  q quit", "")]
