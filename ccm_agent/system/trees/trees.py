"""Implements the ports `Trees` and `TreeEditor` for this host. Each method runs in a single call of a thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from ccm_agent.model.ports import Digest, Tree, TreeComparison, TreeDifference, TreeEntry, TreeSpec
from ccm_agent.system.threads import CancelFlag, Threads
from ccm_agent.system.trees import tree_apply, tree_compare, tree_look, tree_sync

T = TypeVar("T")


class SystemTrees:
    """The `Trees` and the `TreeEditor` of this host."""

    def __init__(self) -> None:
        self._threads = Threads("ccm-tree", 2)

    async def read(self, path: str, limit_bytes: int) -> Tree:
        return await self._stoppable(tree_compare.read, path, limit_bytes)

    async def compare(
        self, path: str, wanted: Mapping[str, bytes | Digest], *, is_whole: bool = False
    ) -> TreeComparison:
        return await self._stoppable(tree_compare.compare, path, wanted, is_whole)

    async def write(
        self,
        path: str,
        directories: Sequence[str],
        files: Sequence[TreeEntry],
        *,
        keep: Collection[str] | None = None,
    ) -> tuple[str, ...]:
        return await self._stoppable(tree_apply.write, path, directories, files, keep)

    async def remove(self, path: str, files: Sequence[str]) -> None:
        await self._stoppable(tree_apply.remove, path, files)

    async def look(self, specs: Sequence[TreeSpec]) -> list[TreeDifference]:
        return await self._stoppable(tree_look.look, specs)

    async def sync(self, spec: TreeSpec, look: TreeDifference) -> None:
        await self._stoppable(tree_sync.sync, spec, look)

    async def _stoppable(self, function: Callable[..., T], *args: object) -> T:
        stop = CancelFlag()
        return await self._threads.call(function, *args, stop, on_cancel=stop.set)
