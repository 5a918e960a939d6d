"""
Find the nodes on which the instances of services run.

An entry contains the address of a service, not its node. A node runs the service if its facts report that address: an address
of an interface, or a text or list directly below `network`, such as an assigned `network.public`. Facts and entries are claims
of nodes, so an address that several nodes report is attributed to each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.bus.subjects import parse_registration
from ccm_agent.model.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ccm_agent.registration.entries import StreamEntry

ADDRESSES_LIMIT = 1000
"""The maximum number of addresses read from one node."""

_LONGEST = 64
"""The maximum length of an address including its prefix length, in characters, with some margin."""

EXPIRED = "MaxAge"
"""The broker's reason for an entry that was not renewed in time."""


class ServiceName(Struct, frozen=True, order=True, gc=False):
    """The fields that identify a service."""

    cluster: str
    protocol: str
    service: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.protocol}/{self.service}"


class ServiceInstance(Struct, frozen=True, kw_only=True, gc=False):
    """
    An entry of the registry, or an expired one.

    Attributes:
        nodes: The nodes that report its address, possibly none.
        is_healthy: Whether it is registered now, and either a node that reports its address is present or no node reports it.
        priority: Its priority. Lower values are preferred.
        address: Its address.
    """

    nodes: tuple[str, ...]
    is_healthy: bool
    priority: int
    address: str


def find_addresses(facts: Mapping[str, Any]) -> set[str]:
    """Return the addresses that a node reports for itself, without loopback. At most ADDRESSES_LIMIT."""
    network = facts.get("network")
    found: set[str] = set()
    for text in _texts(network) if isinstance(network, Mapping) else ():
        address = _normal(text)
        if address:
            found.add(address)
        if len(found) >= ADDRESSES_LIMIT:
            break
    return found


def place_instances(
    entries: Iterable[StreamEntry], addresses: Mapping[str, Collection[str]], present: Collection[str]
) -> dict[ServiceName, list[ServiceInstance]]:
    """
    Return the instances of all services, with their nodes.

    Args:
        entries: The entries in the registry.
        addresses: The addresses that each node reports, from `find_addresses`.
        present: The nodes that are present.
    """
    owners: dict[str, list[str]] = {}
    for node, own in addresses.items():
        for address in own:
            owners.setdefault(address, []).append(node)
    # cache the result per address, because a node registers many services at each of its addresses
    known: dict[str, tuple[tuple[str, ...], bool]] = {}
    found: dict[ServiceName, list[ServiceInstance]] = {}
    for one in entries:
        read = _read(one)
        if read is None:
            continue
        service, address, priority = read
        if address not in known:
            nodes = tuple(owners.get(_normal(address), ()))
            known[address] = nodes, not nodes or any(node in present for node in nodes)
        nodes, is_up = known[address]
        instance = ServiceInstance(
            nodes=nodes, is_healthy=one.entry is not None and is_up, priority=priority, address=address
        )
        found.setdefault(service, []).append(instance)
    return found


def _read(one: StreamEntry) -> tuple[ServiceName, str, int] | None:
    if one.entry is not None:
        entry = one.entry
        return ServiceName(entry.cluster, entry.protocol, entry.service), entry.address, entry.priority
    if one.reason != EXPIRED:
        return None
    try:
        cluster, protocol, service, address = parse_registration(one.subject)
    except ProtocolError:
        return None
    return ServiceName(cluster, protocol, service), address, 0


def _texts(network: Mapping[str, Any]) -> Iterator[str]:
    """Return the values that may be addresses of the node itself. Gateways and other hosts at deeper levels are not included."""
    for value in network.values():
        for text in value if isinstance(value, list) else (value,):
            if isinstance(text, str):
                yield text
    for entry in _mappings(network.get("addresses")):
        yield str(entry.get("address", ""))
    for interface in _mappings(network.get("interfaces")):
        for entry in _mappings(interface.get("addrs")):
            yield str(entry.get("addr", ""))


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    return (one for one in (value if isinstance(value, list) else ()) if isinstance(one, Mapping))


def _normal(text: str) -> str:
    """Return an address in its normalized form, without its prefix length. "": it is not an address, or every host has it."""
    if len(text) > _LONGEST:
        return ""
    try:
        address = ip_address(text.partition("/")[0])
    except ValueError:
        return ""
    return "" if address.is_loopback or address.is_unspecified else str(address)
