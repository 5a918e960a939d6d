"""
Migration of a fleet from one account to several. The module finds the nodes and operators that still use old credentials.

The servers report which users are connected to the account of the streams. Only operators with `--admin` should be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.bus.access.credentials import name_in_jwt
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import BusSettings
from ccm_ctl.fleet.keys.keys import Keys, User
from ccm_ctl.fleet.keys.system_account import ask_servers, system_connection

PAGE = 200
"""The maximum number of connections per reply of a server. Each includes a JWT, and a reply must fit into one message."""


class Left(Struct, frozen=True, kw_only=True, order=True):
    """
    A node or operator that has not migrated.

    Attributes:
        kind: "node" or "operator". "": the user is connected, but not in the keys folder.
        name: The name.
        has_new: Whether it has received new credentials.
        connected: Whether it is connected with old credentials.
    """

    kind: str
    name: str
    has_new: bool = False
    connected: bool = False


def who_is_left(users: Iterable[User], moved: Iterable[User], connected: Mapping[str, str]) -> list[Left]:
    """
    Return the users that have not migrated, sorted by kind and name.

    Args:
        users: The users with valid credentials of the one-account layout, according to the keys folder.
        moved: The users with credentials of separate accounts.
        connected: The users that are connected to the account of the streams. The dictionary contains their names by public key.
    """
    fine = {user.public_key for user in moved}
    new = {(user.kind, user.name) for user in moved}
    known = {user.public_key: (user.kind, user.name) for user in users}
    there = {known.get(key, ("", name)) for key, name in connected.items() if key not in fine}
    left = {one for one in known.values() if one not in new} | there
    return sorted(
        Left(kind=kind, name=name, has_new=(kind, name) in new, connected=(kind, name) in there)
        for kind, name in left
    )


async def connected_users(settings: BusSettings, keys: Keys) -> dict[str, str]:
    """
    Return the names of the users that are connected to the account of the streams, by public key.

    Raises:
        BusError: The broker cannot be queried.
    """
    subject = keys.connections_subject
    async with system_connection(settings, keys, [subject]) as connection:
        return await _connected(connection, subject)


async def _connected(connection: Connection, subject: str) -> dict[str, str]:
    found: dict[str, str] = {}
    offset, more = 0, True
    while more:
        question = {"auth": True, "limit": PAGE, "offset": offset}
        pages = [_listed(body) for body in await ask_servers(connection, subject, question)]
        found |= {
            one["authorized_user"]: name_in_jwt(one.get("jwt", ""))
            for listed in pages
            for one in listed
            if "authorized_user" in one
        }
        more = any(len(listed) == PAGE for listed in pages)
        offset += PAGE
    return found


def _listed(body: bytes) -> list[dict[str, Any]]:
    answer = msgspec.json.decode(body)
    listed: list[dict[str, Any]] = (answer.get("data") or {}).get("connections") or []
    return listed
