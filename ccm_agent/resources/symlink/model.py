"""Properties and state of symlink resources."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ccm_agent.model.resource import CommonProperties, CommonState


class SymlinkProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A symbolic link."""

    name: Annotated[str, Meta(description="Absolute path of the symlink.")]
    ensure: Annotated[str, Meta(description="`present` (default) or `absent`.")] = ""
    target: Annotated[
        str,
        Meta(description="Target path, absolute or relative to the symlink. Required unless `absent`."),
    ] = ""
    force: Annotated[bool, Meta(description="Also replace or remove a file or an empty directory.")] = False
    owner: Annotated[
        str,
        Meta(description="User that owns the symlink itself. Default: not managed."),
    ] = ""
    group: Annotated[
        str,
        Meta(description="Group that owns the symlink itself. Default: not managed."),
    ] = ""


class SymlinkState(CommonState, kw_only=True):
    """
    The current state of a symlink. `ensure` is "present" for a symlink, "absent" if nothing exists at its path, or else the kind
    of the entry.

    Attributes:
        target: The target as stored in the symlink; "" if the entry is not a symlink.
        owner, group: Names of the owner and group of the entry, or their IDs if they have no names on this system.
        uid, gid: The IDs of owner and group; -1 if there is no entry.
        is_empty: Whether the entry is an empty directory.
        error: The reason why the state cannot be read; "" if it can be read.
    """

    target: str = ""
    owner: str = ""
    group: str = ""
    uid: int = -1
    gid: int = -1
    is_empty: bool = False
    error: str = ""
