"""Inspect listening ports, addresses, host names, web servers and interfaces."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from typing import Any

from ccm_agent.health.goss.found import GossQuery, NoValue
from ccm_agent.model.errors import CommandError, DownloadError, FileError
from ccm_agent.model.network import HttpRequest, Network
from ccm_agent.model.ports import Command
from ccm_agent.model.secret import Secret

URL_MS = 5000.0
ADDRESS_MS = 500.0
NAME_MS = 10_000.0
"""The default timeout of a name lookup in milliseconds. The host's resolver may give up earlier."""
SERVER_MS = 500.0
NAME_TRIES = 3
RECORDS = frozenset({"A", "AAAA", "CAA", "CNAME", "MX", "NS", "PTR", "SRV", "SSHFP", "TXT"})
BODY_LIMIT_BYTES = 16 << 20
TABLE_LIMIT_BYTES = 64 << 20
_LISTEN = "0A"
_INTERFACE = re.compile(r"[^/\s]{1,15}")
_MAX_PORT = 65535


# ---- ports of this host ----


async def look_at_port(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`. `tcp` covers IPv4 only. `tcp6` covers IPv6 sockets, as the kernel lists them."""
    protocol, _, number = look.subject.rpartition(":")
    protocol = protocol or "tcp"
    if protocol not in ("tcp", "tcp6", "udp", "udp6") or not number.isdecimal() or int(number) > _MAX_PORT:
        raise FileError(f"`{look.subject}` is not a port: write tcp:80, tcp6:80, udp:53 or udp6:53")
    try:
        table = await look.host.files.read(f"/proc/net/{protocol}", TABLE_LIMIT_BYTES)
    except FileError:
        if not protocol.endswith("6"):
            raise
        table = b""  # the kernel does not support IPv6
    found = [address for address, port in listeners(table.decode(), protocol) if port == int(number)]
    if not found:
        return {"listening": False, "ip": NoValue("nothing listens on this port")}
    return {"listening": True, "ip": sorted(set(found))}


def listeners(table: str, protocol: str) -> list[tuple[str, int]]:
    """
    Return the addresses and ports in a table of sockets: the listening sockets for tcp, all sockets for udp.

    Source: proc_net_tcp in the kernel's documentation. An address is written as words in the machine's byte order.
    """
    found = []
    for line in table.split("\n")[1:]:
        fields = line.split()
        if len(fields) < 4 or (protocol.startswith("tcp") and fields[3] != _LISTEN):
            continue
        address, _, port = fields[1].partition(":")
        raw = bytes.fromhex(address)
        if sys.byteorder == "little":
            raw = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
        family = socket.AF_INET6 if protocol.endswith("6") else socket.AF_INET
        found.append((socket.inet_ntop(family, raw), int(port, 16)))
    return found


# ---- remote services ----


async def look_at_address(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`."""
    protocol, sign, address = look.subject.partition("://")
    if not sign:
        protocol, address = "tcp", look.subject
    host, _, port = address.rpartition(":")
    if protocol not in ("tcp", "udp") or not host or not port.isdecimal() or int(port) > _MAX_PORT:
        raise CommandError(f"`{look.subject}` is not an address: write tcp://host:80 or udp://host:53")
    network: Network = look.host.port("network")
    local = str(look.options.get("local-address", ""))
    try:
        async with asyncio.timeout(look.limit_s(ADDRESS_MS)):
            why_not = await network.reach(protocol, host.strip("[]"), int(port), local)
    except TimeoutError:
        why_not = "no answer in time"
    return {"reachable": not why_not}


async def look_at_name(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`. Queries the host's resolver, or the server that the rule names."""
    network: Network = look.host.port("network")
    record, _, name = look.subject.partition(":")
    if record not in RECORDS:
        record, name = "", look.subject
    server = str(look.options.get("server") or "")
    if record and not server:
        raise CommandError(f"{record} records require a `server`")
    try:
        if server:
            addresses = await _records(look, network, server, name, (record,) if record else ("A", "AAAA"))
        else:
            async with asyncio.timeout(look.limit_s(NAME_MS)):
                addresses = await network.resolve(name)
    except TimeoutError:
        return dict.fromkeys(look.asked, NoValue("no answer in time"))
    except DownloadError as err:
        return dict.fromkeys(look.asked, NoValue(err.message))
    return {
        "resolvable": bool(addresses),
        "addrs": addresses or NoValue("the name cannot be resolved"),
    }


async def _records(
    look: GossQuery, network: Network, server: str, name: str, records: tuple[str, ...]
) -> list[str]:
    """Query a DNS server, with a few retries because datagrams can get lost. TimeoutError if it never answers."""
    host, _, port = server.rpartition(":")
    if not port.isdecimal() or (":" in host and not host.startswith("[")):
        host, port = server, "53"
    found: list[str] = []
    for record in records:
        for attempt in range(1, NAME_TRIES + 1):
            try:
                async with asyncio.timeout(look.limit_s(SERVER_MS)):
                    found += await network.records(host.strip("[]"), int(port), name, record)
                break
            except TimeoutError:
                if attempt == NAME_TRIES:
                    raise
    return sorted(found)


async def look_at_url(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`. If the server does not answer, the rule fails, but the check is not UNKNOWN."""
    network: Network = look.host.port("network")
    limit_s = look.limit_s(URL_MS)
    try:
        async with asyncio.timeout(limit_s):
            answer = await network.ask(_question(look))
    except TimeoutError:
        return dict.fromkeys(look.asked, NoValue(f"no answer within {limit_s:g} s"))
    except DownloadError as err:
        return dict.fromkeys(look.asked, NoValue(err.message))
    return {
        "status": answer.status,
        "headers": "\n".join(sorted(f"{_canonical(name)}: {value}" for name, value in answer.headers)),
        "body": answer.body.decode(errors="replace"),
    }


def _question(look: GossQuery) -> HttpRequest:
    options = look.options
    headers = [text.partition(": ") for text in options.get("request-headers", [])]

    def text(key: str) -> str:
        return str(options.get(key) or "")

    return HttpRequest(
        url=look.subject,
        method=text("method").upper() or "GET",
        headers=tuple((name, value) for name, _, value in headers),
        body=text("request-body").encode(),
        username=text("username"),
        password=Secret(text("password")) if text("password") else None,
        follows_redirects=not options.get("no-follow-redirects"),
        verifies=not options.get("allow-insecure"),
        ca_file=text("ca-file"),
        cert_file=text("cert-file"),
        key_file=text("key-file"),
        proxy=text("proxy"),
        limit_bytes=BODY_LIMIT_BYTES,
    )


def _canonical(name: str) -> str:
    """Return a header's name in Go's spelling, which goss rules use."""
    return "-".join(part.capitalize() for part in name.split("-"))


# ---- interfaces ----


async def look_at_interface(look: GossQuery) -> dict[str, Any]:
    """See `LookAt`."""
    name = look.subject
    if not _INTERFACE.fullmatch(name) or name in (".", "..") or name.startswith("-"):
        raise CommandError(f"`{name}` is not the name of an interface")
    directory = f"/sys/class/net/{name}"
    found = (await look.host.files.inspect([directory], digest=False))[0]
    if found.kind == "absent":
        return {**dict.fromkeys(look.asked, NoValue("there is no such interface")), "exists": False}
    values: dict[str, Any] = {"exists": True}
    if "mtu" in look.asked:
        values["mtu"] = int(await look.host.files.read(f"{directory}/mtu", 64))
    if "addrs" in look.asked:
        values["addrs"] = await _addresses(look, name)
    return values


async def _addresses(look: GossQuery, name: str) -> list[str]:
    done = await look.host.runner.run(
        Command(argv=("ip", "-j", "address", "show", "dev", name), time_limit_s=10)
    )
    try:
        devices = json.loads(done.stdout)
        return [
            f"{one['local']}/{one['prefixlen']}" for device in devices for one in device.get("addr_info", [])
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise CommandError(f"ip does not report the addresses of {name}") from err
