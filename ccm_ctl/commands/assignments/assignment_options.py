"""Shared parts of the commands for assignments: options, descriptions, affected nodes and differences."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from ccm_agent.bus.subjects import parse_assignment_key
from ccm_agent.clikit.text import ago, clock, one_line, plural, short_id
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.records.rollout_records import Phase
from ccm_ctl.fleet.assignments.assignment_description import (
    format_commit,
    format_data_revision,
    format_targets,
    short,
)
from ccm_ctl.fleet.nodes.inventory import read_inventory
from ccm_ctl.fleet.nodes.nodes import TargetSet
from ccm_ctl.fleet.trust.node_state import mark_unverified
from ccm_ctl.render.diff import diff
from ccm_ctl.render.record_types.assignments import AssignmentLine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ccm_agent.model.wire import Assignment
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.assignments.assignment_rollouts import BringingRollout
    from ccm_ctl.fleet.assignments.assignments import Assignments, Standing
    from ccm_ctl.fleet.assignments.bundles import Inside
    from ccm_ctl.fleet.assignments.convergence import NodeStanding
    from ccm_ctl.fleet.nodes.nodes import Inventory
    from ccm_ctl.fleet.ports import Fleet


def scope_option() -> click.Option:
    """Return the option `--scope`, which selects one of several assignments of the same name."""
    return click.Option(
        ["--scope"],
        metavar="SCOPE",
        default="",
        help="Scope of the assignment, if several have this name: all, node=NAME, or a fact such as role=web.",
    )


def choose_scope(words: str) -> str:
    """Parse the value of `--scope`, and return the scope; "" if the option was not given."""
    from ccm_ctl.fleet.assignments.assignments import parse_scope

    return parse_scope(words) if words else ""


def find_lost(inventory: Inventory, known: Assignments, name: str, scope: str) -> dict[str, list[str]]:
    """
    Find the keys of an assignment that nodes report although they are not in the bucket. Return the nodes for each key.

    Args:
        inventory: The nodes.
        known: The assignments in the bucket.
        name: The name of the assignment.
        scope: The only scope to search for; "" for all scopes.
    """
    there = {one.key for one in known.standing}
    found: dict[str, list[str]] = {}
    for node in inventory.nodes.values():
        state = node.record.assignments.get(name) if node.record else None
        if state is None or state.key in there:
            continue
        try:
            place, _ = parse_assignment_key(state.key)
        except ProtocolError:
            continue  # skip invalid keys, because a node writes its own record
        if scope in ("", place):
            found.setdefault(state.key, []).append(node.name)
    return found


async def read_marked_fleet(fleet: Fleet) -> tuple[Inventory, Assignments]:
    """Read the same data as `read_fleet`, and mark records that nodes did not sign."""
    inventory, known = await read_fleet(fleet)
    await mark_unverified(fleet, list(inventory.nodes.values()))
    return inventory, known


async def read_fleet(fleet: Fleet) -> tuple[Inventory, Assignments]:
    """Read the nodes, the assignments and everything that determines which assignment each node uses."""
    from ccm_ctl.fleet.assignments.assignments import read_assignments

    known = await read_assignments(fleet)
    inventory = await read_inventory(fleet)
    await known.fill_in(fleet, inventory)
    return inventory, known


def counts_for(inventory: Inventory, known: Assignments, standing: Standing) -> list[str]:
    """Return the nodes that use an assignment, sorted."""
    return [
        node.name
        for node in inventory.nodes.values()
        if (one := known.of_node(node).get(standing.name)) is not None and one.key == standing.key
    ]


def build_target_set(inventory: Inventory, nodes: list[str]) -> TargetSet:
    """Return these nodes as a target set, for the prompt about a change."""
    offline = [node for node in nodes if not inventory.nodes[node].is_present]
    return TargetSet(nodes=nodes, offline=offline, scopes=[], targets=[])


async def diff_assignments(
    application: Application, fleet: Fleet, old: Standing, new: Assignment, inside: Inside
) -> str:
    """Return the differences between an existing assignment and its replacement, followed by those of each text file."""
    from ccm_ctl.fleet.assignments.bundles import read_inside
    from ccm_ctl.fleet.assignments.revision_changes import compare_assignments

    was, now, style = f"{old.name} {old.revision}", f"{old.name} (new)", application.terminal.style
    held = await read_inside(fleet, old.assignment.bundle)
    changes = await compare_assignments(fleet, old.assignment, new, held, inside)
    parts = []
    for one in changes:
        file = f": {one.path}" if one.path else ""
        parts.append(diff(one.before, one.after, f"{was}{file}", f"{now}{file}", style))
    return shorten_diff("".join(parts))


def shorten_diff(text: str) -> str:
    """Return the beginning of a diff. If lines were omitted, their number is added."""
    from ccm_ctl.fleet.assignments.revision_changes import DIFF_LINES

    lines = text.splitlines(keepends=True)
    left = len(lines) - DIFF_LINES
    return text if left <= 0 else f"{''.join(lines[:DIFF_LINES])}… and {plural(left, 'more line')}\n"


def count_states(nodes: Sequence[NodeStanding]) -> dict[str, int]:
    """Count nodes by state. `converged` is first, then the most frequent states."""
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.state] = counts.get(node.state, 0) + 1
    return dict(sorted(counts.items(), key=lambda one: (one[0] != "converged", -one[1], one[0])))


def format_title(standing: Standing, now: datetime) -> str:
    """Describe an assignment in one line."""
    assignment = standing.assignment
    by = f" by {standing.written_by}" if standing.written_by else ""
    every = f" every {format_duration(assignment.interval_s)}" if assignment.interval_s else ""
    until = f", to begin by {clock(assignment.deadline)}" if assignment.deadline else ""
    data = f"data {format_data_revision(assignment)},"
    if assignment.commit:
        data += f" commit {format_commit(assignment)},"
    return (
        f"{standing.name} {standing.revision}: {assignment.mode} {assignment.manifest or '?'}{every} on "
        f"{format_targets(assignment)} (bundle {short(assignment.bundle.digest)}, {data}"
        f"{by} {ago(standing.time, now)}{until})"
    )


def format_rollout(
    standing: Standing, found: Sequence[NodeStanding], bringing: BringingRollout | None
) -> str:
    """Describe the rollout of the next revision of an assignment: its progress and state; "" if there is none."""
    from ccm_ctl.fleet.assignments.staging import is_first

    following = standing.following
    if following is None:
        return ""
    have = sum(one.wanted.number == following.number for one in found)
    total = max(len(found), bringing.nodes if bringing else 0)
    bundle, run = short(following.assignment.bundle.digest), short_id(following.assignment.rollout)
    count = f"{have} of {plural(total, 'node')} {'has' if have == 1 else 'have'} it"
    state = bringing.state if bringing else None
    if state is None:
        return f"rollout {run} of bundle {bundle} is not on record; {count}"
    name = shlex.quote(standing.name)
    if state.phase is Phase.ABORTED:
        back = (
            f"  remove it:  ccmctl unassign {name}"
            if is_first(standing)
            else f"  restore:  ccmctl rollback {name}"
        )
        by = f" by {one_line(state.by)}" if state.by else ""
        return f"rollout {run} of bundle {bundle} was aborted{by}: {one_line(state.reason)}; {count}\n{back}"
    words = f"rollout {run} deploys bundle {bundle}: {count}"
    if state.phase is not Phase.PAUSED:
        return words
    return (
        f"{words}\npaused: {one_line(state.reason)}\n"
        f"  continue:  ccmctl run resume {run}\n  abort:     ccmctl run abort {run}"
    )


def bringing_fields(bringing: BringingRollout | None) -> dict[str, Any]:
    """Return the rollout of the next revision of an assignment as record fields."""
    state = bringing.state if bringing else None
    return {
        "rollout_phase": str(state.phase) if state else None,
        "rollout_reason": (state.reason or None) if state else None,
        "rollout_nodes": (bringing.nodes or None) if bringing else None,
    }


def assignment_fields(standing: Standing) -> dict[str, Any]:
    """Return an assignment as record fields."""
    assignment = standing.assignment
    return {
        "name": standing.name,
        "scope": assignment.scope,
        "revision": standing.revision,
        "targets": assignment.targets,
        "where": assignment.where or None,
        "manifest": assignment.manifest or None,
        "digest": assignment.bundle.digest,
        "commit": assignment.commit or None,
        "commit_dirty": assignment.commit_dirty or None,
        "data": assignment.data,
        "data_revision": assignment.data_revision,
        "mode": assignment.mode,
        "interval_s": assignment.interval_s or None,
        "deadline": assignment.deadline,
        "written_by": standing.written_by or None,
        "unverified": standing.unverified or None,
        "time": standing.time,
        "message": standing.message or None,
        "rolled_back_from": assignment.rolled_back_from or None,
        "rollout": (assignment.next or assignment).rollout or None,
        "next_digest": assignment.next.bundle.digest if assignment.next else None,
    }


def print_assigned(application: Application, standing: Standing, nodes: list[str], *, was: str) -> None:
    """Print that an assignment was stored, and the command that shows its status."""
    terminal = application.terminal
    terminal.record(AssignmentLine, **assignment_fields(standing), nodes=len(nodes), changed=True)
    terminal.show(
        f"{standing.name}: {was}, revision {standing.revision}, for {plural(len(nodes), 'node')}\n"
        f"  check progress:  ccmctl assignment status {standing.name}\n"
    )
