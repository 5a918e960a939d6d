"""The Protocol of file providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ccm_agent.resources.changes import FileChange
from ccm_agent.resources.contract import Provider
from ccm_agent.resources.file.model import FileProperties, FileState


class FileProvider(Provider[FileProperties, FileState], Protocol):
    """
    Reads and changes files.

    `status` MUST follow a symlink at the end of the path. It MUST fail if the path is neither a file nor a directory. No other
    method may follow such a symlink. All methods raise HostError if the operating system refuses an operation.
    """

    async def compare(self, wanted: FileProperties, found: FileState) -> Sequence[FileChange]:
        """
        Return the content before and after the change, for a diff. Empty if both contents are empty.

        Args:
            wanted, found: The resource, and its state before the change.
        """
        ...

    async def store(self, wanted: FileProperties) -> FileState | None:
        """
        Write the file atomically, with owner, group and mode. If no content is managed, write an empty file.

        Return the resulting state, in the form of `status`. None if it was not read.
        """
        ...

    async def set_attributes(self, wanted: FileProperties) -> None:
        """Set owner, group and mode of the file, but not its content. A symlink is refused."""
        ...

    async def create_directory(self, wanted: FileProperties) -> None:
        """
        Create the directory and its parents, and set its owner, group and mode. A symlink that does not lead to a directory is
        replaced.
        """
        ...

    async def remove(self, wanted: FileProperties) -> None:
        """Remove the file or directory. A directory that is not empty requires `force`."""
        ...
