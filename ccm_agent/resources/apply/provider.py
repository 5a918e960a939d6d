"""What a provider of the apply type can do."""

from __future__ import annotations

from typing import Protocol

from ccm_agent.resources.apply.model import ApplyProperties, ApplyState


class ApplyProvider(Protocol):
    """Applies child manifests."""

    async def status(self, wanted: ApplyProperties) -> ApplyState:
        """An empty state: what a child would change is known by applying it."""
        ...

    async def apply_manifest(self, wanted: ApplyProperties) -> ApplyState:
        """
        Apply the child, its resources' outcomes recorded on the way.

        Raises:
            DesiredStateError: Some of its resources failed.
            CcmError: It could not be loaded, or broke off.
        """
        ...
