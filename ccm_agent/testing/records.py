"""A fake `Records` in memory."""

from __future__ import annotations


class FakeRecords:
    """
    A `Records` in memory.

    Attributes:
        documents: The stored documents, by kind and key.
    """

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str], bytes] = {}

    async def recall(self, kind: str, key: str) -> bytes | None:
        """See `Records.recall`."""
        return self.documents.get((kind, key))

    async def keep(self, kind: str, key: str, document: bytes | None) -> None:
        """See `Records.keep`."""
        self.documents.pop((kind, key), None)
        if document is not None:
            self.documents[kind, key] = document
