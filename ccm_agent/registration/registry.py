"""The operations on one stream of registrations, for the command line."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from ccm_agent.bus.layout import REGISTRATION
from ccm_agent.registration import publish
from ccm_agent.registration.entries import RegistrationQuery
from ccm_agent.registration.lookup import find
from ccm_agent.registration.publish import Publisher
from ccm_agent.registration.watch import watch

if TYPE_CHECKING:
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.model.records.registration import RegistrationChange, RegistrationEntry


class RegistrationStream:
    """
    Operations on a stream of registrations. Each operation raises BusError if the broker fails or refuses.

    Args:
        connection: The broker.
        stream: Name of the stream; "" for the default.
    """

    def __init__(self, connection: Connection, stream: str = "") -> None:
        self.stream = stream or REGISTRATION
        self._connection = connection

    async def make(self, replicas: int | None, max_age_s: float | None) -> dict[str, Any]:
        """Create the stream, or update it; see `publish.make_stream`."""
        return await publish.make_stream(
            self._connection, self.stream, replicas=replicas, max_age_s=max_age_s
        )

    async def create(self, entry: RegistrationEntry) -> None:
        """Register an entry."""
        await Publisher(self._connection, "jetstream", self.stream).publish(entry)

    async def remove(self, entry: RegistrationEntry) -> bool:
        """Remove an entry. Returns False if there was none."""
        return await publish.remove(self._connection, entry, self.stream)

    async def find(self, *query: str) -> list[RegistrationEntry]:
        """Return the entries that match cluster, protocol, service and address, without waiting for missing ones."""
        return await find(self._connection, self.stream, RegistrationQuery(*query))

    def watch(self, *query: str) -> AsyncGenerator[RegistrationChange, None]:
        """Yield the registered entries, then each change."""
        return watch(self._connection, self.stream, RegistrationQuery(*query))
