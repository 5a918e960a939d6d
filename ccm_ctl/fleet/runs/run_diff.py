"""Compare two runs, node by node and resource by resource. This module does no I/O."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ccm_agent.model.wire import CARRIED_OUT, NodeState
from ccm_ctl.fleet.nodes.node_past import name_resource
from ccm_ctl.fleet.runs.node_run import NodeRun

ABSENT = "absent"
"""The node is not in the run."""

NO_EVENT = "no event"
"""The resource was stable in the run, or not declared. The stream has no events of such resources."""

UNKNOWN = "unknown"
"""The events of the node in the run are incomplete, so the outcome is unknown."""


class NodeOutcome(Struct, frozen=True, kw_only=True):
    """
    The outcome of one node in one of the two runs.

    Attributes:
        state: A value of NodeState, or ABSENT.
        reason: The reason, if the state is not self-explanatory.
    """

    state: str
    reason: str = ""


class ResourceDifference(Struct, frozen=True, kw_only=True):
    """A resource, and its outcome in each run: a value of Outcome, NO_EVENT or UNKNOWN."""

    resource: str
    a: str
    b: str


class NodeDifference(Struct, frozen=True, kw_only=True):
    """
    The differences on one node.

    Attributes:
        node: Its name.
        a, b: Its outcome in each run.
        resources: The resources whose outcomes differ, by name.
    """

    node: str
    a: NodeOutcome
    b: NodeOutcome
    resources: list[ResourceDifference] = []


def compare_runs(a: Mapping[str, NodeRun], b: Mapping[str, NodeRun]) -> list[NodeDifference]:
    """Return the nodes with different ends or different resource outcomes, by name."""
    found = []
    for name in sorted({*a, *b}):
        one, other = a.get(name), b.get(name)
        sides = _side(one), _side(other)
        resources = _compare(one, other) if one is not None and other is not None else []
        if sides[0] != sides[1] or resources:
            found.append(NodeDifference(node=name, a=sides[0], b=sides[1], resources=resources))
    return found


def _side(node: NodeRun | None) -> NodeOutcome:
    if node is None:
        return NodeOutcome(state=ABSENT)
    # The events of a session show the reason. Reasons of nodes without a session contain times, which differ between runs.
    has_reason = node.state not in (*CARRIED_OUT, NodeState.OFFLINE, NodeState.LOST, NodeState.UNREACHABLE)
    return NodeOutcome(state=str(node.state), reason=node.reason if has_reason else "")


def _compare(one: NodeRun, other: NodeRun) -> list[ResourceDifference]:
    if one.kept_summary is None and other.kept_summary is None:
        return []
    outcomes = _outcomes(one), _outcomes(other)
    words = _word_without(one), _word_without(other)
    found = []
    for name in sorted({*outcomes[0], *outcomes[1]}):
        a, b = outcomes[0].get(name, words[0]), outcomes[1].get(name, words[1])
        if a != b:
            found.append(ResourceDifference(resource=name, a=a, b=b))
    return found


def _outcomes(node: NodeRun) -> dict[str, str]:
    """Return the last outcome of each resource."""
    events = [node.events[number] for number in sorted(node.events)]
    return {name_resource(event): str(event.outcome) for event in events}


def _word_without(node: NodeRun) -> str:
    """Return the outcome to show for a resource without an event."""
    return UNKNOWN if node.kept_summary is None or node.lacking else NO_EVENT
