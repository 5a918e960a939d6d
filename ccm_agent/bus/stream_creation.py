"""Create and update one stream, bucket or object store of `bus.layout` on a broker, with the replicas that the broker allows."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.bus.retry_window import RetryWindow
from ccm_agent.bus.stream_settings import WantedStream, merged
from ccm_agent.bus.streams import NoPeersError, NoStreamError, call
from ccm_agent.model.errors import BusUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ccm_agent.bus.connection.connection import Connection

_TRIES = 5
_WANTED_REPLICAS = 3


class LayoutAction(StrEnum):
    """The action of `make` on a stream, bucket or object store."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    SKIPPED = "skipped"


class LayoutChange(Struct, frozen=True, kw_only=True):
    """
    One stream, bucket or object store, and the action of `make`.

    Attributes:
        name: The name without the prefix of its stream: `CCM_NODES`, not `KV_CCM_NODES`.
        kind: "stream", "bucket" or "objects".
        action: See `LayoutAction`.
        replicas: The current number of copies.
        details: The changes, the settings that were kept although they differ, or the reason why it was skipped.
    """

    name: str
    kind: str
    action: LayoutAction
    replicas: int = 0
    details: tuple[str, ...] = ()


class CopyCount:
    """The number of copies: the requested number, otherwise three if the cluster has enough servers."""

    def __init__(self, connection: Connection, replicas: int) -> None:
        """Store the requested number; 0: as many as the broker allows."""
        clustered = connection.server is not None and bool(connection.server.cluster)
        self.count = replicas or (_WANTED_REPLICAS if clustered else 1)
        self._is_asked_for = bool(replicas)
        self._patience = RetryWindow()

    async def fewer(self) -> bool:
        """Handle a broker with too few servers. Returns whether to try again, perhaps with one copy."""
        if self._is_asked_for or self.count == 1:
            return False
        # The servers of a recently started cluster discover each other one by one.
        if not await self._patience.pause():
            self.count = 1
        return True


async def make_one(
    connection: Connection,
    copies: CopyCount,
    wanted: WantedStream,
    before_update: Callable[[], Awaitable[None]] | None = None,
) -> LayoutChange:
    """Create or update one stream. See `bus.layout.make`."""
    found = await stream_config(connection, wanted.config["name"])
    if found is None:
        config = await _create(connection, copies, wanted.config)
        return LayoutChange(
            name=wanted.name, kind=wanted.kind, action=LayoutAction.CREATED, replicas=config["num_replicas"]
        )
    config, changes, kept = merged(found, wanted)
    replicas = found["num_replicas"]
    if changes or copies.count > replicas:
        if before_update is not None:
            await before_update()
        replicas = await _update(connection, copies, config, has_changes=bool(changes))
    if replicas != found["num_replicas"]:
        changes.append(f"num_replicas {found['num_replicas']} → {replicas}")
    return LayoutChange(
        name=wanted.name,
        kind=wanted.kind,
        action=LayoutAction.UPDATED if changes else LayoutAction.UNCHANGED,
        replicas=replicas,
        details=(*changes, *kept),
    )


async def stream_config(connection: Connection, name: str) -> dict[str, Any] | None:
    """
    Return the configuration of a stream; None if it does not exist. A recently started cluster may not answer the first request.
    """
    for left in reversed(range(_TRIES)):
        try:
            config: dict[str, Any] = (await call(connection, f"STREAM.INFO.{name}"))["config"]
            return config
        except NoStreamError:
            return None
        except BusUnavailableError:
            if not left:
                raise
            await asyncio.sleep(0.2)
    raise AssertionError("unreachable")


async def _create(connection: Connection, copies: CopyCount, config: dict[str, Any]) -> dict[str, Any]:
    tries = _TRIES
    while True:
        question = config | {"num_replicas": copies.count}
        try:
            answer = await call(connection, f"STREAM.CREATE.{config['name']}", question)
        except NoPeersError:
            if not await copies.fewer():
                raise
        except BusUnavailableError:
            made = await stream_config(
                connection, config["name"]
            )  # it may have been created, and the reply lost
            tries -= 1
            if made is not None:
                return made
            if not tries:
                raise
        else:
            created: dict[str, Any] = answer["config"]
            return created


async def _update(
    connection: Connection, copies: CopyCount, config: dict[str, Any], *, has_changes: bool
) -> int:
    """Update a stream to `config`, with as many copies as possible and never fewer than now. Returns the number of copies."""
    has: int = config["num_replicas"]
    while has_changes or copies.count > has:
        replicas = max(has, copies.count)
        try:
            await call(connection, f"STREAM.UPDATE.{config['name']}", config | {"num_replicas": replicas})
        except NoPeersError:
            if not await copies.fewer():
                raise
        else:
            return replicas
    return has
