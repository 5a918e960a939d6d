"""Format the impact of a rollout on services: a table and sentences for people, and records for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ccm_agent.clikit.table import Cell, Column, Style, table
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.clikit.text import fold_names, one_line, plural, short_id, shortened
from ccm_ctl.fleet.impact.changes import NodeChange
from ccm_ctl.fleet.impact.report import ImpactReport, PlannedWave, ServiceImpact, WaveImpact
from ccm_ctl.render.record_types.impact import (
    ImpactLine,
    ImpactResourceFields,
    ImpactSlotFields,
    ImpactSummaryLine,
    ImpactWaveFields,
    ServiceWaveFields,
)

GROUPS_SHOWN = 40
"""The maximum number of groups of services with equal numbers in the table. Records contain all of them."""

GROUPS_OF_NODES = 5
"""The maximum number of groups with the same nodes in the table, because one node can register any number of services."""

RECORDS_LIMIT = 10_000
"""The maximum number of services in records. Services that lose the most instances are first."""

NAMES_LIMIT = 1000
"""The maximum number of names in a list of a record."""

_NAME_LENGTH = 100
_RESOURCES_SHOWN = 8
_ADDRESSES_SHOWN = 5

_COLUMNS = [
    Column("SERVICE", fold=True),
    Column("INSTANCES", right=True, spare=1),
    Column("HEALTHY", right=True),
    Column("WAVE", fold=True),
    Column("CHANGING", right=True),
    Column("AT ONCE", right=True),
    Column("FAILED", right=True),
    Column("LEFT", right=True),
]


def impact_text(report: ImpactReport, style: Style) -> str:
    """Return a table of the services that lose instances, by wave, and sentences that explain the numbers."""
    groups = list(_groups(report.services))
    shown = list(_shown(groups))
    hidden = sum(len(group) for group in groups) - sum(len(group) for group in shown)
    rows = [row for group in shown for row in _rows(group, report.waves)]
    text = table(_COLUMNS, rows, style) or "no registered service loses a healthy instance\n"
    lines = [f"and {plural(hidden, 'more service')}: --json has all of them"] if hidden else []
    return "\n".join([f"{text}", *lines, *_sentences(report)]).rstrip("\n") + "\n"


def impact_warnings(report: ImpactReport) -> list[str]:
    """Return a warning for each group of services that may lose all healthy, or all preferred, instances."""
    found = []
    for group in _shown(list(_groups(report.services))):
        one, worst = group[0], group[0].worst
        if worst.left <= 0:
            name = one_line(report.waves[worst.wave].name)
            where = f" in {name}" if name else ""
            found.append(f"{_title(group)}: may have no healthy instance{where}{_why_none(one)}")
        elif any(wave.preferred_left <= 0 for wave in one.waves):
            found.append(
                f"{_title(group)}: may lose all healthy instances with the best priority ({one.preferred}) and keep only others"
            )
    return found


def _why_none(one: ServiceImpact) -> str:
    if one.healthy == 1:
        return ": its only one is on a node that changes"
    if len(one.nodes) == 1:
        return f": all {one.healthy} are on one node"
    if one.worst.at_once < one.healthy:
        return ", if as many nodes fail as the limits allow"
    return "; change fewer nodes at a time, such as with --batch 1"


def print_service(terminal: Terminal, one: ServiceImpact, waves: Sequence[PlannedWave]) -> None:
    """Print the record of a service."""
    terminal.record(
        ImpactLine,
        cluster=one.service.cluster,
        protocol=one.service.protocol,
        service=one.service.service,
        instances=one.instances,
        healthy=one.healthy,
        preferred=one.preferred,
        unplaced=one.unplaced or None,
        nodes=list(one.nodes[:NAMES_LIMIT]),
        node_count=len(one.nodes),
        left=one.worst.left,
        waves=[
            ServiceWaveFields(
                wave=wave.wave,
                name=waves[wave.wave].name,
                instances=wave.instances,
                at_once=wave.at_once,
                failed=wave.failed,
                left=wave.left,
                preferred_left=wave.preferred_left,
            )
            for wave in one.waves
        ],
    )


def print_summary(terminal: Terminal, report: ImpactReport) -> None:
    """Print the record with the totals of the report."""
    changing = {one.node for one in report.changes}
    assumed = [one for one in report.changes if not one.is_known]
    terminal.record(
        ImpactSummaryLine,
        run=report.run or None,
        services=len(report.services),
        without_healthy=len(report.lost),
        left_out=max(0, len(report.services) - RECORDS_LIMIT) or None,
        changing=len(changing),
        unchanged=report.unchanged,
        waves=[
            ImpactWaveFields(
                name=wave.name,
                nodes=len(wave.nodes),
                changing=len(changing.intersection(wave.nodes)),
                at_once=wave.at_once,
                may_have_failed=wave.may_have_failed,
            )
            for wave in report.waves
        ],
        assumed={one.node: one.reason for one in assumed[:NAMES_LIMIT]},
        assumed_count=len(assumed),
        offline=list(report.offline[:NAMES_LIMIT]),
        offline_count=len(report.offline),
        unregistered=list(report.unregistered[:NAMES_LIMIT]),
        unregistered_count=len(report.unregistered),
        unplaced=list(report.unplaced[:NAMES_LIMIT]),
        unplaced_count=len(report.unplaced),
        resources=[
            ImpactResourceFields(resource=resource, nodes=count, refresh=is_refresh, slot=slot or None)
            for resource, is_refresh, slot, count in _resources(report.changes)[:NAMES_LIMIT]
        ],
        slots=[
            ImpactSlotFields(slot=name, count=count, held_by=list(report.holders.get(name, ())[:NAMES_LIMIT]))
            for name, count in sorted(report.slots.items())
        ],
        rollouts=list(report.others[:NAMES_LIMIT]),
    )


def _groups(services: Iterable[ServiceImpact]) -> Iterator[list[ServiceImpact]]:
    """Yield groups of services that have equal numbers on the same nodes. The order is kept."""
    found: dict[object, list[ServiceImpact]] = {}
    for one in services:
        found.setdefault((one.nodes, one.others, one.instances, one.healthy, one.waves), []).append(one)
    return iter(found.values())


def _shown(groups: Sequence[list[ServiceImpact]]) -> Iterator[list[ServiceImpact]]:
    of_nodes: dict[object, int] = {}
    count = 0
    for group in groups:
        nodes = group[0].nodes, group[0].others
        of_nodes[nodes] = of_nodes.get(nodes, 0) + 1
        if of_nodes[nodes] <= GROUPS_OF_NODES and count < GROUPS_SHOWN:
            count += 1
            yield group


def _title(group: Sequence[ServiceImpact]) -> str:
    first = shortened(one_line(str(group[0].service)), _NAME_LENGTH)
    return first if len(group) == 1 else f"{first} and {len(group) - 1} more"


def _rows(group: Sequence[ServiceImpact], waves: Sequence[PlannedWave]) -> Iterator[list[str | Cell]]:
    one, title = group[0], _title(group)
    may_fail = any(wave.may_have_failed for wave in waves)
    for first, last in _equal_waves(one.waves):
        name = one_line(waves[first.wave].name)
        if last is not first:
            name = f"{name} to {one_line(waves[last.wave].name)}"
        yield [
            title,
            str(one.instances),
            str(one.healthy),
            name,
            str(first.instances),
            str(first.at_once),
            str(first.failed) if may_fail else "",
            Cell(str(first.left), "bad" if first.left <= 0 else ""),
        ]


def _equal_waves(waves: Sequence[WaveImpact]) -> Iterator[tuple[WaveImpact, WaveImpact]]:
    """Yield the first and the last wave of each sequence of waves with equal numbers."""
    begin = end = waves[0]
    for wave in waves[1:]:
        if wave.wave == end.wave + 1 and _numbers(wave) == _numbers(begin):
            end = wave
            continue
        yield begin, end
        begin = end = wave
    yield begin, end


def _numbers(wave: WaveImpact) -> tuple[int, ...]:
    return wave.instances, wave.at_once, wave.failed, wave.left, wave.preferred_left


def _sentences(report: ImpactReport) -> Iterator[str]:
    total = len(report.changes) + report.unchanged
    if report.run and total:
        yield f"{len(report.changes)} of {plural(total, 'node')} would change"
    elif total:
        yield f"no plan was run, so every present node is treated as changed: {plural(total, 'node')}"
    if report.unregistered:
        yield f"no registered service: {_named(report.unregistered)}"
    yield from _about_resources(report)
    by_reason: dict[str, list[str]] = {}
    for one in report.changes:
        if report.run and not one.is_known:
            by_reason.setdefault(one.reason, []).append(one.node)
    for reason, nodes in by_reason.items():
        yield f"treated as changed, because the plan is unknown ({one_line(reason)}): {_named(nodes)}"
    if report.offline:
        yield f"offline, so not in a wave: {_named(report.offline)}"
    if report.unplaced:
        some = ", ".join(report.unplaced[:_ADDRESSES_SHOWN])
        more = ", …" if len(report.unplaced) > _ADDRESSES_SHOWN else ""
        yield f"instances treated as not lost, because no node reports their address: {some}{more}"
    for run in report.others[:_RESOURCES_SHOWN]:
        yield f"another rollout is open, and its nodes are not included: {short_id(one_line(run))}"


def _about_resources(report: ImpactReport) -> Iterator[str]:
    changes = _resources(report.changes)
    loud = [one for one in changes if not one[0].startswith("file#")]
    parts = [
        f"{shortened(one_line(resource), _NAME_LENGTH)}{' (refresh)' if is_refresh else ''} on {plural(count, 'node')}"
        for resource, is_refresh, _, count in loud[:_RESOURCES_SHOWN]
    ]
    if len(loud) > _RESOURCES_SHOWN:
        parts.append(f"{len(loud) - _RESOURCES_SHOWN} more")
    if parts:
        yield f"may disturb: {', '.join(parts)}"
    quiet = [one.node for one in report.changes if one.changes and all(each.is_quiet for each in one.changes)]
    if quiet:
        yield f"only files change: {_named(quiet)}"
    for name, count in sorted(report.slots.items()):
        nodes = sum(name in one.slots for one in report.changes)
        if nodes:
            held = report.holders.get(name, ())
            now = f"; held now by {_named(held)}" if held else ""
            yield f"slot {name}: at most {count} of {plural(nodes, 'node')} at a time{now}"


def _resources(changes: Iterable[NodeChange]) -> list[tuple[str, bool, str, int]]:
    """Return each resource, whether it is a refresh, its slot, and its number of nodes. The most frequent resources are first."""
    counts: dict[tuple[str, bool, str], int] = {}
    for node in changes:
        for one in set(node.changes):
            key = (one.resource, one.is_refresh, one.slot)
            counts[key] = counts.get(key, 0) + 1
    return [(*key, count) for key, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def _named(nodes: Iterable[str]) -> str:
    return one_line(fold_names(nodes))
