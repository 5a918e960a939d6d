"""The registered services, for gates and `ccmctl plan --impact`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.bus.layout import REGISTRATION
from ccm_agent.bus.subjects import parse_registration
from ccm_agent.registration.entries import RegistrationQuery
from ccm_agent.registration.lookup import find, read

if TYPE_CHECKING:
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.model.records.registration import RegistrationEntry
    from ccm_agent.registration.entries import StreamEntry


class KnownService(Struct, frozen=True, kw_only=True):
    """
    A service that a node has registered. It may have ended and still be in the registry.

    Attributes:
        cluster, service, protocol, address, port, priority, annotations: The fields of its entry. If it has ended, only the
            first four.
        ttl: The lifetime of the entry without renewal. "": the broker's default.
        time: When it was last registered or renewed, or when it ended.
        is_gone: Whether it has ended.
        reason: The broker's reason for its end: `MaxAge`, `Remove` or `Purge`.
    """

    cluster: str
    service: str
    protocol: str
    address: str
    port: int | str | None = None
    priority: int = 0
    annotations: dict[str, str] = {}
    ttl: str = ""
    time: datetime
    is_gone: bool = False
    reason: str = ""


class RegisteredServices:
    """The stream of registrations. See `ServiceRegistry`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def registrations(
        self, cluster: str, protocol: str, service: str, address: str
    ) -> list[RegistrationEntry]:
        query = RegistrationQuery(cluster=cluster, protocol=protocol, service=service, address=address)
        return await find(self._connection, REGISTRATION, query)

    async def matching(self, cluster: str, protocol: str, service: str, address: str) -> list[StreamEntry]:
        """See `ServiceRegistry.matching`."""
        query = RegistrationQuery(cluster=cluster, protocol=protocol, service=service, address=address)
        return await read(self._connection, REGISTRATION, query)

    async def stored(self) -> list[StreamEntry]:
        """See `ServiceRegistry.stored`."""
        return await read(self._connection, REGISTRATION, RegistrationQuery())

    async def kv_get(self, bucket: str, key: str) -> bytes | None:
        """Refuse the read. Gates have no `kvGet`."""
        raise NotImplementedError(f"a gate cannot read {key} of {bucket}")


def describe_service(stored: StreamEntry) -> KnownService:
    """Decode a stored registration."""
    entry = stored.entry
    if entry is None:
        cluster, protocol, service, address = parse_registration(stored.subject)
        return KnownService(
            cluster=cluster,
            service=service,
            protocol=protocol,
            address=address,
            time=stored.time,
            is_gone=True,
            reason=stored.reason,
        )
    return KnownService(
        cluster=entry.cluster,
        service=entry.service,
        protocol=entry.protocol,
        address=entry.address,
        port=entry.port,
        priority=entry.priority,
        annotations=entry.annotations,
        ttl=entry.ttl or "",
        time=stored.time,
    )
