"""A fake `KeyFiles` in memory."""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import KeyFile, KeyPlace


class FakeKeyFiles:
    """
    A `KeyFiles` in memory.

    Attributes:
        files: The SSH key files by home directory.
        looks: The home directories in each `look` call.
        writes: The files that were written, in order.
    """

    def __init__(self) -> None:
        self.files: dict[str, KeyFile] = {}
        self.looks: list[tuple[str, ...]] = []
        self.writes: list[tuple[KeyPlace, bytes | None]] = []

    async def look(self, homes: Sequence[KeyPlace]) -> list[KeyFile]:
        """See `KeyFiles.look`."""
        self.looks.append(tuple(home.path for home in homes))
        return [self.files.get(home.path, KeyFile()) for home in homes]

    async def write(self, home: KeyPlace, content: bytes | None) -> None:
        """See `KeyFiles.write`."""
        found = self.files.get(home.path, KeyFile())
        if found.error:
            raise FileError(found.error)
        self.writes.append((home, content))
        self.files[home.path] = KeyFile(content=content)
