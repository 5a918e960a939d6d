"""
The shape of each JSON document that `ccm agent`, `ccm import`, `ccm join` and `ccm registration` print with `--json`. Schemas are
generated from it.

A field that is UNSET by default can be left out. Nothing imports this module at run time.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from ccm_agent.model.records.host_import import LeftOutResource
from ccm_agent.model.records.maintenance import ResourceLock
from ccm_agent.model.wire import AssignmentState, Disabled, Progress

Time = Annotated[datetime, Meta(tz=True)]

Notified = Annotated[
    Literal["knows", "soon", "off"],
    Meta(
        description="`knows`: the agent applied the change; `soon`: the agent did not answer, and reads the change within "
        "seconds; `off`: no agent is running; the next one reads the change."
    ),
]


class QueuedRunStatus(Struct, frozen=True, kw_only=True):
    """A queued run."""

    run: Annotated[str, Meta(description="Id of the run.")]
    name: Annotated[str, Meta(description="Name of the manifest or resource.")]


class SpoolStatus(Struct, frozen=True, kw_only=True):
    """Events that are waiting for the broker."""

    bytes: Annotated[int, Meta(description="Their size on disk.")]
    events: Annotated[int | UnsetType, Meta(description="Their number.")] = UNSET
    lost: Annotated[
        int | UnsetType, Meta(description="Number of events dropped because the spool was full.")
    ] = UNSET
    trouble: Annotated[
        str | UnsetType, Meta(description="Why events cannot be written to disk; empty if they can.")
    ] = UNSET


class ManifestStatus(Struct, frozen=True, kw_only=True):
    """A manifest in the agent's configuration."""

    name: Annotated[str, Meta(description="Its source, without credentials.")]
    digest: Annotated[
        str, Meta(description="SHA-256 of the manifest that was applied last; empty if none was.")
    ]
    trouble: Annotated[str, Meta(description="Why it cannot be read; empty if it can.")]
    next: Annotated[Time | None, Meta(description="When it is applied next; null if that is not known.")]


class PolicyStatus(Struct, frozen=True, kw_only=True):
    """The node's policy."""

    path: Annotated[str, Meta(description="The file.")]
    digest: Annotated[str | UnsetType, Meta(description="SHA-256 of the file.")] = UNSET
    rules: Annotated[int | UnsetType, Meta(description="Number of rules.")] = UNSET
    trouble: Annotated[str | UnsetType, Meta(description="Why the policy cannot be used.")] = UNSET


class AgentStatus(Struct, frozen=True, kw_only=True):
    """The status of the local agent. If the agent is not running, its last saved status."""

    node: Annotated[str, Meta(description="Name of the node; empty if no agent has run.")]
    running: Annotated[
        bool,
        Meta(description="Whether the agent answered. If not, most fields are from its last saved status."),
    ]
    connected: Annotated[bool, Meta(description="Whether the agent is connected to the broker.")]
    disabled: Annotated[
        Disabled | None,
        Meta(description="Why the node makes no changes, since and until when; null if it is enabled."),
    ]
    spool: Annotated[SpoolStatus, Meta(description="Events that wait for the broker.")]
    holder: Annotated[
        int | UnsetType,
        Meta(description="If no agent answered: the process that has locked the state directory, or 0."),
    ] = UNSET
    pid: Annotated[int | UnsetType, Meta(description="Process id of the agent.")] = UNSET
    version: Annotated[str | UnsetType, Meta(description="Version of the agent.")] = UNSET
    started: Annotated[Time | UnsetType | None, Meta(description="When the agent started.")] = UNSET
    time: Annotated[Time | UnsetType, Meta(description="Time of this status.")] = UNSET
    run: Annotated[str | UnsetType, Meta(description="Id of the current run; empty without one.")] = UNSET
    name: Annotated[
        str | UnsetType, Meta(description="Name of its manifest or resource; empty without a run.")
    ] = UNSET
    stopping: Annotated[
        str | UnsetType,
        Meta(
            description="The operator who stopped the current run. The run ends after its current resource."
        ),
    ] = UNSET
    progress: Annotated[
        Progress | UnsetType | None, Meta(description="Progress of the current run; null without one.")
    ] = UNSET
    waits_for: Annotated[
        dict[str, str] | UnsetType, Meta(description="Locks that the run waits for, each with its owner.")
    ] = UNSET
    waiting: Annotated[
        list[QueuedRunStatus] | UnsetType, Meta(description="Runs that wait for their turn.")
    ] = UNSET
    trouble: Annotated[
        str | UnsetType, Meta(description="Why events cannot be published; empty if they can.")
    ] = UNSET
    scopes: Annotated[
        list[str] | UnsetType,
        Meta(description="Scopes of the subjects on which the agent receives requests."),
    ] = UNSET
    assigned: Annotated[
        dict[str, Any] | UnsetType, Meta(description="Facts that operators assigned to the node.")
    ] = UNSET
    refused_facts: Annotated[
        str | UnsetType, Meta(description="Why assigned facts were refused; empty if they were not.")
    ] = UNSET
    last_run: Annotated[
        str | UnsetType, Meta(description="Id of the newest finished run; empty without one.")
    ] = UNSET
    last_state: Annotated[str | UnsetType, Meta(description="Its end state.")] = UNSET
    last_time: Annotated[Time | UnsetType | None, Meta(description="When it ended.")] = UNSET
    conflict: Annotated[
        str | UnsetType,
        Meta(description="Conflict of the node's assignments or identity; empty if there is none."),
    ] = UNSET
    plans_only: Annotated[
        str | UnsetType,
        Meta(
            description="Why the node accepts only plans: no administrator has confirmed its signers list for too long."
        ),
    ] = UNSET
    wrong_clock: Annotated[
        str | UnsetType,
        Meta(
            description="Why the clock is considered slow. The node then refuses new requests and documents. Otherwise empty."
        ),
    ] = UNSET
    refresh_pending: Annotated[
        list[str] | UnsetType, Meta(description="Resources with pending refreshes, each with its origin.")
    ] = UNSET
    manifests: Annotated[
        list[ManifestStatus] | UnsetType, Meta(description="The manifests of the agent's configuration.")
    ] = UNSET
    assignments: Annotated[
        dict[str, AssignmentState] | UnsetType, Meta(description="The status of each assignment, by name.")
    ] = UNSET
    locks: Annotated[
        list[ResourceLock] | UnsetType, Meta(description="The resources that operators locked.")
    ] = UNSET
    policy: Annotated[
        PolicyStatus | UnsetType | None, Meta(description="The node's policy; null without one.")
    ] = UNSET


