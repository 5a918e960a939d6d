"""
Queries a name server that is given in a health check. Other queries use the host's own resolver.

This module is imported only for such a check, because importing dnspython takes longer than most health checks.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import Any

import dns.asyncquery
import dns.exception
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
from dns.asyncbackend import get_backend


async def records(server: str, port: int, name: str, record: str) -> list[str]:
    """
    Return the sorted records of a name; [] if the name does not exist. The caller sets the timeout.

    Args:
        server, port: The name or address of the name server, and its port.
        name: The queried name. For PTR records, an address.
        record: The type of record, a key of `_TEXTS`.

    Raises:
        ValueError: The name is not valid, or the reply is unusable. The message contains the reason.
        OSError: The server cannot be reached.
    """
    try:
        question = dns.message.make_query(_name(name, record), record, use_edns=False)
        (family, *_, address), *_ = await asyncio.get_running_loop().getaddrinfo(server, port)
        # use a connected socket, because it immediately reports a port without a server
        backend: Any = get_backend("asyncio")
        async with await backend.make_socket(family, socket.SOCK_DGRAM, destination=address[:2]) as connected:
            # ignore replies that do not match the query, because anyone can send them
            answer, _ = await dns.asyncquery.udp_with_fallback(
                question, str(address[0]), port=port, ignore_errors=True, udp_sock=connected
            )
    except (dns.exception.DNSException, EOFError) as err:
        raise ValueError(str(err) or type(err).__name__) from err
    return texts(answer, record)


def texts(answer: dns.message.Message, record: str) -> list[str]:
    """
    Return the sorted records of the given type in a reply.

    Raises:
        ValueError: The reply contains an error code other than NXDOMAIN.
    """
    status = answer.rcode()
    if status == dns.rcode.NXDOMAIN:
        return []
    if status != dns.rcode.NOERROR:
        raise ValueError(f"the server answered {dns.rcode.to_text(status)}")
    kind = dns.rdatatype.from_text(record)
    return sorted(
        text
        for found in answer.answer
        if found.rdtype == kind and found.rdclass == answer.question[0].rdclass
        for one in found
        for text in _TEXTS[record](one)
    )


def _name(name: str, record: str) -> dns.name.Name:
    if record == "PTR":
        name = ipaddress.ip_address(name).reverse_pointer
    found = dns.name.from_text(name)
    if found == dns.name.root:
        raise ValueError("the name is empty")
    return found


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


_TEXTS: dict[str, Callable[[Any], list[str]]] = {
    "A": lambda one: [one.address],
    "AAAA": lambda one: [one.address],
    "CAA": lambda one: [f"{one.flags} {_text(one.tag)} {_text(one.value)}"],
    "CNAME": lambda one: [str(one.target)],
    "MX": lambda one: [f"{one.preference} {one.exchange}"],
    "NS": lambda one: [str(one.target)],
    "PTR": lambda one: [str(one.target)],
    "SRV": lambda one: [f"{one.priority} {one.weight} {one.port} {one.target}"],
    "SSHFP": lambda one: [f"{one.algorithm} {one.fp_type} {one.fingerprint.hex().upper()}"],
    "TXT": lambda one: [_text(part) for part in one.strings],
}
"""Functions that format the records of each type, like goss."""
