"""Finds the users that no package created, for `ccm import user`."""

from __future__ import annotations

from typing import Any

from ccm_agent.resources.account_files import (
    PASSWD,
    PASSWD_FIELDS,
    SHADOW,
    number,
    read_accounts,
    regular_numbers,
)
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.existing import ExistingBuilder, ExistingResources, refuse_argument
from ccm_agent.resources.secret_signs import PRIVATE_BITS, find_sign
from ccm_agent.resources.user.checks import check
from ccm_agent.resources.user.key_lines import valid_lines
from ccm_agent.resources.user.model import UserProperties, UserState
from ccm_agent.resources.user.passwords import NEVER
from ccm_agent.resources.user.providers.reading import AccountReader


async def find_users(context: ResourceContext, argument: str) -> ExistingResources:
    """
    Return the users whose IDs are in the range of regular users (see login.defs(5)), with their groups and SSH keys.

    Password hashes are not returned, but reported as omitted.

    Raises:
        UsageError: An argument was given.
        FileError: /etc/passwd cannot be read.
    """
    refuse_argument("user", argument)
    regular = await regular_numbers(context.files, "UID")
    lines = (await read_accounts(context.files, PASSWD)).split("\n")
    fields = [line.split(":") for line in lines if line.count(":") == PASSWD_FIELDS - 1]
    names = dict.fromkeys(one[0] for one in fields if number(one[2]) in regular)
    reader = AccountReader(context.files, context.port("key_files"))
    states = await reader.read([UserProperties(name=name) for name in names], all_keys=True)
    homes = sorted({state.metadata.home for state in states if state.metadata.home.startswith("/")})
    looks = await context.files.inspect(homes, digest=False) if homes else []
    directories = {look.path for look in looks if look.kind == "directory"}
    builder = ExistingBuilder("user", UserProperties, check)
    if states and all(state.secrets.password is None for state in states):
        builder.leave_out(
            SHADOW, "cannot be read, so locks and expiry dates are not in the manifest; run it as root"
        )
    for state in states:
        builder.add(state.name, _properties(state, builder, has_home=state.metadata.home in directories))
        if state.metadata.has_password:
            builder.leave_out(state.name, "its `password_hash` is a secret")
    return builder.result()


def _properties(
    state: UserState, builder: ExistingBuilder[UserProperties], *, has_home: bool
) -> dict[str, Any]:
    metadata = state.metadata
    properties: dict[str, Any] = {"uid": metadata.uid}
    # if `gid` is given, the user's own group is created together with the user
    if metadata.group in ("", state.name):
        properties["gid"] = metadata.gid
    else:
        properties["group"] = metadata.group
    if not has_home:
        properties["create_home"] = False
    if metadata.locked:
        properties["locked"] = True
    elif metadata.expires not in ("", NEVER):
        properties["expires"] = metadata.expires
    optional = {
        "groups": metadata.groups,
        "home": metadata.home,
        "shell": metadata.shell,
        "comment": metadata.comment,
        "authorized_keys": _keys(state, builder),
    }
    return properties | {name: value for name, value in optional.items() if value}


def _keys(state: UserState, builder: ExistingBuilder[UserProperties]) -> list[str]:
    """
    Return the lines with keys. If an option may contain a secret, such as in a command, all keys are omitted and this is
    reported.
    """
    keys = state.secrets.keys
    if keys is None:
        return []
    reason = keys.error
    lines = [line for line in valid_lines(keys.content) if not line.startswith("#")]
    if sign := find_sign("\n".join(lines).encode(), PRIVATE_BITS):
        reason = f"its `authorized_keys` {sign}"
    if reason:
        builder.leave_out(state.name, reason)
        return []
    return lines
