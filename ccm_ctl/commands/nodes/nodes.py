"""`ccmctl node list`: list nodes. `ccmctl nodes` is its former name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import click
from msgspec import Struct

from ccm_agent.clikit.options import takes
from ccm_agent.clikit.table import Cell, Column, elapsed
from ccm_agent.clikit.table_stream import TableStream
from ccm_agent.clikit.text import plural, short_id
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.commands.nodes.node_removal import remove_nodes
from ccm_ctl.commands.nodes.site_lines import show_sites
from ccm_ctl.commands.runs.targets import TargetOptions, no_fold_option, target_options
from ccm_ctl.fleet.nodes.inventory import read_twins
from ccm_ctl.fleet.nodes.node_condition import NodeCondition
from ccm_ctl.fleet.nodes.node_list import ListedNode, open_list
from ccm_ctl.fleet.nodes.nodes import DuplicateIdentity, Node
from ccm_ctl.fleet.nodes.sites import SiteSource, find_site
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.outcome import MEANINGS
from ccm_ctl.render.record_types.nodes import NodeLine, OneOfSeveral
from ccm_ctl.render.tree import scalar

NO_NODES = "no nodes yet; an agent appears here a few seconds after `ccm agent --config FILE` has connected to this broker\n"

_MEANINGS = {str(state): meaning for state, meaning in MEANINGS.items()}


@takes(TargetOptions)
def list_nodes(application: Application, given: TargetOptions) -> Exit:
    """List present and expected nodes. Without --targets, all nodes are listed."""

    async def work(fleet: Fleet) -> Exit:
        terminal, counts = application.terminal, _Counts()
        sites = await fleet.sites.read() if fleet.sites is not None else []
        async with open_list(fleet, given.spec()) as listed:
            if not listed.names:
                terminal.show(NO_NODES)
                show_sites(terminal, sites)
                return Exit.OK
            now, total, away = fleet.clock.now(), len(listed.names), [one for one in sites if one.is_cut]
            table = TableStream(_list_columns(), total, terminal.style, unit="nodes", narrow="-t")
            async for part in listed.parts():
                counts.take(part)
                cut = {one.node.name: site for one in part if (site := find_site(away, one.node.copied_from))}
                twins = {
                    one.node.name: await read_twins(fleet, one.node.name)
                    for one in part
                    if is_disputed(one.node)
                }
                if terminal.json:
                    for one in part:
                        agents = as_agents(twins[one.node.name]) if one.node.name in twins else None
                        fields = node_fields(one.node, one.condition, cut.get(one.node.name))
                        terminal.record(NodeLine, **fields, agents=agents)
                elif table.needs_rows:
                    rows = [
                        _row(one, twins.get(one.node.name, []), cut.get(one.node.name), now) for one in part
                    ]
                    terminal.show("".join(table.add(rows)))
            terminal.show("".join(table.end()))
        terminal.show(f"{counts.sentence}\n")
        show_sites(terminal, sites)
        return Exit.OK

    return application.run(work)


class _Counts(Struct):
    """The numbers for the line below the list."""

    nodes: int = 0
    absent: int = 0
    late: int = 0
    unsigned: int = 0
    outdated: int = 0
    mistimed: int = 0
    unverified: int = 0

    def take(self, part: Sequence[ListedNode]) -> None:
        """Add some nodes to the numbers."""
        for one in part:
            node = one.node
            self.nodes += 1
            self.absent += not node.is_present
            self.late += one.condition.is_late
            if node.record is not None:
                self.unsigned += not node.record.signatures
                self.outdated += bool(node.record.plans_only)
            self.mistimed += bool(node.wrong_clock)
            self.unverified += bool(node.unverified)

    @property
    def sentence(self) -> str:
        """Return the line below the list."""
        unsigned = "all" if self.unsigned == self.nodes else self.unsigned
        parts = [
            plural(self.nodes, "node"),
            f"{self.absent} not present" if self.absent else "",
            f"{self.late} missed a heartbeat" if self.late else "",
            f"{unsigned} accept unsigned requests" if self.unsigned else "",
            f"{self.outdated} with plans only" if self.outdated else "",
            f"{self.mistimed} with a wrong clock" if self.mistimed else "",
            f"{self.unverified} with unverified entries" if self.unverified else "",
        ]
        return ", ".join(part for part in parts if part)


def _list_columns() -> list[Column]:
    return [
        Column("NODE", names=True),
        Column("STATE"),
        Column("AGENT"),
        Column("FACTS", fold=True),
        Column("LAST RUN"),
        Column("VERSION", spare=1),
        Column("NOTE", fold=True),
    ]


_EXAMPLES = ["ccmctl node list", "ccmctl node list --targets 'role in (web,db)'", "ccmctl node list --json"]


def _options() -> list[click.Parameter]:
    return [*target_options(everybody=False), no_fold_option()]


list_command = verb("list", examples=_EXAMPLES, options=_options())(list_nodes)

nodes = group("nodes", invoke_without_command=True, examples=_EXAMPLES, options=_options())(list_nodes)
nodes.add_command(remove_nodes)


def node_fields(node: Node, condition: NodeCondition, site: SiteSource | None = None) -> dict[str, Any]:
    """Return a node as record fields, with its site."""
    record = node.record
    return {
        "node": node.name,
        "state": node.state,
        "condition": condition.state,
        "heard": condition.heard,
        "late": condition.is_late or None,
        "facts": node.routed | node.assigned,
        "version": record.version if record else None,
        "machine": record.machine if record else None,
        "started": record.started if record else None,
        "last_run": (record.last_run or None) if record else None,
        "last_state": (record.last_state or None) if record else None,
        "last_time": record.last_time if record else None,
        "disabled": record.disabled if record else None,
        "conflict": (record.conflict or None) if record else None,
        "run": (node.presence.run or None) if node.presence else None,
        "signatures": record.signatures if record else None,
        "plans_only": (record.plans_only or None) if record else None,
        "disk": (record.disk or None) if record else None,
        "wrong_clock": node.wrong_clock or None,
        "unverified": node.unverified or None,
        "cut_site": site.site if site and site.is_cut else None,
    }


def as_agents(twins: Sequence[DuplicateIdentity]) -> list[OneOfSeveral]:
    """Return the agents that share one identity, as record fields."""
    return [OneOfSeveral(machine=twin.machine, started=twin.started) for twin in twins]


def format_agent(node: Node, condition: NodeCondition) -> tuple[str, str]:
    """Return the state of the agent, such as `late` or `offline`, and its color."""
    if condition.is_late:
        return "late", "gone"
    return node.state, "" if node.is_present else "quiet"


def is_disputed(node: Node) -> bool:
    """Whether the node has a problem with its identity or its assignments."""
    return bool(node.record and node.record.conflict)


def format_note(node: Node, twins: Sequence[DuplicateIdentity] = ()) -> str:
    """Return the note about a node. If two agents share its identity, the note contains their machines and start times."""
    notes = []
    if node.record and node.record.conflict:
        agents = "".join(f"; machine {twin.machine} started {twin.started}" for twin in twins)
        notes.append(f"{node.record.conflict}{agents}")
    if node.record and node.record.plans_only:
        notes.append(f"plans only: {node.record.plans_only}")
    if node.record and node.record.disk:
        notes.append(f"cannot write its state: {node.record.disk}")
    if node.wrong_clock:
        notes.append(f"wrong clock: {node.wrong_clock}")
    if node.unverified:
        notes.append(f"unverified {node.unverified_note}")
    if node.record and node.record.disabled:
        notes.append(node.record.disabled.sentence)
    if node.record and node.record.locks:
        notes.append(f"{len(node.record.locks)} locked (`ccmctl lock list`)")
    if node.presence and node.presence.run:
        notes.append(f"in run {short_id(node.presence.run)}")
    return "; ".join(notes)


def _row(
    one: ListedNode, twins: Sequence[DuplicateIdentity], cut: SiteSource | None, now: datetime
) -> list[str | Cell]:
    node, condition = one.node, one.condition
    facts = node.routed | dict(_leaves(node.assigned))
    record = node.record
    state, last_time = (record.last_state, record.last_time) if record else ("", None)
    notes = [f"site {cut.site} is cut off" if cut else "", format_note(node, twins)]
    return [
        node.name,
        Cell(condition.state, condition.meaning),
        Cell(*format_agent(node, condition), elapsed(condition.heard, now)),
        ", ".join(f"{path}={scalar(value)}" for path, value in sorted(facts.items())),
        Cell(state, _MEANINGS.get(state, ""), elapsed(last_time, now)),
        record.version if record else "",
        Cell("; ".join(filter(None, notes)), "bad" if is_disputed(node) else ""),
    ]


def _leaves(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield facts by dotted path, in the form that `--targets` uses."""
    for key, value in facts.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
