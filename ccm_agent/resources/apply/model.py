"""What an apply resource says, and what came of it."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from ccm_agent.model.resource import CommonProperties, CommonState


class ApplyProperties(CommonProperties, kw_only=True, omit_defaults=True):
    """A child manifest; `name` is its file, relative to the directory of the manifest that it stands in."""

    noop: Annotated[
        bool,
        Meta(description="Change nothing in the child manifest. `false` does not disable noop of the run."),
    ] = False
    health_check_only: Annotated[
        bool,
        Meta(
            description="Run only the child's health checks. `false` does not disable monitor-only of the run."
        ),
    ] = False
    # a factory, so that events show it, as the reference's do
    allow_apply: Annotated[
        bool, Meta(description="Whether the child manifest may contain `apply` resources.")
    ] = field(default_factory=lambda: True)
    data: Annotated[
        dict[str, Any] | None,
        Meta(
            description="Data that overrides the child's own. Without it the child uses this manifest's data."
        ),
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
