"""The network of this host: the `Network` port, over aiohttp and asyncio."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from ccm_agent.model.errors import DownloadError
from ccm_agent.model.network import Answer, Ask
from ccm_agent.model.secret import mask_url

if TYPE_CHECKING:
    import ssl

    from aiohttp import ClientResponse, ClientSession

REDIRECTS = 10
CHUNK_BYTES = 1 << 16
_MOVED = frozenset({301, 302, 303, 307, 308})
_BECOMES_GET = frozenset({301, 302, 303})
_SCHEMES = ("http", "https")


class SystemNetwork:
    """
    The `Network` of this host.

    Args:
        user_agent: What servers see in their logs.
    """

    def __init__(self, user_agent: str = "ccm") -> None:
        self._user_agent = user_agent

    async def ask(self, ask: Ask) -> Answer:
        """See `Network.ask`."""
        from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

        shown = mask_url(ask.url)
        context = await asyncio.to_thread(_tls, ask) if ask.url.startswith("https") else None
        try:
            async with ClientSession(
                timeout=ClientTimeout(total=None),
                cookie_jar=DummyCookieJar(),
                connector=TCPConnector(force_close=True),
            ) as session:
                return await self._follow(session, ask, context)
        except (ClientError, OSError, ValueError) as err:
            # its own words may show the URL as it was given
            raise DownloadError(f"{shown}: {_reason(err)}") from None

    async def reach(self, protocol: str, host: str, port: int, local: str = "") -> str:
        """See `Network.reach`."""
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
        """See `Network.resolve`."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return []
        return sorted({str(address[0]) for *_, address in found})

    async def records(self, server: str, port: int, name: str, record: str) -> list[str]:
        """See `Network.records`."""
        from ccm_agent.system import dns

        try:
            asked = dns.question(name, record, secrets.randbelow(1 << 16))
            try:
                return dns.answers(await _over_udp(server, port, asked), asked, record)
            except dns.TruncatedError:
                return dns.answers(await _over_tcp(server, port, asked), asked, record)
        except (OSError, ValueError, EOFError, dns.TruncatedError) as err:
            raise DownloadError(f"{server}: {_reason(err)}") from err

    async def _follow(self, session: ClientSession, ask: Ask, context: ssl.SSLContext | None) -> Answer:
        from yarl import URL

        url, method, body, is_own = ask.url, ask.method, ask.body, True
        for _ in range(REDIRECTS + 1):
            if urlsplit(url).scheme not in _SCHEMES:
                raise ValueError("only http and https can be asked")
            async with session.request(
                method,
                URL(url, encoded="%" in url),
                headers=self._headers(ask, is_own),
                data=body or None,
                allow_redirects=False,
                ssl=context if context is not None else True,
                proxy=ask.proxy or None,
            ) as response:
                target = response.headers.get("Location", "")
                if not ask.follows_redirects or response.status not in _MOVED or not target:
                    return await _answer(response, ask.limit_bytes)
                status = response.status
            following = urljoin(url, target)
            if url.startswith("https:") and not following.startswith("https:"):
                raise ValueError("the server redirects from https to something else")
            is_own = is_own and _origin(following) == _origin(url)
            if status in _BECOMES_GET and method != "HEAD":
                method, body = "GET", b""
            url = following
            if context is None and url.startswith("https:"):
                context = await asyncio.to_thread(_tls, ask)
        raise ValueError(f"the server redirects more than {REDIRECTS} times")

    def _headers(self, ask: Ask, is_own: bool) -> list[tuple[str, str]]:
        import base64

        given = list(ask.headers) if is_own else []
        if is_own and (ask.username or ask.password):
            password = ask.password.reveal() if ask.password else ""
            token = base64.b64encode(f"{ask.username}:{password}".encode()).decode()
            given = [one for one in given if one[0].lower() != "authorization"]
            given.append(("Authorization", f"Basic {token}"))
        if not any(name.lower() == "user-agent" for name, _ in given):
            given.append(("User-Agent", self._user_agent))
        return given


class _Heard(asyncio.DatagramProtocol):
    """The first datagram that comes, or why none can."""

    def __init__(self) -> None:
        self.data: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: object) -> None:
        if not self.data.done():
            self.data.set_result(data)

    def error_received(self, exc: Exception) -> None:
        if not self.data.done():
            self.data.set_exception(exc)


async def _over_udp(server: str, port: int, asked: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    # connected, so nobody else's answer is heard
    transport, heard = await loop.create_datagram_endpoint(_Heard, remote_addr=(server, port))
    try:
        transport.sendto(asked)
        return await heard.data
    finally:
        transport.close()


async def _over_tcp(server: str, port: int, asked: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(server, port)
    try:
        writer.write(len(asked).to_bytes(2) + asked)
        return await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
    finally:
        writer.close()


async def _answer(response: ClientResponse, limit_bytes: int) -> Answer:
    body = bytearray()
    async for chunk in response.content.iter_chunked(CHUNK_BYTES):
        body += chunk
        if len(body) >= limit_bytes:
            break
    return Answer(
        status=response.status,
        headers=tuple(response.headers.items()),
        body=bytes(body[:limit_bytes]),
    )


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def _tls(ask: Ask) -> ssl.SSLContext:
    """What a server must show, and what we show it. Reads files: belongs into a thread."""
    import ssl

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
    from aiohttp import ClientConnectorError, InvalidURL

    if isinstance(err, InvalidURL):
        return "this is no URL"
    if isinstance(err, ClientConnectorError):
        err = err.os_error
    if isinstance(err, OSError):
        if err.errno and err.errno > 0:
            return os.strerror(err.errno).lower()  # asyncio's own words hold the address as a tuple
        return err.strerror or str(err) or type(err).__name__
    return str(err) or type(err).__name__
