"""Implements the `Network` port for this host, with the HTTP client and asyncio."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING

from ccm_agent.model.errors import DownloadError
from ccm_agent.model.network import HttpRequest, HttpResponse
from ccm_agent.system.http.http import ClientRequest, HttpClient, os_reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import ClientResponse

CHUNK_BYTES = 1 << 16


class SystemNetwork:
    """
    The `Network` of this host.

    Args:
        user_agent: The User-Agent header, which appears in server logs.
    """

    def __init__(self, user_agent: str = "ccm") -> None:
        self._client = HttpClient(user_agent, decompresses=True)

    async def ask(self, ask: HttpRequest) -> HttpResponse:
        request = ClientRequest(
            url=ask.url,
            method=ask.method,
            own_headers=ask.headers,
            username=ask.username,
            password=ask.password,
            keeps_credentials=True,
            body=ask.body,
            follows_redirects=ask.follows_redirects,
            proxy=lambda _url: ask.proxy or None,
            tls=lambda: _tls(ask),
        )
        async with self._client.send(request) as response:
            return await _answer(response, ask.limit_bytes)

    async def reach(self, protocol: str, host: str, port: int, local: str = "") -> str:
        loop = asyncio.get_running_loop()
        source = (local, 0) if local else None
        try:
            if protocol == "udp":
                transport, _ = await loop.create_datagram_endpoint(
                    asyncio.DatagramProtocol, local_addr=source, remote_addr=(host, port)
                )
                transport.close()
                return ""
            _, writer = await asyncio.open_connection(host, port, local_addr=source)
            writer.close()
        except (OSError, ValueError, UnicodeError) as err:
            return _reason(err)
        return ""

    async def resolve(self, host: str) -> list[str]:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return []
        return sorted({str(address[0]) for *_, address in found})

    async def records(self, server: str, port: int, name: str, record: str) -> list[str]:
        try:
            ask_server = await asyncio.to_thread(_name_servers)
            return await ask_server(server, port, name, record)
        except (OSError, ValueError) as err:
            raise DownloadError(f"{server}: {_reason(err)}") from err


def _name_servers() -> Callable[[str, int, str, str], Awaitable[list[str]]]:
    """Import the module that queries name servers. This must be called in a thread, because it imports a large library."""
    from ccm_agent.system.http.name_servers import records

    return records


async def _answer(response: ClientResponse, limit_bytes: int) -> HttpResponse:
    body = bytearray()
    async for chunk in response.content.iter_chunked(CHUNK_BYTES):
        body += chunk
        if len(body) >= limit_bytes:
            break
    return HttpResponse(
        status=response.status,
        headers=tuple(response.headers.items()),
        body=bytes(body[:limit_bytes]),
    )


def _tls(ask: HttpRequest) -> ssl.SSLContext:
    """Create the TLS context of a request. This must be called in a thread, because it reads files."""
    try:
        context = ssl.create_default_context(cafile=ask.ca_file or None)
        if not ask.verifies:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if ask.cert_file and ask.key_file:
            context.load_cert_chain(ask.cert_file, ask.key_file)
    except (OSError, ValueError) as err:
        files = ", ".join(one for one in (ask.ca_file, ask.cert_file, ask.key_file) if one)
        raise DownloadError(f"{files}: cannot be used as certificates: {_reason(err)}") from err
    return context


def _reason(err: Exception) -> str:
    return os_reason(err) if isinstance(err, OSError) else str(err) or type(err).__name__
