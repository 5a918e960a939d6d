"""The records of `ccmctl plan --impact --json`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ccm_ctl.render.record_types.line import Count, Line, OneRun


class ServiceWaveFields(Struct, frozen=True, kw_only=True):
    """The effect of one wave on one service."""

    wave: Annotated[int, Meta(description="Number of the wave, from 0.")]
    name: Annotated[str, Meta(description="Name of the wave; empty without waves.")]
    instances: Annotated[int, Meta(description="Healthy instances on nodes of the wave that would change.")]
    at_once: Annotated[
        int, Meta(description="The largest number of them on nodes that run at the same time.")
    ]
    failed: Annotated[
        int,
        Meta(description="The largest number of others on nodes that can fail without stopping the rollout."),
    ]
    left: Annotated[int, Meta(description="Healthy instances that remain in this worst case.")]
    preferred_left: Annotated[int, Meta(description="The instances among them with the best priority.")]


class ImpactLine(Line, frozen=True, kw_only=True, tag="impact"):
    """The effect of a rollout on one service (`plan --impact`). Services that lose the most come first."""

    cluster: Annotated[str, Meta(description="Cluster of the service.")]
    protocol: Annotated[str, Meta(description="Its protocol.")]
    service: Annotated[str, Meta(description="Its name.")]
    instances: Annotated[
        int, Meta(description="All instances, including expired ones that the broker still lists.")
    ]
    healthy: Annotated[
        int, Meta(description="Instances that are registered now, by at least one node that is not offline.")
    ]
    preferred: Annotated[int, Meta(description="Healthy instances with the best priority.")]
    unplaced: Annotated[
        Count,
        Meta(description="Healthy instances at addresses that no node reports; they are assumed to remain."),
    ] = None
    nodes: Annotated[
        list[str], Meta(description="Nodes that would change and have healthy instances, at most 1,000.")
    ]
    node_count: Annotated[int, Meta(description="The number of these nodes.")]
    left: Annotated[int, Meta(description="Healthy instances that remain in the worst wave.")]
    waves: Annotated[list[ServiceWaveFields], Meta(description="The waves with such nodes, in order.")]


class ImpactWaveFields(Struct, frozen=True, kw_only=True):
    """A wave of the rollout."""

    name: Annotated[str, Meta(description="Name of the wave; empty without waves.")]
    nodes: Annotated[int, Meta(description="Its number of nodes.")]
    changing: Annotated[int, Meta(description="Number of them that would change.")]
    at_once: Annotated[int, Meta(description="Number of its nodes that run at the same time.")]
    may_have_failed: Annotated[
        int,
        Meta(description="Number of nodes that can fail or be lost by then without stopping the rollout."),
    ]


class ImpactResourceFields(Struct, frozen=True, kw_only=True):
    """A resource that would change."""

    resource: Annotated[str, Meta(description="`type#name`.")]
    nodes: Annotated[int, Meta(description="Number of nodes.")]
    refresh: Annotated[bool, Meta(description="Whether it would be refreshed because of a subscription.")]
    slot: Annotated[str | None, Meta(description="The slot that it needs.")]


class ImpactSlotFields(Struct, frozen=True, kw_only=True):
    """A slot of the manifest."""

    slot: Annotated[str, Meta(description="Its name.")]
    count: Annotated[int, Meta(description="Number of nodes that may hold it.")]
    held_by: Annotated[list[str], Meta(description="The nodes that hold it now.")]


class ImpactSummaryLine(Line, frozen=True, kw_only=True, tag="impact_summary"):
    """The last record of `plan --impact`: the totals and their scope. Lists have at most 1,000 items."""

    run: OneRun = None
    services: Annotated[int, Meta(description="Number of services that lose instances.")]
    without_healthy: Annotated[
        int, Meta(description="Number of them that may have no healthy instance left.")
    ]
    left_out: Annotated[Count, Meta(description="Services without a record, because there are too many.")] = (
        None
    )
    changing: Annotated[int, Meta(description="Number of nodes that would change.")]
    unchanged: Annotated[int, Meta(description="Number of nodes that would not.")]
    waves: Annotated[list[ImpactWaveFields], Meta(description="The waves; a single one without a rollout.")]
    assumed: Annotated[
        dict[str, str],
        Meta(description="Nodes that are treated as changed because their plan is unknown, with the reason."),
    ]
    assumed_count: Annotated[int, Meta(description="Their number.")]
    offline: Annotated[list[str], Meta(description="Targets that are offline, and in no wave.")]
    offline_count: Annotated[int, Meta(description="Their number.")]
    unregistered: Annotated[
        list[str], Meta(description="Nodes that would change, without a registered service.")
    ]
    unregistered_count: Annotated[int, Meta(description="Their number.")]
    unplaced: Annotated[list[str], Meta(description="Addresses of healthy instances that no node reports.")]
    unplaced_count: Annotated[int, Meta(description="Their number.")]
    resources: Annotated[list[ImpactResourceFields], Meta(description="The resources that would change.")]
    slots: Annotated[list[ImpactSlotFields], Meta(description="The slots of the manifest.")]
    rollouts: Annotated[list[str], Meta(description="Runs of other rollouts that are not over.")]
