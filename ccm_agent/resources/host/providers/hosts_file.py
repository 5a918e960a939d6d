"""
Manages host names in /etc/hosts.

Source: hosts(5).
"""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.model.ports import Files, Locks
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.host.lines import read_entries, with_entries, without_entries
from ccm_agent.resources.host.model import HostProperties, HostState
from ccm_agent.resources.host.resource import HOSTS
from ccm_agent.resources.shared_file import SharedFile


class HostsFile:
    """
    The provider `hosts_file`. All methods raise HostError if the operating system refuses an operation.

    Args:
        files: Reads and writes the file.
        locks: Provides the lock of the file.
    """

    def __init__(self, files: Files, locks: Locks) -> None:
        self._shared = SharedFile(files, locks, "hosts", removes_empty=False)

    async def status(self, wanted: HostProperties) -> HostState:
        """Return the current state."""
        return (await self.look_ahead([wanted]))[0]

    async def look_ahead(self, wanted: Sequence[HostProperties]) -> list[HostState]:
        """Return the result of `status` for each host. The file is read once."""
        entries = read_entries(await self._shared.read(HOSTS))
        states = []
        for one in wanted:
            found = entries.get(one.name.lower(), ())
            states.append(
                HostState(
                    protocol="io.choria.ccm.v1.resource.host.state",
                    type="host",
                    name=one.name,
                    ensure=PRESENT if found else ABSENT,
                    entries=found,
                )
            )
        return states

    async def write(self, wanted: HostProperties) -> None:
        """Write the lines of the host atomically. Other lines and comments are kept."""
        addresses, aliases = wanted.addresses, wanted.aliases
        await self._shared.edit(HOSTS, lambda lines: with_entries(lines, wanted.name, addresses, aliases))

    async def remove(self, wanted: HostProperties) -> None:
        """Remove the lines of the host."""
        await self._shared.edit(HOSTS, lambda lines: without_entries(lines, wanted.name))
