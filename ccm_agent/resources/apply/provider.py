"""The Protocol of apply providers."""

from __future__ import annotations

from typing import Protocol

from ccm_agent.resources.apply.model import ApplyProperties, ApplyState


class ApplyProvider(Protocol):
    """Applies child manifests."""

    async def status(self, wanted: ApplyProperties) -> ApplyState:
        """Return an empty state: only applying a child shows what it changes."""
        ...

    async def apply_manifest(self, wanted: ApplyProperties) -> ApplyState:
        """
        Apply the child and record the outcomes of its resources.

        Raises:
            DesiredStateError: Some of its resources failed.
            CcmError: The child could not be loaded, or ended early.
        """
        ...
