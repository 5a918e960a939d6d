"""Finds the groups that no package created, for `ccm import group`."""

from __future__ import annotations

from typing import Any

from ccm_agent.resources.account_files import (
    GROUP,
    GROUP_FIELDS,
    PASSWD,
    members_of,
    number,
    read_accounts,
    regular_numbers,
)
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.existing import ExistingBuilder, ExistingResources, refuse_argument
from ccm_agent.resources.group.model import GroupProperties
from ccm_agent.resources.group.resource import check


async def find_groups(context: ResourceContext, argument: str) -> ExistingResources:
    """
    Return the groups whose IDs are in the range of regular users (see login.defs(5)), except primary groups named after their
    user.

    The members only include users that `ccm import user` does not return, because a user's resource lists the user's groups.

    Raises:
        UsageError: An argument was given.
        FileError: /etc/group or /etc/passwd cannot be read.
    """
    refuse_argument("group", argument)
    uids = await regular_numbers(context.files, "UID")
    gids = await regular_numbers(context.files, "GID")
    accounts = [line.split(":") for line in (await read_accounts(context.files, PASSWD)).split("\n")]
    people = {one[0]: one[3] for one in accounts if len(one) > 3 and number(one[2]) in uids}
    builder = ExistingBuilder("group", GroupProperties, check)
    for line in (await read_accounts(context.files, GROUP)).split("\n"):
        fields = line.split(":")
        is_group = len(fields) == GROUP_FIELDS and number(fields[2]) in gids
        if not is_group or people.get(fields[0]) == fields[2]:
            continue
        properties: dict[str, Any] = {"gid": number(fields[2])}
        if members := [name for name in members_of(fields) if name not in people]:
            properties["members"] = members
        builder.add(fields[0], properties)
    return builder.result()
