"""The records about nodes: their known properties, replies, slots and locks."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from ccm_agent.model.records.host_import import LeftOutResource
from ccm_agent.model.wire import Disabled
from ccm_ctl.render.record_types.line import (
    Count,
    Flag,
    Line,
    Machine,
    Message,
    Node,
    OneRun,
    Started,
    Text,
    Time,
    Unverified,
    WrittenAt,
)


class OneOfSeveral(Struct, frozen=True, kw_only=True):
    """One of several agents that use the same identity."""

    machine: Annotated[str, Meta(description="Machine id of its host.")]
    started: Annotated[str, Meta(description="When the agent started.")]


class NodeFields(Line, frozen=True, kw_only=True):
    """The known properties of a node."""

    node: Node
    state: Annotated[
        str,
        Meta(
            description="`present`, `offline`, `expected`, `silent`; `removed` or `reset` by a command; the condition in `why`."
        ),
    ]
    condition: Annotated[
        Text,
        Meta(
            description="The node in one word, as lists, `why` and the dashboard show it: `failed`, `duplicate`, `clock`, "
            "`refused`, `plans only`, `stopped`, `disk`, `expired`, `silent`, `refresh pending`, `undelivered`, `drifted`, "
            "`offline`, `never seen`, `disabled`, `waiting`, `running`, `unassigned` or `converged`."
        ),
    ] = None
    heard: Annotated[
        Time, Meta(description="Its last heartbeat, or when it was last online if it is offline.")
    ] = None
    late: Annotated[Flag, Meta(description="Whether it missed a heartbeat, so that the data may be old.")] = (
        None
    )
    facts: Annotated[dict[str, Any] | None, Meta(description="Routed and assigned facts.")] = None
    version: Annotated[Text, Meta(description="Version of the agent.")] = None
    machine: Machine = None
    started: Started = None
    last_run: Annotated[Text, Meta(description="Id of the newest finished run.")] = None
    last_state: Annotated[Text, Meta(description="Its end state.")] = None
    last_time: Annotated[Time, Meta(description="When it ended.")] = None
    disabled: Annotated[
        Disabled | None, Meta(description="Why the node makes no changes, since and until when.")
    ] = None
    conflict: Annotated[Text, Meta(description="A problem with its identity, policy or assignments.")] = None
    run: Annotated[Text, Meta(description="Id of the current run.")] = None
    signatures: Annotated[Flag, Meta(description="The node obeys only signed requests and documents.")] = None
    plans_only: Annotated[
        Text,
        Meta(description="Why the node accepts only plans: its signers list was not confirmed for too long."),
    ] = None
    disk: Annotated[Text, Meta(description="Why it cannot write its state to disk.")] = None
    wrong_clock: Annotated[
        Text, Meta(description="Why its clock is wrong, so that it refuses signed requests.")
    ] = None
    unverified: Annotated[
        dict[str, str] | None, Meta(description="Entries without a valid signature, with the reason.")
    ] = None
    agents: Annotated[
        list[OneOfSeveral] | None, Meta(description="The agents, if several use this identity.")
    ] = None
    cut_site: Annotated[
        Text, Meta(description="Its site, if there is no contact with its broker, so that the data are old.")
    ] = None


class NodeLine(NodeFields, frozen=True, kw_only=True, tag="node"):
    """A node."""

    assigned: Annotated[dict[str, Any] | None, Meta(description="Assigned facts; in `node show`.")] = None


class SiteLine(Line, frozen=True, kw_only=True, tag="site"):
    """A site with a broker of its own; after the nodes in `node list`."""

    site: Annotated[str, Meta(description="The JetStream domain of its broker.")]
    state: Annotated[str, Meta(description="`connected` or `cut`: no contact for 30 seconds.")]
    contact: Annotated[
        Time, Meta(description="When there was last contact; missing if not since the broker has started.")
    ] = None
    lag: Annotated[
        Count, Meta(description="Number of entries of its nodes that are known and not copied yet.")
    ] = None
    reason: Annotated[Text, Meta(description="The error that the broker reports.")] = None


class ReplyLine(Line, frozen=True, kw_only=True, tag="reply"):
    """A node's reply to `ping`, `disable`, `enable`, `lock`, `unlock` or `run-now`."""

    node: Node
    state: Annotated[
        str,
        Meta(
            description="`accepted` or `refused`; `silent`, `unreachable` or `offline` without an answer; `disabled`, `enabled`, "
            "`locked`, `unlocked`, `not locked`; for `run-now` the worst state among the node's assignments."
        ),
    ]
    seconds: Annotated[float | None, Meta(description="Time until the answer.")] = None
    reason: Annotated[Text, Meta(description="Why the node refused, or which resources were not locked.")] = (
        None
    )
    machine: Machine = None
    started: Started = None
    body: Annotated[
        dict[str, Any] | None,
        Meta(description="The agent's report, such as its version, or how it converged."),
    ] = None


