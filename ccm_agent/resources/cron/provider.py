"""The Protocol of cron providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.changes import FileChange
from ccm_agent.resources.contract import Provider
from ccm_agent.resources.cron.model import CronProperties, CronState


class CronProvider(Provider[CronProperties, CronState], Protocol):
    """Reads and writes the files of jobs. All methods raise HostError if the operating system refuses."""

    async def look_ahead(self, wanted: Sequence[CronProperties]) -> Sequence[CronState | None]:
        """Return what `status` would for each; only files that differ are read."""
        ...

    async def compare(self, wanted: CronProperties) -> Sequence[FileChange]:
        """Return the content of the file before and after, for a diff."""
        ...

    async def write(self, wanted: CronProperties) -> None:
        """Write the job's file atomically; FileError if its user does not exist."""
        ...

    async def remove(self, wanted: CronProperties) -> None:
        """Remove the job's file."""
        ...
