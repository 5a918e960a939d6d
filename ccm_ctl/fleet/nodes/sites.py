"""
The sites of a fleet, as the broker of the center reports them: when each site was last in contact.

The center sources the entries of a site's nodes from the broker of the site. While the line to it is cut, these entries are old,
and heartbeats expire although the nodes may be well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.bus.layout import NODES
from ccm_agent.bus.streams import NoStreamError, call, parse_time
from ccm_agent.model.errors import BusDeniedError, ProtocolError

if TYPE_CHECKING:
    from ccm_agent.bus.connection.connection import Connection

SILENT_S = 30.0
"""After this many seconds without contact, a site is cut off. Its broker sends a heartbeat every second."""

ERROR_LENGTH = 200

_STREAM = f"KV_{NODES}"
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class SiteSource(Struct, frozen=True, kw_only=True):
    """
    A stream of another broker that a stream of this broker copies.

    Attributes:
        site: The JetStream domain of the other broker.
        contact: When this broker last received something from it. None: not since this broker has started.
        silent_s: The seconds since then. None: as for `contact`.
        lag: The number of messages that are not copied yet, as far as this broker knows.
        error: The broker's last error about it, or "". The other broker may have written it.
        index: The name of this source in the headers of its messages.
    """

    site: str
    contact: datetime | None
    silent_s: float | None
    lag: int
    error: str
    index: str

    @property
    def is_cut(self) -> bool:
        """Whether there is no contact."""
        return self.silent_s is None or self.silent_s >= SILENT_S


def site_sources(info: Mapping[str, Any]) -> list[SiteSource]:
    """
    Return the sources of a stream, or the source of a mirror, on other brokers, by site.

    Args:
        info: The answer to STREAM.INFO.

    Raises:
        ProtocolError: The answer is not valid.
    """
    try:
        listed = [*(info.get("sources") or ()), *filter(None, [info.get("mirror")])]
        found = [_source(one, one["external"]["api"], info["ts"]) for one in listed if one.get("external")]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as err:
        raise ProtocolError("the broker's report about sources is not valid") from err
    return sorted(found, key=lambda one: one.site)


def _source(one: Mapping[str, Any], api: str, reported: str) -> SiteSource:
    silent_s = one["active"] / 1e9 if one["active"] >= 0 else None
    return SiteSource(
        site=_site(api),
        contact=parse_time(reported) - timedelta(seconds=silent_s) if silent_s is not None else None,
        silent_s=silent_s,
        lag=max(int(one.get("lag", 0)), 0),
        error=_printable(str((one.get("error") or {}).get("description", ""))[:ERROR_LENGTH]),
        index=f"{one['name']}:{_digest(api)}",
    )


def _site(api: str) -> str:
    """Return the domain in `$JS.<domain>.API`, or the whole prefix if it has another form, as one printable line."""
    first, _, rest = api.partition(".")
    domain = rest.removesuffix(".API")
    return _printable(domain if first == "$JS" and domain and domain != rest else api)


def _printable(text: str) -> str:
    return text if text.isprintable() else ascii(text)


def _digest(api: str) -> str:
    """Return the digest of an API prefix, as nats-server writes it to the header of sourced messages (`getHash`)."""
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in hashlib.sha256(api.encode()).digest()[:8])


class NatsSiteReader:
    """The sites from which this broker sources the entries of nodes."""

    def __init__(self, connection: Connection) -> None:
        """Store the connection."""
        self._connection = connection

    async def read(self) -> list[SiteSource]:
        """
        Return the sites. There are none if the broker sources nothing, or if these credentials may not ask for them.

        Raises:
            BusError: The broker does not answer.
        """
        try:
            return site_sources(await call(self._connection, f"STREAM.INFO.{_STREAM}"))
        except (BusDeniedError, NoStreamError):
            return []

    async def site_of(self, copied_from: str) -> SiteSource | None:
        """
        Return the site with this name in `KeyValueEntry.copied_from`. Nothing is read for entries that were written here.

        Raises:
            BusError: The broker does not answer.
        """
        return find_site(await self.read(), copied_from) if copied_from else None


def find_site(sources: Iterable[SiteSource], copied_from: str) -> SiteSource | None:
    """Return the site with this name in `KeyValueEntry.copied_from`. None: there is none."""
    return next((one for one in sources if one.index == copied_from), None)
