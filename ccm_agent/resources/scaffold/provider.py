"""What a scaffold provider can do."""

from __future__ import annotations

from typing import Protocol

from ccm_agent.resources.scaffold.model import ScaffoldProperties, ScaffoldState


class ScaffoldProvider(Protocol):
    """Renders directories of templates. One template that fails leaves every file as it is."""

    async def status(self, wanted: ScaffoldProperties) -> ScaffoldState:
        """What is rendered, and how what is there compares with it; no `post` command runs."""
        ...

    async def render(self, wanted: ScaffoldProperties) -> None:
        """
        Write the files that differ, each after the `post` commands that it matches, and purge if that is wanted.

        The directory is made even when nothing is rendered; nothing is purged then.
        """
        ...

    async def remove(self, wanted: ScaffoldProperties) -> None:
        """Remove the scaffold's files, the directories that are empty for it, and the directory itself if it is."""
        ...
