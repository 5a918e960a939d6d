"""Format a run: a live line while it runs, then a table. Nodes with equal results share a row, and failures are last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ccm_agent.clikit.table import UNLIMITED, Cell, Column, Style, paint, table
from ccm_agent.clikit.text import counted, fold_names, one_line, plural, safe, short_id, span
from ccm_agent.model.outcome import Outcome
from ccm_agent.model.wire import FAILED_STATES, NodeState
from ccm_ctl.render.output import IN_BRIEF, CommandOutput, OutputLimits, output_blocks, output_lines

RESOURCES_SHOWN = 4
"""The maximum number of resources named in a row. The others are only counted, and `run show --events` lists all of them."""

RESOURCES_WIDTH = 120
"""The maximum total length of the names and notes of a row. The first one may be longer. Only this table shows a plan's notes."""

OUTPUT_LINES = 12
"""The maximum number of lines from the end of a failed command's output. `run show --json` contains up to 8 KiB."""

MEANINGS = {
    NodeState.STABLE: "good",
    NodeState.CHANGED: "change",
    NodeState.SUPERSEDED: "quiet",
    NodeState.OFFLINE: "quiet",
    NodeState.SKIPPED: "quiet",
    NodeState.EXPIRED: "gone",
    NodeState.UNREACHABLE: "gone",
    NodeState.LOST: "gone",
    NodeState.REFUSED: "bad",
    NodeState.STOPPED: "bad",
    NodeState.FAILED: "bad",
}
"""The color of each end state, in the order of counts and tables. The worst state is last, where readers notice it first."""

_ORDER = [
    NodeState.PLANNED,
    NodeState.EXPECTED,
    NodeState.QUEUED,
    NodeState.ACCEPTED,
    NodeState.RUNNING,
    *MEANINGS,
]


class ResourceResult(Struct, frozen=True):
    """
    A resource in the table.

    Attributes:
        resource: `type#name`.
        outcome: A value of `Outcome`.
        note: The changes that a noop run would have made.
    """

    resource: str
    outcome: str
    note: str = ""


class Failure(Struct, frozen=True):
    """A failed resource, its error, and the end of its command's output. `resource` is "" if the whole session failed."""

    resource: str
    error: str
    output: str = ""


class NodeResult(Struct, frozen=True, kw_only=True):
    """
    The result of one node.

    Attributes:
        node, state: The node's name, and its state in the run.
        reason: The reason, if the state alone does not explain the result.
        joined: Whether the node was not expected when the run started.
        seconds: The duration of the session; 0 if unknown.
        resources: The resources that were not stable, in order.
        stable: The number of stable resources.
        failures: The failures.
        missing: The number of events that the node sent but that were not found.
        outputs: The outputs of commands that succeeded.
    """

    node: str
    state: NodeState
    reason: str = ""
    joined: bool = False
    seconds: float = 0
    resources: tuple[ResourceResult, ...] = ()
    stable: int = 0
    failures: tuple[Failure, ...] = ()
    missing: int = 0
    outputs: tuple[CommandOutput, ...] = ()


class At(Struct, frozen=True, kw_only=True):
    """The resource on which a node is working, and the time since it began."""

    node: str
    resource: str
    seconds: float
    position: int = 0
    total: int = 0


def state_word(state: NodeState, *, plan: bool) -> str:
    """Return the state in words. In a plan, `changed` is `would change`."""
    return "would change" if plan and state is NodeState.CHANGED else str(state)


def format_counts(counts: Mapping[NodeState, int], *, plan: bool) -> str:
    """Format counts in the order of the table: `2 changed, 1 failed`."""
    return counted({state_word(state, plan=plan): counts.get(state, 0) for state in _ORDER})


def live_line(
    title: str, counts: Mapping[NodeState, int], slowest: Sequence[At], note: str, style: Style, *, plan: bool
) -> str:
    """
    Return the progress of a run as one line that fits the width.

    Args:
        title: A description of the action.
        counts: Nodes by state.
        slowest: The nodes that have worked on one resource for the longest time, longest first.
        note: A reason why the whole run is delayed, such as a lost broker connection; "" for none.
        style: The width and color.
        plan: Whether the run is a plan.
    """
    total = sum(counts.values())
    done = sum(count for state, count in counts.items() if state.is_final)
    parts = [f"{title}  {done}/{total}"]
    if note:
        parts.append(note)
    if words := format_counts(counts, plan=plan):
        parts.append(words)
    for at in slowest:
        place = f" ({at.position}/{at.total})" if at.total else ""
        parts.append(f"{safe(at.node)} {one_line(at.resource)}{place} {span(at.seconds)}")
    return _joined(parts, style)


def wait_line(name: str, states: Mapping[str, int], left_s: float, style: Style) -> str:
    """Return the number of nodes per state in an assignment, and the remaining waiting time, as one line that fits the width."""
    counts = counted({one_line(state): count for state, count in states.items()})
    parts = [f"{one_line(name)}  {plural(sum(states.values()), 'node')}", counts, f"{span(left_s)} left"]
    return _joined([part for part in parts if part], style)


