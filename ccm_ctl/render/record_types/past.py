"""The records about the past: sessions and states of a node, and differences of runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from ccm_agent.model.outcome import SessionSummary
from ccm_ctl.render.record_types.line import (
    Line,
    Manifest,
    Node,
    Origin,
    Requester,
    RequesterMessage,
    Run,
    Text,
    Time,
    Verdict,
)


class SessionLine(Line, frozen=True, kw_only=True, tag="session"):
    """A session in the history of a node."""

    node: Node
    run: Run
    time: Annotated[datetime, Meta(tz=True, description="When its first event was stored.")]
    cause: Annotated[Text, Meta(description="Its cause: `request`, `schedule`, `assignment` or `node`.")] = (
        None
    )
    origin: Origin = None
    requester: Requester = None
    message: RequesterMessage = None
    manifest: Manifest = None
    state: Annotated[str, Meta(description="Its result; `running` if no end is known.")]
    events: Annotated[
        list[Annotated[Any, Meta(extra_json_schema={"type": "object"})]],
        Meta(description="The events of resources, as on the bus, without forged ones."),
    ]
    summary: Annotated[SessionSummary | None, Meta(description="The node's summary.")] = None
    verdict: Verdict = None


class StateLine(Line, frozen=True, kw_only=True, tag="state"):
    """The state of a resource of a node, now or at a time."""

    node: Node
    manifest: Manifest = None
    resource: Annotated[str, Meta(description="`type#name`, after the parents of a nested resource.")]
    ensure: Annotated[Text, Meta(description="Its `ensure` at the end of that session.")] = None
    outcome: Annotated[str, Meta(description="Its last outcome, such as `changed` or `failed`.")]
    time: Annotated[datetime, Meta(tz=True, description="When that session started.")]
    run: Run
    changed: Annotated[Time, Meta(description="When it was changed last.")] = None
    changed_run: Annotated[Text, Meta(description="Id of the run that changed it last.")] = None
    status: Annotated[Any, Meta(description="Its state at the end of that session.")] = None


class NodeOutcomeFields(Struct, frozen=True, kw_only=True):
    """One node in one of two runs."""

    state: Annotated[str, Meta(description="State of the node; `absent` if it is not in the run.")]
    reason: Annotated[str, Meta(description="The reason.")] = ""


class ResourceDifferenceFields(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource with different outcomes."""

    resource: Annotated[str, Meta(description="`type#name`.")]
    a: Annotated[str, Meta(description="Outcome in the first run, or `no event` or `unknown`.")]
    b: Annotated[str, Meta(description="Outcome in the second run.")]


class DifferenceLine(Line, frozen=True, kw_only=True, tag="difference"):
    """How the results of two runs differ on a node."""

    node: Node
    runs: Annotated[list[str], Meta(description="Ids of the two runs.")]
    a: Annotated[NodeOutcomeFields, Meta(description="The node in the first run.")]
    b: Annotated[NodeOutcomeFields, Meta(description="The node in the second run.")]
    resources: Annotated[
        list[ResourceDifferenceFields], Meta(description="Resources with different outcomes.")
    ] = []