class ImportLine(Line, frozen=True, kw_only=True, tag="import"):
    """A site that `import` wrote."""

    out: Annotated[str, Meta(description="Its folder.")]
    layers: Annotated[dict[str, int], Meta(description="Number of resources by layer.")]
    nodes: Annotated[
        dict[str, str],
        Meta(description="`imported`, `refused`, `silent`, `forged`, `offline` or `unplanned`, by node."),
    ]
    reasons: Annotated[dict[str, str], Meta(description="Why a node is not `imported`.")]
    left_out: Annotated[
        dict[str, list[LeftOutResource]],
        Meta(description="Resources that are left out, by node; the name `*` is a whole type."),
    ]
    plan: Annotated[str, Meta(description="Id of the plan.")]
    changes: Annotated[
        dict[str, dict[str, str]],
        Meta(description="Changes that an apply would make, by node and resource."),
    ]


class FactsLine(Line, frozen=True, kw_only=True, tag="facts"):
    """Facts of a node."""

    node: Node
    path: Annotated[Text, Meta(description="The requested path.")] = None
    facts: Annotated[Any, Meta(description="The facts, or the value at the path.")] = None
    unverified: Unverified = None
    assigned: Annotated[dict[str, Any] | None, Meta(description="All assigned facts after the change.")] = (
        None
    )
    state: Annotated[
        Text, Meta(description="`taken` by the node, `late`, or `waits` because the node is offline.")
    ] = None


class GroupLine(Line, frozen=True, kw_only=True, tag="group"):
    """A saved selector."""

    name: Annotated[str, Meta(description="Its name, for `--targets @NAME`.")]
    targets: Annotated[list[str], Meta(description="The selectors, any of which is enough.")]
    by: Annotated[str, Meta(description="The operator who wrote or removed it.")]
    time: WrittenAt = None
    message: Message = None
    unverified: Unverified = None


class SlotLine(Line, frozen=True, kw_only=True, tag="slot"):
    """A node that holds a slot or waits for it."""

    slot: Annotated[str, Meta(description="Name of the slot.")]
    node: Node
    state: Annotated[str, Meta(description="`held`, `failed` (kept after its resource failed) or `waiting`.")]
    position: Annotated[Count, Meta(description="Place in the queue, from 1.")] = None
    count: Annotated[Count, Meta(description="Number of nodes that may hold it, as set in its manifest.")] = (
        None
    )
    since: Annotated[Time, Meta(description="Since when, by the clock of the node.")] = None
    resource: Annotated[Text, Meta(description="Its resource.")] = None
    run: OneRun = None
    unverified: Unverified = None


class LockLine(Line, frozen=True, kw_only=True, tag="lock"):
    """A lock on a node."""

    node: Node
    resource: Annotated[str, Meta(description="`type#name`; `all` if the node is disabled.")]
    since: Annotated[Time, Meta(description="When it was locked.")] = None
    until: Annotated[
        Time, Meta(description="When the lock ends; missing for a disabled node without an end.")
    ] = None
    by: Annotated[Text, Meta(description="The operator.")] = None
    why: Annotated[Text, Meta(description="The operator's reason.")] = None