class DisableOutput(Struct, frozen=True, kw_only=True):
    """How the node is disabled, and whether the agent is informed."""

    disabled: Annotated[Disabled, Meta(description="Since and until when, why, and by whom.")]
    agent: Notified


class EnableOutput(Struct, frozen=True, kw_only=True):
    """Whether this command enabled the node, and whether the agent is informed."""

    was_disabled: Annotated[bool, Meta(description="Whether the node was disabled.")]
    agent: Notified


class JoinOutput(Struct, frozen=True, kw_only=True):
    """A node that belongs to a fleet."""

    node: Annotated[str, Meta(description="Its name.")]
    joined: Annotated[bool, Meta(description="Whether the node joined now; false if it had already joined.")]
    expires: Annotated[
        int | None, Meta(description="When its credentials expire, in seconds since 1970; null for never.")
    ]
    config: Annotated[str, Meta(description="The agent's configuration.")]
    next: Annotated[str, Meta(description="The command that starts the agent.")]


class LeaveOutput(Struct, frozen=True, kw_only=True):
    """A host that has left its fleet."""

    node: Annotated[str, Meta(description="Its name.")]
    left: Annotated[bool, Meta(description="Whether it was in a fleet.")]
    told: Annotated[
        bool, Meta(description="Whether the fleet was notified; if not, see `reason` and `next`.")
    ]
    reason: Annotated[str | None, Meta(description="Why the fleet was not notified.")]
    removed: Annotated[list[str], Meta(description="Files that were removed.")]
    kept: Annotated[list[str], Meta(description="Files that were kept.")]
    next: Annotated[list[str], Meta(description="Commands that an operator must run.")]


class ImportedResource(Struct, frozen=True, kw_only=True):
    """A resource in the manifest."""

    type: Annotated[str, Meta(description="Its type.")]
    name: Annotated[str, Meta(description="Its name.")]


class ImportOutput(Struct, frozen=True, kw_only=True):
    """The resources that `ccm import` wrote or left out."""

    out: Annotated[str, Meta(description="The folder.")]
    resources: Annotated[list[ImportedResource], Meta(description="The resources of the manifest, in order.")]
    left_out: Annotated[
        list[LeftOutResource], Meta(description="Resources that the manifest does not manage.")
    ]


class RegisteredService(Struct, frozen=True, kw_only=True):
    """An instance of a service."""

    cluster: Annotated[str, Meta(description="Cluster the service belongs to.")]
    service: Annotated[str, Meta(description="Service name.")]
    protocol: Annotated[str, Meta(description="Protocol of the service.")]
    address: Annotated[str, Meta(description="Address of the instance.")]
    port: Annotated[int | str | None, Meta(description="Port number; null without one.")]
    priority: Annotated[int, Meta(description="Priority among instances; 1 to 255, lower is preferred.")]
    annotations: Annotated[dict[str, str] | UnsetType, Meta(description="Annotations of the instance.")] = (
        UNSET
    )
    ttl: Annotated[
        str | UnsetType, Meta(description="Lifetime of the entry without renewal, or `never`.")
    ] = UNSET


class RegistrationChangeOutput(Struct, frozen=True, kw_only=True):
    """A new, renewed or removed instance."""

    action: Annotated[Literal["register", "remove"], Meta(description="The change.")]
    entry: Annotated[RegisteredService, Meta(description="Last known state of the instance.")]
    reason: Annotated[
        str | UnsetType,
        Meta(
            description="Why it was removed: `MaxAge`, `Remove` or `Purge` as the broker reports, or `Gone`."
        ),
    ] = UNSET
