"""
Manages kernel parameters of Linux: files below /proc/sys, and the files that are read at boot.

Source: proc_sys(5), sysctl.d(5).
"""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.model.ports import Files, Kernel, Locks
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.shared_file import SharedFile
from ccm_agent.resources.sysctl.lines import read_values, with_value, without
from ccm_agent.resources.sysctl.model import SysctlProperties, SysctlState, normal, parameter_path


class Procfs:
    """
    The provider `procfs`: reads and sets kernel parameters. All methods raise HostError if the operating system refuses an
    operation.

    Args:
        files: Reads and writes the files that are read at boot.
        kernel: Reads and sets live values.
        locks: Provides the lock of these files.
    """

    def __init__(self, files: Files, kernel: Kernel, locks: Locks) -> None:
        self._kernel = kernel
        self._shared = SharedFile(files, locks, "sysctl")

    async def status(self, wanted: SysctlProperties) -> SysctlState:
        """See `SysctlProvider`."""
        return (await self.look_ahead([wanted]))[0]

    async def look_ahead(self, wanted: Sequence[SysctlProperties]) -> list[SysctlState]:
        """Return the result of `status` for each parameter. Each file is read once, and all live values are read in one call."""
        values = {
            file: read_values(await self._shared.read(file)) for file in sorted({one.file for one in wanted})
        }
        paths = [parameter_path(one.name) for one in wanted]
        states = []
        for one, path, live in zip(wanted, paths, await self._kernel.read(paths), strict=True):
            value = values[one.file].get(path)
            states.append(
                SysctlState(
                    protocol="io.choria.ccm.v1.resource.sysctl.state",
                    type="sysctl",
                    name=one.name,
                    ensure=ABSENT if value is None else PRESENT,
                    file=one.file,
                    value=value or "",
                    live_value=normal(live.value),
                    exists=live.exists,
                    is_read_only=live.is_read_only,
                    error=live.error,
                )
            )
        return states

    async def set_live(self, wanted: SysctlProperties) -> None:
        """Set the value in the running kernel."""
        await self._kernel.set(parameter_path(wanted.name), wanted.wanted_live)

    async def write_line(self, wanted: SysctlProperties) -> None:
        """Write the parameter's line to the file atomically. Other lines are kept."""
        await self._shared.edit(wanted.file, lambda lines: with_value(lines, wanted.name, wanted.value))

    async def remove_line(self, wanted: SysctlProperties) -> None:
        """Remove the parameter's line from the file. If no other lines are left, remove the file."""
        await self._shared.edit(wanted.file, lambda lines: without(lines, wanted.name))
