"""Properties and state of a group resource."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ccm_agent.model.resource import CommonProperties, CommonState
from ccm_agent.resources.account_names import AccountId


class GroupProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A group in /etc/group."""

    name: Annotated[str, Meta(description="Name of the group.")]
    ensure: Annotated[str, Meta(description="`present` (default) or `absent`.")] = ""
    gid: Annotated[AccountId | None, Meta(description="Number of the group. Not managed by default.")] = None
    system: Annotated[bool, Meta(description="Give a new group a number from the system range.")] = False
    members: Annotated[
        list[str] | None,
        Meta(description="Users that are members. Other members are kept unless `members_exclusive` is set."),
    ] = None
    members_exclusive: Annotated[bool, Meta(description="Remove members that are not in `members`.")] = False


class GroupMetadata(Struct, kw_only=True, omit_defaults=True):
    """
    A group in /etc/group.

    Attributes:
        name: The group's name.
        provider: The provider that read the state.
        gid: The group ID; -1 if the group does not exist.
        members: The group's members, sorted. Users who have this group as their primary group are not listed.
    """

    name: str
    provider: str
    gid: int = -1
    members: list[str] = []


class GroupState(CommonState, kw_only=True):
    """The current state of a group. `ensure` is "present" or "absent"."""

    metadata: GroupMetadata
