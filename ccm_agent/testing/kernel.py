"""A fake `Kernel` in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import KernelValue


class FakeKernel:
    """
    A `Kernel` in memory.

    Args:
        values: Values by path.

    Attributes:
        values: Values by path.
        refuses: Errors by path. Setting one of these parameters raises its error.
        unreadable: Errors by path. Reading one of these parameters raises its error.
        is_read_only: Whether parameters are read-only, as in a container.
        looked_at: The paths of each `read` call.
    """

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.values = dict(values or {})
        self.refuses: dict[str, str] = {}
        self.unreadable: dict[str, str] = {}
        self.is_read_only = False
        self.looked_at: list[tuple[str, ...]] = []

    async def read(self, paths: Sequence[str]) -> list[KernelValue]:
        """See `Kernel.read`."""
        self.looked_at.append(tuple(paths))
        return [self._read(path) for path in paths]

    async def set(self, path: str, value: str) -> None:
        """See `Kernel.set`."""
        if path not in self.values:
            raise FileError(f"{path} cannot be set: the kernel has no such parameter")
        if why := self.refuses.get(path):
            raise FileError(f"{path} cannot be set: {why}")
        # the kernel separates numbers with tabs
        self.values[path] = "\t".join(value.split())

    def _read(self, path: str) -> KernelValue:
        if path in self.unreadable:
            return KernelValue(path=path, exists=True, error=self.unreadable[path])
        value = self.values.get(path)
        if value is None:
            return KernelValue(path=path)
        return KernelValue(path=path, value=value, exists=True, is_read_only=self.is_read_only)
