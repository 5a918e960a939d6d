"""
The broker's notices that a connection of a node has ended (ADR 126).

nats-server publishes them in the system account, which offers those of nodes to operators. They are hints, like all core
delivery: they may be lost, and the node may be connected again, or by a second connection. The fields `user` and `name` are what
the client claimed, and `name_tag` names its account. Only the JWT, which the server has verified, contains the name of the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.access.credentials import MAX_JWT, name_in_jwt
from ccm_agent.bus.subjects import DISCONNECTED, is_node
from ccm_agent.model.errors import BusDeniedError
from ccm_agent.model.formats.untrusted_json import Moment, decode_foreign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.connection.messages import Message

MAX_NOTICE = MAX_JWT + 16_384
"""The longest notice that is decoded, in bytes: the JWT, and what the server and the client say about themselves."""


class _Client(Struct):
    jwt: str


class _Notice(Struct):
    timestamp: Moment
    client: _Client


class ConnectionEnd(Struct, frozen=True, kw_only=True):
    """
    The end of one connection of a node.

    Attributes:
        node: The node.
        time: The time, by the server's clock.
    """

    node: str
    time: Moment


def decode_disconnect(body: bytes) -> ConnectionEnd | None:
    """Decode a notice of the broker. Returns None if it is not valid, or not about a node with a JWT."""
    if len(body) > MAX_NOTICE:
        return None
    try:
        notice = decode_foreign(body, _Notice)
    except msgspec.MsgspecError:
        return None
    node = name_in_jwt(notice.client.jwt)
    return ConnectionEnd(node=node, time=notice.timestamp) if is_node(node) else None


async def follow_disconnects(
    connection: Connection, on_disconnect: Callable[[ConnectionEnd], None]
) -> Callable[[], Awaitable[None]]:
    """
    Deliver notices until the returned function is called.

    There are none if the broker has no accounts, if its configuration is of an earlier version, or if the credentials do not
    allow them.

    Args:
        connection: The connection.
        on_disconnect: Called on the event loop; it must not block.
    """

    def receive(message: Message) -> None:
        found = decode_disconnect(message.body)
        if found is not None:
            on_disconnect(found)

    try:
        made = await connection.subscribe([DISCONNECTED], receive)
    except BusDeniedError:
        made = []

    async def stop() -> None:
        await connection.unsubscribe(made)

    return stop
