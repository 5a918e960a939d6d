"""The registered services, as gates and `ccmctl plan --impact` read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.bus.layout import REGISTRATION
from ccm_agent.registration.entries import RegistrationQuery
from ccm_agent.registration.lookup import find, read

if TYPE_CHECKING:
    from ccm_agent.bus.connection import Connection
    from ccm_agent.model.registration import RegistrationEntry
    from ccm_agent.registration.entries import StreamEntry


class RegisteredServices:
    """The stream of registrations; see `ServiceRegistry`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def registrations(
        self, cluster: str, protocol: str, service: str, address: str
    ) -> list[RegistrationEntry]:
        query = RegistrationQuery(cluster=cluster, protocol=protocol, service=service, address=address)
        return await find(self._connection, REGISTRATION, query)

    async def stored(self) -> list[StreamEntry]:
        """See `ServiceRegistry.stored`."""
        return await read(self._connection, REGISTRATION, RegistrationQuery())

    async def kv_get(self, bucket: str, key: str) -> bytes | None:
        """Not used by gates, which have no `kvGet`."""
        raise NotImplementedError(f"a gate cannot read {key} of {bucket}")
