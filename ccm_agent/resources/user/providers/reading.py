"""Reads users from /etc/passwd, /etc/shadow and /etc/group. Each file is read only once for all users."""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import FileInfo, Files, KeyFile, KeyFiles, KeyPlace
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.account_files import (
    FEW,
    GROUP,
    GROUP_FIELDS,
    PASSWD,
    PASSWD_FIELDS,
    SHADOW,
    SHADOW_FIELDS,
    entries,
    members_of,
    number,
    read_accounts,
)
from ccm_agent.resources.user import passwords
from ccm_agent.resources.user.key_lines import lines_of
from ccm_agent.resources.user.model import UserMetadata, UserProperties, UserSecrets, UserState

PROVIDER = "shadow"
PROTOCOL = "io.choria.ccm.v1.resource.user.state"


class AccountReader:
    """
    Reads the states of users.

    Args:
        files: The files of the host.
        keys: The SSH keys of users.
    """

    def __init__(self, files: Files, keys: KeyFiles) -> None:
        self._files = files
        self._keys = keys

    async def read(self, wanted: Sequence[UserProperties], *, all_keys: bool = False) -> list[UserState]:
        """
        Return the state of each user.

        Args:
            wanted: The users.
            all_keys: Whether to also read the SSH keys of users whose keys are not managed.
        """
        names = {one.name for one in wanted}
        passwd = await read_accounts(self._files, PASSWD)
        found = entries(passwd, names, PASSWD_FIELDS)
        shadow = entries(await self._shadow(), names, SHADOW_FIELDS) if found else {}
        groups = await read_accounts(self._files, GROUP) if found else ""
        memberships, group_names = _groups(groups, found)
        with_keys = [one for one in wanted if all_keys or one.authorized_keys is not None]
        keys = await self._read_keys({one.name: found[one.name] for one in with_keys if one.name in found})
        homes = await self._homes(wanted, found)
        states = []
        for one in wanted:
            entry = found.get(one.name)
            if entry is None:
                states.append(absent(one.name))
                continue
            shares = one.purge_home and one.ensure == ABSENT
            secrets = UserSecrets(
                password=shadow[one.name][1] if one.name in shadow else None,
                keys=keys.get(one.name),
                home=homes.get(entry[5]),
                home_users=_home_users(passwd, entry) if shares else (),
            )
            metadata = _metadata(entry, shadow.get(one.name), memberships.get(one.name, []), group_names)
            states.append(present(metadata, secrets))
        return states

    async def _shadow(self) -> str:
        """Return the content of /etc/shadow; "" if it does not exist or this process may not read it."""
        try:
            return await read_accounts(self._files, SHADOW)
        except FileError as err:
            if err.errno in (errno.EACCES, errno.ENOENT):
                return ""
            raise

    async def _read_keys(self, found: dict[str, list[str]]) -> dict[str, KeyFile]:
        homes = {name: key_home(entry) for name, entry in found.items() if entry[5].startswith("/")}
        files = await self._keys.look([*homes.values()]) if homes else []
        return dict(zip(homes, files, strict=True))

    async def _homes(
        self, wanted: Sequence[UserProperties], found: dict[str, list[str]]
    ) -> dict[str, FileInfo]:
        """Return the state of the relevant home directories, which must exist or will be removed."""
        paths = {
            found[one.name][5] for one in wanted if one.name in found and (one.create_home or one.purge_home)
        }
        asked = sorted(path for path in paths if path.startswith("/"))
        looks = await self._files.inspect(asked, digest=False, follow=False) if asked else []
        return {look.path: look for look in looks}


def key_home(entry: Sequence[str]) -> KeyPlace:
    """Return the location of a user's SSH keys."""
    return KeyPlace(path=entry[5], uid=number(entry[2]), gid=number(entry[3]))


def _groups(text: str, found: dict[str, list[str]]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the sorted groups of each user, and the names of the primary groups by ID."""
    memberships: dict[str, list[str]] = {}
    numbers = {entry[3] for entry in found.values()}
    names: dict[str, str] = {}
    for line in _relevant(text, found, numbers):
        fields = line.split(":")
        if len(fields) != GROUP_FIELDS:
            continue
        if fields[2] in numbers:
            names.setdefault(fields[2], fields[0])
        for member in members_of(fields) if fields[3] else ():
            if member in found:
                memberships.setdefault(member, []).append(fields[0])
    return {name: sorted(set(groups)) for name, groups in memberships.items()}, names


def _relevant(text: str, users: Collection[str], numbers: Collection[str]) -> Collection[str]:
    """Return the lines that may contain one of the users or group IDs. For more than `FEW` users, return all lines."""
    if len(users) > FEW:
        return text.split("\n")
    lines: dict[str, None] = {}
    for word in (*users, *(f":{one}:" for one in numbers)):
        start = text.find(word)
        while start >= 0:
            end = text.find("\n", start)
            end = len(text) if end < 0 else end
            lines[text[text.rfind("\n", 0, start) + 1 : end]] = None
            start = text.find(word, end)
    return lines


def _home_users(passwd: str, entry: Sequence[str]) -> tuple[str, ...]:
    """Return the other users whose home directory is this user's home or a directory below it."""
    home = entry[5]
    users = []
    for line in passwd.split("\n"):
        fields = line.split(":")
        if len(fields) == PASSWD_FIELDS and fields[0] != entry[0] and f"{fields[5]}/".startswith(f"{home}/"):
            users.append(fields[0])
    return tuple(users)


def _metadata(
    entry: Sequence[str], shadow: Sequence[str] | None, groups: list[str], names: dict[str, str]
) -> UserMetadata:
    metadata = UserMetadata(
        name=entry[0],
        provider=PROVIDER,
        uid=number(entry[2]),
        gid=number(entry[3]),
        group=names.get(entry[3], ""),
        groups=groups,
        home=entry[5],
        shell=entry[6],
        comment=entry[4],
    )
    if shadow is not None:
        metadata.expires = passwords.day_of(shadow[7])
        metadata.has_password = passwords.has_password(shadow[1])
        metadata.locked = passwords.locks_of(shadow[1]) > 0 or passwords.is_expired_by_lock(metadata.expires)
    return metadata


def absent(name: str) -> UserState:
    """Return the state of a user that does not exist."""
    metadata = UserMetadata(name=name, provider=PROVIDER)
    return UserState(protocol=PROTOCOL, type="user", name=name, ensure=ABSENT, metadata=metadata)


def present(metadata: UserMetadata, secrets: UserSecrets) -> UserState:
    """Return the state of a user that exists."""
    if secrets.keys is not None and not secrets.keys.error:
        text = (secrets.keys.content or b"").decode(errors="replace")
        metadata.authorized_keys = sum(not line.startswith("#") for line in lines_of(text))
    state = UserState(protocol=PROTOCOL, type="user", name=metadata.name, ensure=PRESENT, metadata=metadata)
    state.__dict__["secrets"] = secrets
    return state
