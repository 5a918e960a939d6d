"""The changes that a manifest would make on each node: those in its plan, or all possible ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.model.codec import decode_document
from ccm_agent.model.errors import InputError
from ccm_agent.model.records.slots import Slot, parse_slot
from ccm_agent.model.records.verdicts import BAD
from ccm_agent.model.wire import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ccm_ctl.fleet.runs.node_run import NodeRun
    from ccm_ctl.fleet.runs.proof import RunProof
    from ccm_ctl.fleet.runs.run import Run

QUIET = frozenset({"file"})
"""Types whose changes do not by themselves restart or run anything. A service that subscribes to one is a separate change."""

_DEFAULTS = "defaults"


class PlannedChange(Struct, frozen=True, order=True):
    """
    A resource that would change on a node.

    Attributes:
        resource: `type#name`.
        is_refresh: Whether it would be refreshed, because a resource that it subscribes to would change.
        slot: The slot that it needs, or "".
    """

    resource: str
    is_refresh: bool = False
    slot: str = ""

    @property
    def is_quiet(self) -> bool:
        """Whether the change itself interrupts no service."""
        return self.resource.partition("#")[0] in QUIET


class NodeChange(Struct, frozen=True, kw_only=True):
    """
    A node that would change.

    Attributes:
        node: Its name.
        is_known: Whether its plan shows the changes. Otherwise every resource of the manifest may change.
        changes: The known or possible changes.
        reason: The reason why the changes are unknown, such as the end state of its plan. "": they are known.
    """

    node: str
    is_known: bool = True
    changes: tuple[PlannedChange, ...] = ()
    reason: str = ""

    @property
    def slots(self) -> frozenset[str]:
        """The slots, one of which it holds while it changes. Empty: it may change without a slot."""
        loud = [one for one in self.changes if not one.is_quiet]
        return frozenset(one.slot for one in loud) if loud and all(one.slot for one in loud) else frozenset()


class ManifestResources(Struct, frozen=True, kw_only=True):
    """
    The resources of a manifest that are known without a node.

    Attributes:
        slots: The slot of each `type#name`. "": it needs no slot.
        is_complete: Whether these are all resources. Otherwise the list is a template, or cannot be read.
    """

    slots: dict[str, str] = {}
    counts: dict[str, int] = {}
    is_complete: bool = False

    @property
    def any_change(self) -> tuple[PlannedChange, ...]:
        """Return the possible changes on a node whose plan is unknown."""
        if not self.is_complete:
            return ()
        return tuple(PlannedChange(resource, slot=slot) for resource, slot in sorted(self.slots.items()))


def read_resources(manifest: str) -> ManifestResources:
    """Return the resources that a manifest declares, and their slots. Resources of child manifests are not included."""
    try:
        document = decode_document(manifest)
    except InputError:
        return ManifestResources()
    section = document.get("ccm") if isinstance(document, dict) else None
    listed = section.get("resources") if isinstance(section, dict) else None
    if not isinstance(listed, list):
        return ManifestResources()
    slots: dict[str, str] = {}
    counts: dict[str, int] = {}
    for resource, slot in _slots_of(listed):
        if slot is not None:
            # each node uses the count in its own manifest, so the largest count is assumed
            counts[slot.name] = max(counts.get(slot.name, 0), slot.count)
        name = slot.name if slot is not None else ""
        slots[resource] = name if slots.get(resource, name) == name else ""
    return ManifestResources(slots=slots, counts=counts, is_complete=True)


def changes_of_run(run: Run, proof: RunProof | None, resources: ManifestResources) -> list[NodeChange]:
    """
    Return the nodes that would change, from the plan of each node.

    A node may change everything if its plan did not end, or if its events are missing or not genuine. Offline nodes are not in
    the result.
    """
    found = []
    for node in run.expected:
        reason = _doubt(node, proof)
        if node.state is NodeState.OFFLINE or (node.state is NodeState.STABLE and not reason):
            continue
        found.append(
            NodeChange(node=node.node, changes=tuple(_planned(node, resources)))
            if not reason
            else assume_change(node.node, resources, reason)
        )
    return found


def assume_change(node: str, resources: ManifestResources, reason: str) -> NodeChange:
    """Return the possible changes of a node whose plan is unknown."""
    return NodeChange(node=node, is_known=False, changes=resources.any_change, reason=reason)


def _doubt(node: NodeRun, proof: RunProof | None) -> str:
    """Return why the plan of a node does not show the changes, or "" if it does."""
    if node.state not in (NodeState.CHANGED, NodeState.STABLE):
        return str(node.state)
    if proof is not None:
        report = proof.report(node.node, len(node.lacking))
        if report.forged or report.verdict in BAD:
            return "not genuine"
    summary = node.summary
    if node.lacking or summary is None or any(one.unknown for one in node.events.values()):
        return "incomplete"
    return ""


def _planned(node: NodeRun, resources: ManifestResources) -> Iterator[PlannedChange]:
    for event in node.events.values():
        if event.changed or event.refreshed:
            resource = f"{event.type}#{event.name}"
            slot = "" if event.parent else resources.slots.get(resource, "")
            yield PlannedChange(resource, event.refreshed, slot)


def _slots_of(listed: Iterable[Any]) -> Iterator[tuple[str, Slot | None]]:
    """Return `type#name` and slot of each resource in a list, for both forms of an entry."""
    for entry in listed:
        for kind, body in (entry if isinstance(entry, dict) else {}).items():
            if isinstance(body, dict):
                yield f"{kind}#{body.get('name')}", _slot_of(body, {})
                continue
            items = [item for item in (body if isinstance(body, list) else ()) if isinstance(item, dict)]
            defaults: object = next((item[_DEFAULTS] for item in items if _DEFAULTS in item), {})
            for item in items:
                for name, own in item.items():
                    if name != _DEFAULTS:
                        yield f"{kind}#{name}", _slot_of(own, defaults)


def _slot_of(own: object, defaults: object) -> Slot | None:
    text = _control(own).get("slots", _control(defaults).get("slots", ""))
    try:
        return parse_slot(str(text)) if text else None
    except InputError:
        return None


def _control(properties: object) -> Mapping[str, Any]:
    control = properties.get("control") if isinstance(properties, dict) else None
    return control if isinstance(control, dict) else {}
