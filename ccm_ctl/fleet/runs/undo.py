"""The undo of a run: whether it is possible, its nodes, and the request."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.bus.subjects import check_node, node_scope
from ccm_agent.model.errors import RunError, UsageError
from ccm_agent.model.ids import short_id
from ccm_agent.model.records.rollout_records import Phase, RolloutState
from ccm_agent.model.records.run_records import UNDO
from ccm_agent.model.wire import MANIFEST_APPLY, MANIFEST_PLAN, ManifestRequest, NodeState
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.nodes.inventory import read_nodes
from ccm_ctl.fleet.nodes.nodes import Inventory, TargetSet
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.concurrent import name_few
from ccm_ctl.fleet.rollout.lease import held
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.find_run import find_run
from ccm_ctl.fleet.runs.history import NEWEST, History, Recorded
from ccm_ctl.fleet.runs.node_run import NodeRun
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.run_again import base_of, check_undoable, read_known
from ccm_ctl.fleet.runs.run_request import Launch, prepare
from ccm_ctl.fleet.runs.run_signatures import scopes_of_record
from ccm_ctl.fleet.runs.stream_runs import ASSIGNMENT, SCHEDULE

LOOKS = ("plan", "check")
"""Actions that change nothing."""

MAY_HAVE_CHANGED = frozenset((NodeState.CHANGED, NodeState.FAILED, NodeState.STOPPED, NodeState.LOST))
"""End states of nodes on which a run may have changed something."""

OWN_SCOPES_LIMIT = 1000
"""Up to this many nodes get the request on their own subjects. With more, it is sent on the subjects of the run."""


class UndoTargets(Struct, frozen=True, kw_only=True):
    """
    The targets of an undo.

    Attributes:
        inventory: The inventory that was read for the undo.
        nodes: The target nodes.
        changed: The resources that the run changed, as `type#name`, each once.
    """

    inventory: Inventory
    nodes: TargetSet
    changed: list[str]

    @property
    def known(self) -> list[str]:
        """The target nodes that are in the inventory."""
        return [name for name in self.nodes.nodes if name in self.inventory.nodes]


async def find_undoable(fleet: Fleet, word: str, *, redo: bool = False) -> Recorded:
    """
    Find the run to undo. See `find_run`, except that `last` is the operator's own newest run that is not a plan.

    The reason for the exception is that the newest run is often a plan of the undo.

    Args:
        fleet: The bus.
        word: The ID, prefix or word that the operator entered.
        redo: Whether the run may itself be an undo.

    Raises:
        RunError: The run does not exist, changes nothing or is an undo, or its author lacked the right to send it.
    """
    recorded = await _find(fleet, word)
    await check_undoable(fleet, recorded)
    undone = recorded.record.request.get("undo")
    if undone and not redo:
        raise RunError(
            f"{short_id(recorded.record.run)}: this run is an undo; --redo applies the changes of {short_id(undone)} again"
        )
    return recorded


async def _find(fleet: Fleet, word: str) -> Recorded:
    history = History(fleet)
    if word == NEWEST:
        async for record, *_ in history.newest_first([]):
            if record.requester == fleet.operator and record.action not in LOOKS:
                return await history.load(record.run)
    recorded = await find_run(fleet, word)
    action = recorded.record.action
    if action in LOOKS:
        raise RunError(
            f"{short_id(recorded.record.run)}: a {action} changes nothing, so there is nothing to undo"
        )
    return recorded


async def check_ended(fleet: Fleet, recorded: Recorded, run: Run) -> None:
    """
    Check that a run has ended.

    Raises:
        RunError: The run has not ended. The message contains the commands that continue or end it.
    """
    record = recorded.record
    going_on = sorted(name for name, node in run.nodes.items() if not node.state.is_final)
    if not going_on:
        return
    found = await RolloutStore(fleet).look(record.run)
    way_out = f"wait with `ccmctl run watch {short_id(record.run)}`, or end it with `ccmctl run stop {short_id(record.run)}`"
    if found is not None and not found.state.phase.is_over:
        way_out = _rollout_way_out(found.state, fleet.clock.now())
    raise RunError(
        f"{short_id(record.run)}: {name_few(going_on)} {'has' if len(going_on) == 1 else 'have'} not ended; {way_out}"
    )


def _rollout_way_out(state: RolloutState, now: datetime) -> str:
    run = short_id(state.run)
    abort = f"end it with `ccmctl run abort {run}`"
    if state.phase is not Phase.PAUSED and held(state, now) is not None:
        return f"wait for the rollout with `ccmctl run watch {run}`, or {abort}"
    why = "the rollout is paused" if state.phase is Phase.PAUSED else "no process drives the rollout"
    return f"{why}; continue it with `ccmctl run resume {run}`, or {abort}"


def changed_nodes(recorded: Recorded, run: Run) -> list[str]:
    """
    Return the nodes on which an ended run may have changed something, sorted.

    Raises:
        RunError: The run changed nothing.
    """
    record = recorded.record
    found = _may_have_changed(run)
    if not found:
        raise RunError(f"{short_id(record.run)}: it changed nothing on any node, so there is nothing to undo")
    return found


def offered_nodes(recorded: Recorded, run: Run) -> list[str]:
    """Return the nodes for which a page offers the undo of a run, sorted. Empty while a node has not ended."""
    is_open = any(not node.state.is_final for node in run.nodes.values())
    return [] if is_open or recorded.record.action in LOOKS else _may_have_changed(run)


def _may_have_changed(run: Run) -> list[str]:
    return sorted(name for name, node in run.nodes.items() if node.state in MAY_HAVE_CHANGED)


def select_node(name: str) -> TargetSpec:
    """
    Select one node for an undo.

    Raises:
        UsageError: This is not a valid node name.
    """
    return TargetSpec(targets=(f"node={check_node(name)}",))


async def resolve_undo(fleet: Fleet, recorded: Recorded, spec: TargetSpec) -> UndoTargets:
    """
    Find the nodes on which an ended run may have changed something.

    Args:
        fleet: The bus.
        recorded: The run, from `find_undoable`.
        spec: The nodes that the operator selected. Empty: all of them.

    Raises:
        RunError: The run has not ended, or changed nothing.
        UsageError: No nodes remain, or an agent is too old.
    """
    before = await read_known(fleet, recorded)
    await check_ended(fleet, recorded, before)
    nodes = changed_nodes(recorded, before)
    chosen = None if spec.is_empty else (await resolve(fleet, spec))[1]
    inventory = await read_nodes(fleet, nodes)
    events = (event for node in before.nodes.values() for event in node.events.values())
    changed = dict.fromkeys(f"{one.type}#{one.name}" for one in events if one.changed and not one.noop)
    return UndoTargets(
        inventory=inventory,
        nodes=undo_targets(recorded, nodes, chosen, inventory),
        changed=list(changed),
    )


def undo_targets(
    recorded: Recorded, nodes: list[str], chosen: TargetSet | None, inventory: Inventory
) -> TargetSet:
    """
    Return the targets of an undo.

    Args:
        recorded: The run that is undone.
        nodes: The nodes on which it may have changed something.
        chosen: The nodes that the operator selected. None: all of them.
        inventory: Shows which nodes are present, and which have older agents.

    Raises:
        UsageError: No nodes remain, or an agent is too old.
    """
    record = recorded.record
    left = nodes if chosen is None else [name for name in nodes if name in chosen.nodes]
    if not left:
        raise UsageError(
            f"{short_id(record.run)}: it changed nothing on the selected nodes; it may have changed {name_few(nodes)}"
        )
    known = {name: inventory.nodes[name] for name in left if name in inventory.nodes}
    older = [name for name, node in known.items() if node.record is not None and not node.record.undo]
    if older:
        raise UsageError(
            f"{name_few(older)}: the agent is too old to undo runs; upgrade it, or select other nodes with --targets"
        )
    scopes = scopes_of_record(record)
    if chosen is not None:
        scopes = chosen.scopes
    elif not scopes and len(left) <= OWN_SCOPES_LIMIT:
        scopes = [node_scope(name) for name in left]
    return TargetSet(
        nodes=left,
        offline=[name for name in left if name not in known or not known[name].is_asked],
        scopes=scopes,
        targets=[f"node in ({','.join(left)})"],
        where="",
    )


def nodes_to_apply_again(recorded: Recorded, targets: UndoTargets) -> list[str]:
    """Return the nodes of an undo on which the schedule or assignment that started the run will apply the changes again."""
    if recorded.cause == SCHEDULE and recorded.origin:
        return targets.known
    records = {name: targets.inventory.nodes[name].record for name in targets.known}
    still = [name for name, one in records.items() if one is not None and recorded.origin in one.assignments]
    return still if recorded.cause == ASSIGNMENT else []


def prepare_undo(
    fleet: Fleet,
    recorded: Recorded,
    resolved: TargetSet,
    deadline: datetime,
    *,
    is_plan: bool,
    diff: bool = False,
    message: str = "",
) -> Launch:
    """
    Prepare the undo of a run, or its plan. Nothing is sent.

    Args:
        fleet: The bus.
        recorded: The run, from `find_undoable`.
        resolved: The targets, from `undo_targets`.
        deadline: Nodes that have not started by this time will not start.
        is_plan: Whether nodes only report what the undo would restore, with diffs.
        diff: Whether nodes send diffs of the changes.
        message: The reason, in the operator's words.

    Raises:
        RunError: The record of the run is unverified.
    """
    undone = recorded.record.run
    name = f"undo of {short_id(undone)}"
    request = ManifestRequest(
        protocol=MANIFEST_PLAN if is_plan else MANIFEST_APPLY,
        name=name,
        undo=undone,
        diff=is_plan or diff,
        deadline=deadline,
        message=message,
    )
    # if no operator started the run, the request contains only its ID, which the operator entered
    base = base_of(recorded) if recorded.is_on_record else Authored.from_arguments()
    return prepare(fleet, request, resolved, "plan" if is_plan else UNDO, name, base=[base])


def would_undo(node: NodeRun) -> bool:
    """Whether a plan found something to undo, or its result is unknown. A plan can fail because of a single resource."""
    if node.state in (NodeState.FAILED, NodeState.STOPPED):
        return any(event.changed for event in node.events.values())
    return node.state not in (NodeState.STABLE, NodeState.REFUSED)
