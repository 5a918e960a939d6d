"""The Protocol of scaffold providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.changes import FileChange
from ccm_agent.resources.scaffold.model import ScaffoldProperties, ScaffoldState


class ScaffoldProvider(Protocol):
    """Renders directories of templates. If one template fails, no file changes."""

    async def status(self, wanted: ScaffoldProperties) -> ScaffoldState:
        """Render the templates and compare the directory with the result; no `post` command runs."""
        ...

    async def compare(self, wanted: ScaffoldProperties) -> Sequence[FileChange]:
        """Return the contents of the files that would be written and removed, before and after, for a diff."""
        ...

    async def render(self, wanted: ScaffoldProperties) -> None:
        """
        Write the files that differ, each after its matching `post` commands, and purge if `purge` is set.

        If nothing is rendered, the directory is still created, and nothing is purged.
        """
        ...

    async def remove(self, wanted: ScaffoldProperties) -> None:
        """Remove the scaffold's files, directories that become empty, and the directory itself if it becomes empty."""
        ...
