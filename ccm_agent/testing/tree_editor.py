"""A fake `TreeEditor` with preset comparison results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import TreeDifference, TreeSpec


class FakeTreeEditor:
    """
    A `TreeEditor` with preset comparison results by path. After `sync`, a directory has no pending changes.

    Args:
        looks: The comparison results by path. Any other path is absent and has no pending changes.

    Attributes:
        looks: The current comparison results, which `sync` changes.
        looked_at: The specs in each `look` call.
        synced: The specs and comparison results that were passed to `sync`.
        refuses: Errors by path. `sync` of one of these paths raises its error.
    """

    def __init__(self, looks: Mapping[str, TreeDifference] | None = None) -> None:
        self.looks = dict(looks or {})
        self.looked_at: list[tuple[TreeSpec, ...]] = []
        self.synced: list[tuple[TreeSpec, TreeDifference]] = []
        self.refuses: dict[str, str] = {}

    async def look(self, specs: Sequence[TreeSpec]) -> list[TreeDifference]:
        """See `TreeEditor.look`."""
        self.looked_at.append(tuple(specs))
        return [self.looks.get(spec.path, TreeDifference()) for spec in specs]

    async def sync(self, spec: TreeSpec, look: TreeDifference) -> None:
        """See `TreeEditor.sync`."""
        if spec.path in self.refuses:
            raise FileError(self.refuses[spec.path])
        self.synced.append((spec, look))
        self.looks[spec.path] = TreeDifference(kind="absent" if spec.is_absent else "directory", mode=0o755)
