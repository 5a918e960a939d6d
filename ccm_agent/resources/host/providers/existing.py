"""Finds the entries of /etc/hosts, for `ccm import host`."""

from __future__ import annotations

from typing import Any

from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.existing import ExistingBuilder, ExistingResources, refuse_argument
from ccm_agent.resources.host.lines import read_entries
from ccm_agent.resources.host.model import HostProperties
from ccm_agent.resources.host.resource import HOSTS, check
from ccm_agent.resources.shared_file import SharedFile

INSTALLED = frozenset(
    {
        *("localhost", "localhost.localdomain"),
        *("localhost4", "localhost4.localdomain4", "localhost6", "localhost6.localdomain6"),
        *("ip6-localhost", "ip6-loopback", "ip6-localnet", "ip6-mcastprefix"),
        *("ip6-allnodes", "ip6-allrouters", "ip6-allhosts"),
    }
)
"""The host names in entries that distributions write by default."""
OWN_ADDRESS = "127.0.1.1"
"""The address that Debian's installer assigns to the machine's own name; see Debian Reference, chapter 5."""


async def find_hosts(context: ResourceContext, argument: str) -> ExistingResources:
    """
    Return the hosts in /etc/hosts, except the default entries of distributions.

    Raises:
        UsageError: An argument was given.
        FileError: /etc/hosts cannot be read.
    """
    refuse_argument("host", argument)
    entries = read_entries(await SharedFile(context.files, context.port("locks"), "hosts").read(HOSTS))
    builder = ExistingBuilder("host", HostProperties, check)
    for name, lines in entries.items():
        first = lines[0]
        addresses = [one.address for one in lines]
        is_usual = name in INSTALLED and all(
            alias.lower() in INSTALLED for one in lines for alias in one.aliases
        )
        if is_usual or addresses == [OWN_ADDRESS]:
            continue
        if not all(one.has_aliases(list(first.aliases)) for one in lines):
            builder.leave_out(name, "its lines have different aliases")
            continue
        properties: dict[str, Any] = {"address": addresses[0] if len(addresses) == 1 else addresses}
        if first.aliases:
            properties["aliases"] = list(first.aliases)
        builder.add(name, properties)
    return builder.result()
