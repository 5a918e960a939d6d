"""Undoes the change of a user."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from ccm_agent.model.errors import InputError
from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.user.checks import check
from ccm_agent.resources.user.key_lines import valid_lines
from ccm_agent.resources.user.model import UserProperties, UserState


async def earlier(
    wanted: UserProperties, found: UserState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """
    Return the state before a change; see `UndoRules`.

    For a removed user, the state contains all properties including the hash. Like /etc/shadow, undo records are readable only by
    root. For a changed user, the state contains the managed properties. The home directory of a removed user is not kept.
    """
    if found.ensure == ABSENT:
        return EarlierState(properties={"ensure": ABSENT})
    metadata, secrets = found.metadata, found.secrets
    is_removed = wanted.ensure == ABSENT
    properties: dict[str, Any] = {"ensure": PRESENT, "create_home": False}
    for name, is_managed, value in (
        ("uid", wanted.uid is not None, metadata.uid),
        ("gid", wanted.gid is not None or wanted.group, metadata.gid),
        ("home", wanted.home, metadata.home),
        ("shell", wanted.shell, metadata.shell),
        ("comment", wanted.comment is not None, metadata.comment),
        ("groups", wanted.groups is not None, metadata.groups),
        ("groups_exclusive", wanted.groups is not None, True),
    ):
        if is_managed or is_removed:
            properties[name] = value
    manages_shadow = wanted.password_hash is not None or wanted.locked is not None or wanted.expires
    if (manages_shadow or is_removed) and secrets.password is not None:
        properties |= {"password_hash": secrets.password, "expires": metadata.expires}
        if not metadata.locked:
            properties["locked"] = False
    if wanted.authorized_keys is not None and not is_removed and wanted.home in ("", metadata.home):
        lines = valid_lines(secrets.keys.content) if secrets.keys is not None else []
        properties |= {"authorized_keys": lines, "authorized_keys_exclusive": True}
    return EarlierState(properties=properties, why_not=_why_not(wanted.name, properties))


def _why_not(name: str, properties: dict[str, Any]) -> str:
    """
    Return the reason why a state cannot be restored: the user had a value that this type does not write, such as a hash in an old
    format.
    """
    try:
        check(UserProperties(name=name, **properties))
    except InputError as err:
        field = err.place.path.removeprefix("$.") if err.place else "state"
        return f"its earlier {field} has a value that this type does not write"
    return ""


def identify(state: UserState) -> Identity:
    """Return the identity of a state; see `UndoRules`. The password hash and the keys are included as digests."""
    if state.ensure == ABSENT:
        return {"ensure": ABSENT}
    metadata, secrets = state.metadata, state.secrets
    keys = secrets.keys.content if secrets.keys is not None else None
    return {
        "ensure": state.ensure,
        "uid": str(metadata.uid),
        "gid": str(metadata.gid),
        "home": metadata.home,
        "shell": metadata.shell,
        "comment": metadata.comment,
        "groups": ",".join(metadata.groups),
        "expires": metadata.expires,
        "password": sha256((secrets.password or "").encode()).hexdigest(),
        "authorized_keys": sha256(keys).hexdigest() if keys is not None else "",
    }
