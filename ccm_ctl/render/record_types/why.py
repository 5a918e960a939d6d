"""The record of `ccmctl why --json`."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from ccm_agent.model.outcome import FailedResource, SessionSummary
from ccm_agent.model.wire import AgentEvent
from ccm_ctl.render.record_types.assignments import StandingFields
from ccm_ctl.render.record_types.line import Time
from ccm_ctl.render.record_types.nodes import NodeFields


class NextCommand(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command that helps."""

    command: Annotated[str, Meta(description="The command.")]
    purpose: Annotated[str, Meta(description="Its purpose.")]
    where: Annotated[
        str, Meta(description="The node on which to type it; empty for the operator's machine.")
    ] = ""


class NodeRolloutFields(Struct, frozen=True, kw_only=True):
    """An open rollout that a node is part of."""

    run: Annotated[str, Meta(description="Its run.")]
    action: Annotated[str, Meta(description="Its action.")]
    name: Annotated[str, Meta(description="Its manifest or assignment.")]
    requester: Annotated[str, Meta(description="The operator who started it.")]
    phase: Annotated[str, Meta(description="`running`, `baking` or `paused`.")]
    reason: Annotated[str, Meta(description="Why it is paused.")]
    planned: Annotated[bool, Meta(description="The node has not been asked yet.")]


class WhyLine(NodeFields, frozen=True, kw_only=True, tag="why"):
    """The explanation of a node's state."""

    present: Annotated[bool, Meta(description="The agent is online.")] = False
    reason: Annotated[str, Meta(description="The main reason, as a sentence.")] = ""
    next: Annotated[list[NextCommand], Meta(description="Commands that help, the most useful first.")] = []
    failed: Annotated[list[FailedResource] | None, Meta(description="Resources that failed.")] = None
    summary: Annotated[SessionSummary | None, Meta(description="Summary of the run that failed.")] = None
    assignments: Annotated[
        list[StandingFields] | None, Meta(description="The node's state in each assignment.")
    ] = None
    rollouts: Annotated[
        list[NodeRolloutFields] | None, Meta(description="Open rollouts that it is part of.")
    ] = None
    heard_of: Annotated[Time, Meta(description="When the node was last seen.")] = None
    told: Annotated[
        dict[str, AgentEvent] | None,
        Meta(description="The agent's newest event of each kind, such as `refused`."),
    ] = None
    answered: Annotated[
        str, Meta(description="Whether the agent answered: `answered`, `silent`, `denied` or `not asked`.")
    ] = ""
    status: Annotated[dict[str, Any] | None, Meta(description="The agent's answer.")] = None
