"""
Problems that need an operator's attention, worst first, each with the next command. They are shown in `top` and on the fleet
page.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.clikit.text import natural, one_line, plural, shortened
from ccm_agent.model.ids import is_id, short_id
from ccm_ctl.fleet.nodes import node_condition as condition
from ccm_ctl.fleet.nodes.attention import ORDER, needs_attention, rollout_trouble

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ccm_agent.model.records.rollout_records import RolloutState
    from ccm_ctl.fleet.nodes.node_condition import NodeCondition
    from ccm_ctl.fleet.nodes.overview import FleetOverview

NODES_NAMED = 3
DETAIL_CHARACTERS = 160


class AttentionLine(Struct, frozen=True, kw_only=True):
    """
    A problem that needs attention: a rollout, or nodes in one state for the same reason.

    Attributes:
        state: A value of ORDER.
        meaning: A key of `clikit.table.COLORS`.
        sentence: The problem.
        command: The next command to run.
        nodes: The affected nodes. Empty for a rollout.
        run: The rollout, or the run that caused the nodes' state. "": no run caused it.
        since: When the state began, or when the last message of a node arrived. None: unknown.
    """

    state: str
    meaning: str
    sentence: str
    command: str
    nodes: list[str] = []
    run: str = ""
    since: datetime | None = None


def find_attention(
    overview: FleetOverview, rollouts: Sequence[RolloutState], now: datetime
) -> list[AttentionLine]:
    """Return the problems that need attention, worst first."""
    items = [*_of_nodes(overview.conditions, now), *find_rollout_items(rollouts, now)]
    return sorted(items, key=lambda item: (ORDER.index(item.state), -len(item.nodes), item.sentence))


def _of_nodes(conditions: Mapping[str, NodeCondition], now: datetime) -> list[AttentionLine]:
    """
    Return one item for all nodes with the same state, assignment and detail. For example, a bad revision can cause a thousand
    nodes to fail.
    """
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name, found in conditions.items():
        if needs_attention(found, now):
            detail = "" if found.state == condition.DUPLICATE else found.detail
            groups.setdefault((found.state, found.assignment, detail), []).append(name)
    return [_item(sorted(names, key=natural), conditions) for names in groups.values()]


def _item(names: list[str], conditions: Mapping[str, NodeCondition]) -> AttentionLine:
    found = conditions[names[0]]
    times = [one.heard for name in names if (one := conditions[name]).heard is not None]
    return AttentionLine(
        state=found.state,
        meaning=found.meaning,
        sentence=_sentence(names, found),
        command=f"ccmctl why {names[0]}",
        nodes=names,
        run=found.run if len(names) == 1 and is_id(found.run) else "",
        since=max(times) if times and found.state in (condition.OFFLINE, condition.SILENT) else None,
    )


def _sentence(names: list[str], found: NodeCondition) -> str:
    more = f" and {len(names) - NODES_NAMED} more" if len(names) > NODES_NAMED else ""
    who = f"{', '.join(names[:NODES_NAMED])}{more}"
    about = f"assignment {found.assignment}" if found.assignment else ""
    if found.state == condition.FAILED and not about:
        about = "the last run failed"
    detail = shortened(one_line(found.detail), DETAIL_CHARACTERS)
    words = ": ".join(part for part in (about, detail) if part)
    return one_line(f"{who}: {words}" if words else who)


def find_rollout_items(rollouts: Sequence[RolloutState], now: datetime) -> list[AttentionLine]:
    """Return one item for each rollout that needs an operator."""
    items = []
    for state in rollouts:
        if word := rollout_trouble(state, now):
            run = short_id(state.run)
            reason = f": {state.reason}" if state.reason else ""
            sentence = f"rollout {run}, {state.asked} of {plural(state.plan.total, 'node')} started{reason}"
            items.append(
                AttentionLine(
                    state=word,
                    meaning="change",
                    sentence=shortened(one_line(sentence), 2 * DETAIL_CHARACTERS),
                    command=f"ccmctl run show {run}",
                    run=state.run,
                    since=state.time,
                )
            )
    return items
