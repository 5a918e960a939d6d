"""
Manages groups with the shadow tools: groupadd, groupmod, groupdel and gpasswd.

Source: groupadd(8), groupmod(8), groupdel(8), gpasswd(1); shadow 4.13 (Debian 12).
"""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.model.errors import CommandError
from ccm_agent.model.ports import Files, Locks, Runner
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.account_files import GROUP, GROUP_FIELDS, entries, members_of, number, read_accounts
from ccm_agent.resources.group.model import GroupMetadata, GroupProperties, GroupState
from ccm_agent.resources.host_tools import AccountRunner

PROVIDER = "shadow"
PROTOCOL = "io.choria.ccm.v1.resource.group.state"


class ShadowGroups:
    """
    Local groups of a system with the shadow tools.

    All methods raise HostError if the host refuses an operation. In that case, the method has changed nothing.
    """

    def __init__(self, runner: Runner, files: Files, locks: Locks) -> None:
        self._tools = AccountRunner(runner, locks)
        self._files = files

    async def status(self, wanted: GroupProperties) -> GroupState:
        """Return the state of the group in local files. A group that only a directory service provides is treated as absent."""
        return (await self.look_ahead([wanted]))[0]

    async def look_ahead(self, wanted: Sequence[GroupProperties]) -> list[GroupState]:
        """Return the result of `status` for each group, with a single read."""
        text = await read_accounts(self._files, GROUP)
        found = entries(text, {one.name for one in wanted}, GROUP_FIELDS)
        return [state(one.name, found.get(one.name)) for one in wanted]

    async def create(self, wanted: GroupProperties) -> None:
        """Create the group, without members."""
        options = ["-g", str(wanted.gid)] if wanted.gid is not None else []
        if wanted.system:
            options.append("-r")
        name = wanted.name
        try:
            await self._tools.run(f"could not create the group {name}", "groupadd", *options, "--", name)
        except CommandError as err:
            if f"group '{name}' already exists" not in err.output:
                raise
            raise CommandError(
                f"could not create the group {name}: it exists, but not in {GROUP}, so a directory service provides it; "
                "only local groups are managed",
                output=err.output,
            ) from err

    async def set_gid(self, name: str, gid: int) -> None:
        """Change the group ID. The entries of users with this primary group also change. Files keep the old ID."""
        await self._tools.run(
            f"could not change the gid of the group {name}", "groupmod", "-g", str(gid), "--", name
        )

    async def add_members(self, name: str, members: Sequence[str]) -> None:
        """Add existing users to the group."""
        for member in members:
            what = f"could not add {member} to the group {name}"
            await self._tools.run(what, "gpasswd", "-a", member, "--", name)

    async def set_members(self, name: str, members: Sequence[str]) -> None:
        """Set the members of the group to these existing users."""
        what = f"could not set the members of the group {name}"
        await self._tools.run(what, "gpasswd", "-M", ",".join(members), "--", name)

    async def remove(self, name: str) -> None:
        """Remove the group. Fails if it is the primary group of a user."""
        await self._tools.run(f"could not remove the group {name}", "groupdel", "--", name)


def state(name: str, entry: list[str] | None) -> GroupState:
    """Return the state for an entry of /etc/group. None means that there is no entry."""
    metadata = GroupMetadata(name=name, provider=PROVIDER)
    if entry is not None:
        metadata.gid, metadata.members = number(entry[2]), members_of(entry)
    return GroupState(
        protocol=PROTOCOL,
        type="group",
        name=name,
        ensure=ABSENT if entry is None else PRESENT,
        metadata=metadata,
    )