def _joined(parts: Sequence[str], style: Style) -> str:
    """Join as many parts as fit a live line."""
    line = parts[0]
    limit = min(style.width, UNLIMITED) - 1
    for part in parts[1:]:
        if len(line) + 3 + len(part) > limit:
            break
        line += f" · {part}"
    return line[:limit]


def run_report(
    results: Sequence[NodeResult], style: Style, *, plan: bool, run: str = "", output: OutputLimits = IN_BRIEF
) -> str:
    """
    Return the table of a run, then the output of commands, then each failure; "" if there are no nodes.

    On a terminal, a long table is shortened if the run has an ID, because the whole table can then be shown later.
    """
    text = table(
        [Column("NODES", fold=True), Column("STATE"), Column("WHAT", fold=True), Column("TIME", right=True)],
        [_row(group, plan=plan) for group in _groups(results, merges=style.merges is not False)],
        style,
        is_worst_last=True,
        again=f"`ccmctl run show {short_id(run)} | less`" if run else "",
    )
    blocks = output_blocks(((one.node, one.outputs) for one in results), output, style)
    blocks += _failure_blocks(results, style)
    return "\n".join([f"{text.rstrip()}\n", *blocks]) if text and blocks else text


def end_line(
    title: str, counts: Mapping[NodeState, int], seconds: float, run: str, style: Style, *, plan: bool
) -> str:
    """Return the last line: the action, the nodes by state, the duration, and the ID of the run."""
    total = plural(sum(counts.values()), "node")
    words = format_counts(counts, plan=plan) or "nothing to do"
    bad = any(state in counts for state in FAILED_STATES)
    meaning = "bad" if bad else "good" if _is_well(counts) else "gone"
    plain = f"{title}: {total}: {words} in {span(seconds)}"
    name = f"(run {short_id(run)})"
    gap = " " if len(plain) + len(name) + 1 <= style.width else "\n"
    return f"{title}: {paint(f'{total}: {words}', meaning, style)} in {span(seconds)}{gap}{name}\n"


def _is_well(counts: Mapping[NodeState, int]) -> bool:
    return not set(counts) - {NodeState.STABLE, NodeState.CHANGED}


def _groups(results: Sequence[NodeResult], *, merges: bool) -> list[list[NodeResult]]:
    """Group nodes with the same result, in the order of the table. Each group is sorted by name."""
    groups: dict[tuple[object, ...], list[NodeResult]] = {}
    for result in sorted(results, key=lambda one: (_ORDER.index(one.state), one.node)):
        failed = tuple(failure.resource for failure in result.failures)
        key = (result.state, result.reason, result.joined, result.resources, failed, result.missing)
        groups.setdefault((*key, result.stable, "" if merges else result.node), []).append(result)
    return list(groups.values())


def _row(group: list[NodeResult], *, plan: bool) -> list[str | Cell]:
    one = group[0]
    state = state_word(one.state, plan=plan) + (" (joined)" if one.joined else "")
    times = sorted({span(result.seconds) for result in group if result.seconds})
    slowest = max(result.seconds for result in group)
    return [
        fold_names(result.node for result in group),
        Cell(state, MEANINGS.get(one.state, "")),
        _what(one),
        "" if not times else times[0] if len(times) == 1 else f"≤ {span(slowest)}",
    ]


def _what(one: NodeResult) -> str:
    named = [_format_resource(result) for result in one.resources if result.outcome != Outcome.SKIPPED]
    skipped = len(one.resources) - len(named)
    is_noted = any(result.note for result in one.resources)
    parts = named[:RESOURCES_SHOWN] if is_noted else _first_that_fit(named)
    if len(named) > len(parts):
        parts.append(f"and {len(named) - len(parts)} more")
    if skipped:
        parts.append(f"{skipped} skipped")
    if one.state is NodeState.STABLE and not parts:
        parts.append(plural(one.stable, "resource"))
    if one.missing:
        parts.append(f"{plural(one.missing, 'event')} missing")
    text = ", ".join(parts)
    if one.reason:
        return one_line(f"{one.reason}; {text}" if text else one.reason)
    return one_line(text)


def _first_that_fit(named: list[str]) -> list[str]:
    """Return as many of the first entries as fit into a readable row, but at least one."""
    parts, width = named[:1], len("".join(named[:1]))
    for name in named[1:RESOURCES_SHOWN]:
        width += len(name)
        if width > RESOURCES_WIDTH:
            break
        parts.append(name)
    return parts


def _format_resource(result: ResourceResult) -> str:
    if result.note:
        return f"{result.resource}: {result.note}"
    return result.resource if result.outcome == Outcome.CHANGED else f"{result.resource} {result.outcome}"


def _failure_blocks(results: Sequence[NodeResult], style: Style) -> list[str]:
    nodes: dict[Failure, list[str]] = {}
    for result in results:
        for failure in result.failures:
            nodes.setdefault(failure, []).append(result.node)
    blocks = []
    for failure, names in sorted(nodes.items(), key=lambda item: (item[1], item[0].resource)):
        head = f"{fold_names(names)}: {one_line(failure.resource) or 'the session'} failed"
        lines = [paint(head, "bad", style)]
        lines += [f"  {line}" for line in safe(failure.error).splitlines()]
        lines += output_lines(failure.output, OUTPUT_LINES)
        blocks.append("\n".join(lines) + "\n")
    return blocks
