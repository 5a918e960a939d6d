"""`network`: interfaces, their addresses, and the default addresses."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from ccm_agent.facts.netlink import Address, Link, ask

_FLAGS = ((0x1, "up"), (0x2, "broadcast"), (0x8, "loopback"), (0x10, "pointtopoint"), (0x1000, "multicast"))

# No packet is sent. Connecting a datagram socket only makes the kernel choose a route.
_FAR_IPV4 = (socket.AF_INET, ("1.1.1.1", 53))
_FAR_IPV6 = (socket.AF_INET6, ("2001:4860:4860::8888", 53))


def gather() -> dict[str, Any]:
    """Return the `network` family, as the kernel reports it."""
    links, addresses = ask()
    return shape(links, addresses, _way_out(*_FAR_IPV4), _way_out(*_FAR_IPV6))


def shape(
    links: Sequence[Link], addresses: Sequence[Address], source_ipv4: str, source_ipv6: str
) -> dict[str, Any]:
    """
    Build the family from interfaces and addresses.

    Args:
        source_ipv4: The source address of the default route; "" without one.
        source_ipv6: The same for IPv6.

    Returns:
        The `network` family. `addresses` excludes loopback, link-local and multicast addresses. `default_ipv4`
        and `default_ipv6` are the last address of the interface with the default route.
    """
    family: dict[str, Any] = {"addresses": [], "interfaces": [], "default_ipv4": "", "default_ipv6": ""}
    ways_out = {(_owner(addresses, source_ipv4), 4), (_owner(addresses, source_ipv6), 6)}
    for link in links:
        own = [one for one in addresses if one.link == link.number]
        family["interfaces"].append(
            {
                "index": link.number,
                "mtu": link.mtu,
                "name": link.name,
                "hardwareAddr": link.hardware,
                "flags": [word for bit, word in _FLAGS if link.flags & bit],
                "addrs": [{"addr": f"{one.address}/{one.prefix}"} for one in own],
            }
        )
        for one in own:
            _add(family, link, one, (link.number, one.address.version) in ways_out)
    return family


def _add(family: dict[str, Any], link: Link, one: Address, is_default: bool) -> None:
    address = one.address
    if address.is_link_local or address.is_loopback or address.is_multicast or address.is_unspecified:
        return
    entry = {
        "interface": link.name,
        "address": str(address),
        "ipv4": address.version == 4,
        "default": is_default,
    }
    family["addresses"].append(entry)
    if is_default:
        family[f"default_ipv{address.version}"] = str(address)


def _owner(addresses: Sequence[Address], source: str) -> int:
    return next((one.link for one in addresses if source and str(one.address) == source), 0)


def _way_out(kind: int, far: tuple[str, int]) -> str:
    try:
        with socket.socket(kind, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
            probe.connect(far)
            return str(probe.getsockname()[0])
    except OSError:
        return ""
