"""Properties and state of an apply resource."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, field

from ccm_agent.model.resource import CommonProperties, CommonState


class ApplyProperties(CommonProperties, kw_only=True, omit_defaults=True):
    """A child manifest. `name` is its file, relative to the directory of the parent manifest."""

    noop: Annotated[
        bool,
        Meta(description="Change nothing in the child manifest. `false` does not override a noop run."),
    ] = False
    health_check_only: Annotated[
        bool,
        Meta(description="Run only the child's health checks. `false` does not override a monitor-only run."),
    ] = False
    # a default factory, so that events include the default, as the events of Choria CCM do
    allow_apply: Annotated[
        bool, Meta(description="Whether the child manifest may contain `apply` resources.")
    ] = field(default_factory=lambda: True)
    data: Annotated[
        dict[str, Any] | None,
        Meta(description="Data that overrides the child's own. Default: this manifest's data."),
    ] = None


class ApplyState(CommonState, kw_only=True, omit_defaults=False):
    """
    The outcomes of a child's resources.

    Attributes:
        resource_count: The number of resources.
        changed_count, failed_count: The number of resources that changed, and that failed or had unmet requirements.
        announced: Whether the child ran under noop and therefore made no changes. Choria CCM does not have this field.
    """

    resource_count: int = 0
    changed_count: int = 0
    failed_count: int = 0
    announced: bool = False
