"""Directory trees whose looks a test decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import TreeDifference, TreeSpec


class FakeTreeEditor:
    """
    A `TreeEditor` with looks by path. A directory that was synced has no changes left.

    Args:
        looks: The looks; any other path is absent and has no changes.

    Attributes:
        looks: As given, and as left by `sync`.
        looked_at: The specs of each `look` call.
        synced: The specs and looks that were carried out.
        refuses: Errors by path; `sync` fails with it.
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
