"""
The assignments of an agent, put together from its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from ccm_agent.daemon.assigned import AssignedFacts
from ccm_agent.daemon.assigning import Assigning, Ground
from ccm_agent.daemon.assignment_source import AssignmentSource
from ccm_agent.daemon.assignment_states import AssignmentStates
from ccm_agent.daemon.assignment_worker import CAUSE, Shop
from ccm_agent.daemon.assignments import BUCKET
from ccm_agent.daemon.beats import Beats
from ccm_agent.daemon.bulletin import Bulletin
from ccm_agent.daemon.bundles import Bundles
from ccm_agent.daemon.config import Settings
from ccm_agent.daemon.data_buckets import DataBuckets
from ccm_agent.daemon.heartbeat import Heartbeat
from ccm_agent.daemon.node_policy import NodePolicy
from ccm_agent.daemon.overlap import Overlap
from ccm_agent.daemon.routing import Routing
from ccm_agent.daemon.stamps import Stamps
from ccm_agent.daemon.standing import Standing
from ccm_agent.daemon.turns import Turns
from ccm_agent.daemon.worker import Workshop
from ccm_agent.daemon.world import Ports


class Parts(Struct, frozen=True, kw_only=True):
    """The parts of an agent that its assignments need."""

    node: str
    settings: Callable[[], Settings]
    ports: Ports
    stamps: Stamps
    assigned: AssignedFacts
    heartbeat: Heartbeat
    beats: Beats
    bulletin: Bulletin
    turns: Turns
    routing: Routing
    standing: Standing
    policy: NodePolicy
    workshop: Workshop
    bundles: Bundles
    data: DataBuckets


def make_assigning(parts: Parts) -> Assigning:
    """What converges on the assignments of one node."""
    settings, ports, node = parts.settings(), parts.ports, parts.node
    state = Path(settings.state_dir)
    bucket = ports.bucket(BUCKET)
    states = AssignmentStates(
        node, state / "assignment_states.json", ports.clock, lambda soon: _tell(parts, states, soon=soon)
    )
    source = AssignmentSource(node, bucket, parts.stamps, state / "assignments.json", parts.bulletin.refused)
    shop = Shop(
        node=node,
        settings=parts.settings,
        turns=parts.turns,
        clock=ports.clock,
        states=states,
        unpack=parts.bundles.unpacked,
        fetch_pinned=parts.data.fetch_pinned,
        keep=partial(_keep, parts.data, source),
        bucket=ports.bucket,
        on_connect=ports.link.on_connect,
        is_disabled=parts.standing.disabling.is_disabled,
        metrics=parts.workshop.metrics,
        refusal=parts.standing.refusal,
        forbids=lambda known, action: parts.policy.refusal(known.asked_by, CAUSE, action),
        on_refused=parts.bulletin.refused,
        on_drift=parts.bulletin.drifted,
    )
    return Assigning(
        Ground(
            shop=shop,
            bucket=bucket,
            source=source,
            link=ports.link,
            scopes=lambda: parts.routing.scopes,
            facts=parts.workshop.facts,
            matches=partial(_matches, parts),
            overlap=Overlap(
                node,
                parts.workshop.engine,
                parts.bundles.unpacked,
                parts.workshop.external_data,
                lambda known: parts.policy.ruling(known.asked_by, CAUSE, "apply").grant,
            ),
            bundles=parts.bundles,
            data=parts.data,
            assigned=lambda: parts.assigned.facts,
            folder=state / "converged",
            on_conflict=partial(_complain, parts),
        )
    )


async def _keep(data: DataBuckets, source: AssignmentSource) -> None:
    """Write down which assignments are known, once nothing is on disk that was pinned before them."""
    await data.drop_unused()
    await source.keep()


async def _matches(parts: Parts, targets: list[str], where: str, facts: Mapping[str, Any]) -> bool:
    return await parts.ports.matches(targets, where, parts.node, facts)


def _tell(parts: Parts, states: AssignmentStates, *, soon: bool) -> None:
    parts.heartbeat.record.assignments = dict(states.told)
    if soon:
        parts.beats.soon()


def _complain(parts: Parts, sentence: str) -> None:
    parts.heartbeat.complain("assignments", sentence)
    parts.beats.soon()
