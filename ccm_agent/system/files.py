"""
Implements the `Files` port for this host.

Plain functions in `file_inspection.py`, `atomic_write.py` and `file_attributes.py` do the work, each in a single call of a
thread. Modules that make changes are imported at the first change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ccm_agent.model.ports import ContentRef, DigestLimits, FileInfo
from ccm_agent.system.accounts import group_id, user_id
from ccm_agent.system.file_inspection import read_regular, stat_file
from ccm_agent.system.threads import CancelFlag, Threads

T = TypeVar("T")

OPERATIONS_AT_ONCE = 8


class SystemFiles:
    """The `Files` of this host."""

    def __init__(self) -> None:
        self._threads = Threads("ccm-file", OPERATIONS_AT_ONCE)

    async def inspect(
        self, paths: Sequence[str], *, digest: bool | DigestLimits = True, follow: bool = True
    ) -> list[FileInfo]:
        return await self._stoppable(stat_file, paths, digest, follow)

    async def read(self, path: str, limit_bytes: int) -> bytes:
        return await self._stoppable(read_regular, path, limit_bytes)

    async def write(
        self,
        path: str,
        content: bytes | ContentRef,
        *,
        owner: str = "",
        group: str = "",
        mode: int,
        then_inspect: DigestLimits | None = None,
    ) -> list[FileInfo]:
        return await self._stoppable(
            _write_and_inspect, path, content, owner, group, mode, then_inspect or {}
        )

    async def replace(self, staged: str, path: str, *, owner: str = "", group: str = "", mode: int) -> None:
        from ccm_agent.system.atomic_write import replace_atomically

        await self._threads.call(replace_atomically, staged, path, owner, group, mode)

    async def set_attributes(
        self, path: str, *, owner: str = "", group: str = "", mode: int, directory: bool = False
    ) -> None:
        from ccm_agent.system.file_attributes import make_directory, set_attributes

        function = make_directory if directory else set_attributes
        await self._threads.call(function, path, owner, group, mode)

    async def link(
        self, path: str, target: str, *, owner: str = "", group: str = "", force: bool = False
    ) -> None:
        from ccm_agent.system.atomic_write import link_atomically

        await self._threads.call(link_atomically, path, target, owner, group, force)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        from ccm_agent.system.file_attributes import remove

        await self._stoppable(remove, path, recursive)

    async def ids(self, owner: str, group: str) -> tuple[int, int]:
        return await self._threads.call(lambda: (user_id(owner), group_id(group)))

    async def _stoppable(self, function: Callable[..., T], *args: object) -> T:
        stop = CancelFlag()
        return await self._threads.call(function, *args, stop, on_cancel=stop.set)


def _write_and_inspect(
    path: str,
    content: bytes | ContentRef,
    owner: str,
    group: str,
    mode: int,
    then_inspect: DigestLimits,
    stop: CancelFlag,
) -> list[FileInfo]:
    from ccm_agent.system.atomic_write import write_atomically

    write_atomically(path, content, owner, group, mode, stop)
    return stat_file(list(then_inspect), then_inspect, True, stop) if then_inspect else []
