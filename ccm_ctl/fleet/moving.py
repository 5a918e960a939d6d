"""
A fleet that moves from one account for all to several: which nodes and operators still use credentials of before.

The broker is asked who is connected to the account of the streams, in which only operators with `--admin` should be. That
question belongs to the account of the servers themselves. It is asked with credentials that are made for it and end a minute
later.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.bus.connection import Connection
from ccm_agent.bus.credentials import name_in_jwt
from ccm_agent.bus.settings import replaced
from ccm_agent.model.errors import BusUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ccm_agent.bus.settings import BusSettings
    from ccm_ctl.fleet.keys import Keys, User

PAGE = 200
"""Connections that one server lists at a time: each comes with its JWT, and an answer is one message."""

QUIET_S = 1.0
"""Every server of a cluster answers; none for so long means that all have."""

_ASKER = "ccmctl-connections"
_GOOD_FOR_S = 60


class Left(Struct, frozen=True, kw_only=True, order=True):
    """
    A node or operator that has not moved.

    Attributes:
        kind: "node" or "operator"; "" where only the broker knows of it.
        name: The name.
        has_new: It was given new credentials already.
        connected: It is connected with the old ones.
    """

    kind: str
    name: str
    has_new: bool = False
    connected: bool = False


def who_is_left(users: Iterable[User], moved: Iterable[User], connected: Mapping[str, str]) -> list[Left]:
    """
    Who has not moved, by kind and name.

    Args:
        users: Whose credentials of one account are good, as far as the folder with the keys knows.
        moved: Who was given credentials of several accounts.
        connected: Who is connected to the account of the streams: names by public key.
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
    Who is connected to the account of the streams: names by public key.

    Raises:
        BusError: The broker cannot be asked.
    """
    with tempfile.TemporaryDirectory(prefix="ccmctl-") as folder:
        path = Path(folder) / "asker.creds"
        made = keys.asker(_ASKER, int(time.time()) + _GOOD_FOR_S)
        path.touch(mode=0o600)
        path.write_text(made.text.reveal())
        fields = {"creds": str(path), "nkey": "", "user": "", "password": None, "token": None}
        async with Connection(replaced(settings, identity=_ASKER, inbox="", **fields)) as connection:
            await connection.connect_now()
            return await _connected(connection, keys.question)


async def _connected(connection: Connection, subject: str) -> dict[str, str]:
    found: dict[str, str] = {}
    offset, more = 0, True
    while more:
        more = False
        body = msgspec.json.encode({"auth": True, "limit": PAGE, "offset": offset})
        with connection.asking(subject) as waiting:
            await connection.publish(subject, body, reply=waiting.inbox)
            limit_s = connection.settings.answer_s
            while True:
                try:
                    answer = await waiting.next(limit_s)
                except BusUnavailableError:
                    if limit_s != QUIET_S:
                        raise
                    break
                listed = _listed(answer.body)
                found |= {
                    one["authorized_user"]: name_in_jwt(one.get("jwt", ""))
                    for one in listed
                    if "authorized_user" in one
                }
                more = more or len(listed) == PAGE
                limit_s = QUIET_S
        offset += PAGE
    return found


def _listed(body: bytes) -> list[dict[str, Any]]:
    answer = msgspec.json.decode(body)
    listed: list[dict[str, Any]] = (answer.get("data") or {}).get("connections") or []
    return listed
