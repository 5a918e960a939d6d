"""What a provider of files can do."""

from __future__ import annotations

from typing import Protocol

from ccm_agent.resources.contract import Provider
from ccm_agent.resources.file.model import FileProperties, FileState


class FileProvider(Provider[FileProperties, FileState], Protocol):
    """
    Looks at files and changes them.

    `status` MUST look through a symlink at the end of the path, and fail for what is neither file nor directory. No verb may
    follow one. All of them raise HostError when the host refuses.
    """

    async def store(self, wanted: FileProperties) -> None:
        """Write the file, whole or not at all, with owner, group and mode; empty when no content is managed."""
        ...

    async def set_attributes(self, wanted: FileProperties) -> None:
        """Set owner, group and mode of the file, and leave its content alone; a symlink is refused."""
        ...

    async def create_directory(self, wanted: FileProperties) -> None:
        """Make the directory and those above it, and set its owner, group and mode. A symlink to no directory gives way."""
        ...

    async def remove(self, wanted: FileProperties) -> None:
        """Remove what is there; a directory that holds something only with `force`."""
        ...
