"""Applies child manifests in this program's own format."""

from __future__ import annotations

from ccm_agent.model.errors import DesiredStateError
from ccm_agent.model.resource import PRESENT
from ccm_agent.resources.apply.model import ApplyProperties, ApplyState
from ccm_agent.resources.contract import ChildManifest, ResourceContext


class CcmManifest:
    """
    The provider `ccmmanifest`: applies child manifests.

    Args:
        context: Runs the child.
    """

    def __init__(self, context: ResourceContext) -> None:
        self._context = context

    async def status(self, wanted: ApplyProperties) -> ApplyState:
        """Return an empty state. The changes of a child are only known after it was applied."""
        return _state(wanted)

    async def apply_manifest(self, wanted: ApplyProperties) -> ApplyState:
        """
        Apply the child and record the outcomes of its resources.

        Raises:
            DesiredStateError: Some resources of the child failed.
            CcmError: The child could not be loaded, or ended early.
        """
        child = ChildManifest(
            path=wanted.name,
            noop=wanted.noop,
            health_check_only=wanted.health_check_only,
            allow_apply=wanted.allow_apply,
            data=wanted.data,
            resource=f"apply#{wanted.name}",
        )
        outcome = await self._context.apply_child(child)
        if outcome.failed:
            raise DesiredStateError(f"child manifest had {outcome.failed} failed resources")
        state = _state(wanted)
        state.resource_count, state.changed_count = outcome.resources, outcome.changed
        state.announced = outcome.noop and outcome.changed > 0
        return state


def _state(wanted: ApplyProperties) -> ApplyState:
    return ApplyState(
        protocol="io.choria.ccm.v1.resource.apply.state", type="apply", name=wanted.name, ensure=PRESENT
    )
