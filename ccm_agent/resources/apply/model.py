"""What an apply resource says, and what came of it."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from ccm_agent.model.resource import CommonProperties, CommonState


class ApplyProperties(CommonProperties, kw_only=True, omit_defaults=True):
    """A child manifest; `name` is its file, relative to the directory of the manifest that it stands in."""

    noop: Annotated[
        bool, Meta(description="Change nothing in the child; a run under noop cannot be weakened.")
    ] = False
    health_check_only: Annotated[
        bool, Meta(description="Run the child's health checks and nothing else; likewise.")
    ] = False
    # a factory, so that events show it, as the reference's do
    allow_apply: Annotated[bool, Meta(description="Whether the child may hold apply resources.")] = field(
        default_factory=lambda: True
    )
    data: Annotated[
        dict[str, Any] | None,
        Meta(description="Data over the child's own; without it the child sees this manifest's data."),
    ] = None


class ApplyState(CommonState, kw_only=True, omit_defaults=False):
    """
    What became of a child's resources.

    Attributes:
        resource_count: How many it holds.
        changed_count, failed_count: How many changed, and failed or had unmet requirements.
        announced: Its changes were not made, as it ran under noop. Ours; Choria CCM does not know it.
    """

    resource_count: int = 0
    changed_count: int = 0
    failed_count: int = 0
    announced: bool = False
