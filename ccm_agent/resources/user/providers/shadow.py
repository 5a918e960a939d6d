"""
Manages users with the shadow tools: useradd, usermod, userdel and chpasswd.

Source: useradd(8), usermod(8), userdel(8), chpasswd(8); shadow 4.13 (Debian 12).
"""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.model.errors import CommandError, FileError
from ccm_agent.model.ports import Files, KeyFiles, Locks, Runner
from ccm_agent.resources.account_files import (
    GROUP,
    GROUP_FIELDS,
    PASSWD,
    PASSWD_FIELDS,
    entries,
    read_accounts,
)
from ccm_agent.resources.host_tools import AccountRunner
from ccm_agent.resources.user.key_lines import lines_of, merge_lines
from ccm_agent.resources.user.model import UserChange, UserProperties, UserState
from ccm_agent.resources.user.passwords import LOCKED_DAY, NEVER
from ccm_agent.resources.user.providers.reading import AccountReader, key_home

HOME_LIMIT_S = 15 * 60
"""The time limit for changes of a home directory. It is long, because usermod changes the owner of each file."""

IN_USE = "is currently"


class ShadowUsers:
    """
    Local users of a system with the shadow tools.

    All methods raise HostError if the host refuses an operation. In that case, the method has changed nothing. Hashes are never
    passed as program arguments, because other users can read these.
    """

    def __init__(self, runner: Runner, files: Files, locks: Locks, keys: KeyFiles) -> None:
        self._tools = AccountRunner(runner, locks)
        self._reader = AccountReader(files, keys)
        self._files = files
        self._keys = keys

    async def status(self, wanted: UserProperties) -> UserState:
        """Return the state of the user in local files. A user that only a directory service provides is treated as absent."""
        return (await self._reader.read([wanted], all_keys=True))[0]

    async def look_ahead(self, wanted: Sequence[UserProperties]) -> list[UserState]:
        """
        Return the result of `status` for each user. Each file is read only once, and keys are only read if they are managed.
        """
        return await self._reader.read(wanted)

    async def create(self, wanted: UserProperties) -> None:
        """
        Create the user with its groups and without a password. If no primary group is given, a group with the user's name is
        created.
        """
        name = wanted.name
        options = await self._group_options(wanted)
        options += ["-m" if wanted.creates_home else "-M"]
        for option, value in (
            ("-u", None if wanted.uid is None else str(wanted.uid)),
            ("-G", ",".join(wanted.groups or ())),
            ("-d", wanted.home),
            ("-s", wanted.shell),
            ("-c", wanted.comment),
            ("-e", wanted.expires.replace(NEVER, "")),
        ):
            if value:
                options += [option, value]
        if wanted.system:
            options.append("-r")
        try:
            await self._tools.run(f"could not create the user {name}", "useradd", *options, "--", name)
        except CommandError as err:
            if f"user '{name}' already exists" not in err.output:
                raise
            raise CommandError(
                f"could not create the user {name}: it exists, but not in {PASSWD}, so a directory service provides it; "
                "only local users are managed",
                output=err.output,
            ) from err

    async def _group_options(self, wanted: UserProperties) -> list[str]:
        """Return the options for the primary group. A missing group with a given ID is created first."""
        name = wanted.name
        if wanted.group:
            return ["-g", wanted.group]
        text = await read_accounts(self._files, GROUP)
        if wanted.gid is not None:
            if not any(line.split(":")[2:3] == [str(wanted.gid)] for line in text.split("\n")):
                what = f"could not create the group {name}"
                await self._tools.run(what, "groupadd", "-g", str(wanted.gid), "--", name)
            return ["-g", str(wanted.gid)]
        return ["-g", name] if entries(text, {name}, GROUP_FIELDS) else ["-U"]

    async def modify(self, name: str, change: UserChange) -> None:
        """Change an existing user. If the uid changes, the owner of the files in the home directory also changes."""
        options: list[str] = []
        for option, value in (
            ("-u", None if change.uid is None else str(change.uid)),
            ("-g", change.group),
            ("-d", change.home),
            ("-s", change.shell),
            ("-c", change.comment),
            ("-e", change.expires),
        ):
            if value is not None:
                options += [option, value]
        what = f"could not change the user {name}"
        try:
            await self._tools.run(what, "usermod", *options, "--", name, limit_s=HOME_LIMIT_S)
        except CommandError as err:
            raise _explained(err) from err

    async def add_groups(self, name: str, groups: Sequence[str]) -> None:
        """Add the user to existing groups."""
        what = f"could not add the user {name} to groups"
        await self._tools.run(what, "usermod", "-a", "-G", ",".join(groups), "--", name)

    async def set_groups(self, name: str, groups: Sequence[str]) -> None:
        """Make the user a member of exactly these groups, in addition to the primary group."""
        what = f"could not set the groups of the user {name}"
        await self._tools.run(what, "usermod", "-G", ",".join(groups), "--", name)

    async def create_home(self, name: str) -> None:
        """Create the missing home directory of an existing user, with the files from /etc/skel."""
        # mkhomedir_helper does nothing if the directory exists
        await self._tools.run(
            f"could not create the home directory of the user {name}", "mkhomedir_helper", name
        )

    async def set_password(self, name: str, field: str) -> None:
        """Set the password field in /etc/shadow."""
        what = f"could not set the password hash of the user {name}"
        await self._tools.run(what, "chpasswd", "-e", stdin=f"{name}:{field}\n".encode())

    async def lock(self, name: str) -> None:
        """Lock the password, and expire the account."""
        what = f"could not lock the user {name}"
        await self._tools.run(what, "usermod", "-L", "-e", str(LOCKED_DAY), "--", name)

    async def unlock(self, name: str, locks: int, *, is_expired: bool) -> None:
        """Remove the locks from the password. With `is_expired`, also remove the account's expiry date."""
        what = f"could not unlock the user {name}"
        if is_expired:
            await self._tools.run(what, "usermod", "-e", "", "--", name)
        for _ in range(locks):  # each call removes one lock marker
            await self._tools.run(what, "usermod", "-U", "--", name)

    async def add_keys(self, name: str, lines: Sequence[str]) -> None:
        """Add SSH keys to the keys in the user's file."""
        await self._write_keys(name, lines, is_exclusive=False)

    async def set_keys(self, name: str, lines: Sequence[str]) -> None:
        """Replace the user's SSH keys. If there are none, the file is removed."""
        await self._write_keys(name, lines, is_exclusive=True)

    async def _write_keys(self, name: str, lines: Sequence[str], *, is_exclusive: bool) -> None:
        """Write keys, using the current home directory and IDs of the user."""
        entry = entries(await read_accounts(self._files, PASSWD), {name}, PASSWD_FIELDS).get(name)
        if entry is None or not entry[5].startswith("/"):
            raise FileError(f"the user {name} has no home directory, so its SSH keys cannot be written")
        home = key_home(entry)
        found = (await self._keys.look([home]))[0]
        if found.error:
            raise FileError(found.error)
        current = lines_of((found.content or b"").decode(errors="surrogateescape"))
        merged = merge_lines(current, lines, is_exclusive=is_exclusive)
        text = "".join(f"{line}\n" for line in merged)
        await self._keys.write(home, text.encode(errors="surrogateescape") if merged else None)

    async def remove(self, name: str) -> None:
        """Remove the user, but not its home directory. Fails if the user is logged in or has running processes."""
        try:
            await self._tools.run(f"could not remove the user {name}", "userdel", "--", name)
        except CommandError as err:
            raise _explained(err) from err

    async def remove_home(self, path: str) -> None:
        """Remove a home directory with its content, without following symlinks."""
        await self._files.remove(path, recursive=True)


def _explained(err: CommandError) -> CommandError:
    """Return the error. If the user is still in use, instructions are added."""
    if IN_USE not in err.output:
        return err
    return CommandError(f"{err}; end its sessions and processes first", output=err.output)
