"""Format a rollout as text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from ccm_agent.clikit.table import Column, Style, table
from ccm_agent.clikit.text import one_line, plural, short_id
from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.records.rollout_records import Budgets, GivenOrder, Phase, RolloutPlan, RolloutState

WHOLE = 100
"""The percentage from which a limit has no effect."""


def wave_lines(plan: RolloutPlan, style: Style) -> str:
    """Return the waves of a plan, and the conditions that pause the rollout."""
    rows = [
        [
            one_line(wave.name),
            str(wave.nodes),
            str(wave.slots),
            format_duration(wave.bake_s) if wave.bake_s else "",
            "; ".join(part for part in (one_line(wave.gate), limits(wave.budgets)) if part),
        ]
        for wave in plan.waves
    ]
    columns = [
        Column("WAVE"),
        Column("NODES", right=True),
        Column("AT ONCE", right=True),
        Column("BAKE", right=True),
    ]
    text = table([*columns, Column("CONTINUES IF", fold=True)], rows, style)
    found = limits(plan.budgets)
    return f"{text}pauses if {found}" if found else f"{text}no limit pauses it"


def limits(budgets: Budgets) -> str:
    """Describe the limits in words: `a node fails or is lost, or more than 5% of the nodes do not run it`."""
    of_one = {"failed": "fails", "unreachable": "does not run it", "lost": "is lost"}
    of_many = {"failed": "fail", "unreachable": "do not run it", "lost": "are lost"}
    none, parts = [], []
    for kind, size in budgets.items():
        if size.percent is not None and size.percent >= WHOLE:
            continue  # this limit can never be exceeded
        if not (size.count or size.percent):
            none.append(of_one[kind])
        elif size.count == 1:
            parts.append(f"more than 1 node {of_one[kind]}")
        else:
            count = f"{size} of the nodes" if size.percent is not None else f"{size.count} nodes"
            parts.append(f"more than {count} {of_many[kind]}")
    if none:
        parts.insert(0, f"a node {_alternatives(none)}")
    return (", or " if len(none) > 1 else " or ").join(parts)


def _alternatives(words: list[str]) -> str:
    """Join the words as `a, b or c`."""
    *rest, last = words
    return f"{', '.join(rest)} or {last}" if rest else last


def rollout_status(state: RolloutState, now: datetime) -> str:
    """
    Describe the progress of a rollout: its position, the reason, who decided it, and the current work. Return "" if all waves
    have ended.
    """
    run = short_id(state.run)
    words = rollout_line(state).removeprefix("rollout: ")
    if state.phase is Phase.DONE:
        return ""
    if state.phase is Phase.ABORTED:
        return words
    resume, abort = f"  continue:  ccmctl run resume {run}", f"  abort:     ccmctl run abort {run}"
    if state.phase is Phase.PAUSED:
        return f"{words}\n{resume}   (nodes that failed so far no longer count)\n{abort}"
    if state.lease is not None and state.lease.until > now:
        return f"{words}; driven by {one_line(state.lease.operator)} on {one_line(state.lease.host)}"
    if state.is_detached:
        return f"{words}; waits for a rollout server"
    return f"{words}; no process drives it, so no further node starts\n{resume}\n{abort}"


def order_line(given: GivenOrder) -> str:
    """Describe an order: its author, its reason, and whether it is ignored."""
    order = given.order
    why = f": {one_line(order.why)}" if order.why else ""
    said = f"{order.order} by {one_line(given.by)}{why}"
    return f"{said} is ignored: {one_line(given.reason)}" if given.reason else f"order: {said}"


def order_fields(orders: Iterable[GivenOrder]) -> list[dict[str, object]]:
    """Return orders as record fields."""
    return [
        {
            "order": str(one.order.order),
            "by": one.by,
            "time": one.order.time,
            "why": one.order.why,
            "ignored": one.reason,
        }
        for one in orders
    ]


def rollout_line(state: RolloutState) -> str:
    """Describe the state of a rollout in one line."""
    wave = f"{one_line(state.current.name)} ({state.wave + 1}/{len(state.plan.waves)})"
    by = f" by {one_line(state.by)}" if state.by else ""
    if state.phase is Phase.RUNNING:
        return f"rollout: {wave}: {plural(state.current.nodes, 'node')}, {state.current.slots} at once"
    if state.phase is Phase.BAKING:
        until = f" until {state.bake_until:%H:%M:%S} UTC" if state.bake_until else ""
        return f"rollout: {wave}: all nodes have ended; waiting{until}"
    if state.phase is Phase.DONE:
        return "rollout: all waves have ended"
    return f"rollout: {state.phase}{by} in {wave}: {one_line(state.reason)}"
