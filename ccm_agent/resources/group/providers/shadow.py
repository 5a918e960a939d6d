"""
Groups with the shadow tools: groupadd, groupmod, groupdel and gpasswd.

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

    All methods raise HostError if the host refuses; nothing of that verb is done then.
    """

    def __init__(self, runner: Runner, files: Files, locks: Locks) -> None:
        self._tools = AccountRunner(runner, locks)
        self._files = files

    async def status(self, wanted: GroupProperties) -> GroupState:
        """Return the group in local files. A group that only a directory service provides is absent."""
        return (await self.look_ahead([wanted]))[0]

    async def look_ahead(self, wanted: Sequence[GroupProperties]) -> list[GroupState]:
        """Return what `status` would for each, with one read."""
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
        """Change the number. It also changes in the entries of users whose primary group it is; files keep the old one."""
        await self._tools.run(
            f"could not change the gid of the group {name}", "groupmod", "-g", str(gid), "--", name
        )

    async def add_members(self, name: str, members: Sequence[str]) -> None:
        """Add users that exist."""
        for member in members:
            what = f"could not add {member} to the group {name}"
            await self._tools.run(what, "gpasswd", "-a", member, "--", name)

    async def set_members(self, name: str, members: Sequence[str]) -> None:
        """Replace the list of members by users that exist."""
        what = f"could not set the members of the group {name}"
        await self._tools.run(what, "gpasswd", "-M", ",".join(members), "--", name)

    async def remove(self, name: str) -> None:
        """Remove the group. One that is the primary group of a user is refused."""
        await self._tools.run(f"could not remove the group {name}", "groupdel", "--", name)


def state(name: str, entry: list[str] | None) -> GroupState:
    """Return the state that an entry of /etc/group describes; None: there is none."""
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
