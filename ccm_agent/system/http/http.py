"""
The HTTP client for downloads and health checks, based on aiohttp.

This module follows redirects itself, without the library, so that secrets are not sent to another host.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.model.errors import DownloadError
from ccm_agent.model.secret import Secret, mask_url

if TYPE_CHECKING:
    import ssl

    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

REDIRECTS = 10
CONNECT_S = 30.0
_MOVED = frozenset({301, 302, 303, 307, 308})
_BECOMES_GET = frozenset({301, 302, 303})
_SENDABLE = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")
"""Matches a URL that can be sent unchanged: it has only the characters of RFC 3986, section 2."""


class TransferInterruptedError(DownloadError):
    """A transfer was interrupted; a retry may succeed."""


class ClientRequest(Struct, frozen=True, kw_only=True):
    """
    An HTTP request.

    Attributes:
        url: An http or https URL. Its user name and password are used if `username` and `password` are not given.
        method: The method, in uppercase.
        headers: Headers that are sent with every request.
        own_headers: Headers that are sent only to the URL's own host and port, because they may be secret.
        username, password: Basic authentication. It is only sent with the first request, and only if no header contains
            authentication.
        keeps_credentials: Whether Basic authentication replaces such a header, and is also sent after a redirect to the same host
            and port.
        body: The request body.
        follows_redirects: Whether to follow up to ten redirects. If not, the redirect itself is returned.
        proxy: Returns the proxy for a URL.
        tls: Creates the TLS context. It may block. None for the library's default.
    """

    url: str
    method: str = "GET"
    headers: Sequence[tuple[str, str]] = ()
    own_headers: Sequence[tuple[str, Secret | str]] = ()
    username: str = ""
    password: Secret | None = None
    keeps_credentials: bool = False
    body: bytes = b""
    follows_redirects: bool = True
    proxy: Callable[[URL], str | None] = lambda _url: None
    tls: Callable[[], ssl.SSLContext] | None = None


class HttpClient:
    """
    Sends requests.

    Args:
        user_agent: The User-Agent header, which appears in server logs.
        stall_s: The maximum time without data from the server, in seconds; None for no limit.
        decompresses: Whether to decompress the response.
    """

    def __init__(self, user_agent: str, *, stall_s: float | None = None, decompresses: bool = False) -> None:
        self._user_agent = user_agent
        self._stall_s = stall_s
        self._decompresses = decompresses

    @asynccontextmanager
    async def send(self, request: ClientRequest) -> AsyncIterator[ClientResponse]:
        """
        Yield the first response that is not a redirect. Reading its content can raise the same errors.

        Raises:
            DownloadError: The URL cannot be requested, or a redirect is not allowed.
            TransferInterruptedError: The connection failed or was interrupted.
        """
        from aiohttp import ClientError

        shown = mask_url(request.url)
        try:
            async with self._session() as session, await self._follow(session, request) as response:
                yield response
        except ClientError as err:
            # the library's message may contain the URL with its secrets
            raise TransferInterruptedError(f"{shown}: {self._reason(err)}") from None

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[ClientSession]:
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar

        timeout = ClientTimeout(
            total=None, sock_connect=CONNECT_S if self._stall_s else None, sock_read=self._stall_s
        )
        async with ClientSession(
            timeout=timeout, cookie_jar=DummyCookieJar(), auto_decompress=self._decompresses
        ) as session:
            yield session

    async def _follow(self, session: ClientSession, request: ClientRequest) -> ClientResponse:
        shown = mask_url(request.url)
        first = _first_url(request)
        method, body = request.method, request.body
        own, once = _own_headers(request, first)
        url = first = first.with_user(None).with_fragment(None)
        tls: ssl.SSLContext | bool = True
        for _ in range(REDIRECTS + 1):
            if url.scheme == "https" and tls is True and request.tls is not None:
                tls = await asyncio.to_thread(request.tls)
            headers = [*request.headers, *once, *(own if is_own(first, url) else ())]
            if not any(name.lower() == "user-agent" for name, _ in headers):
                headers.append(("User-Agent", self._user_agent))
            try:
                response = await session.request(
                    method,
                    url,
                    headers=headers,
                    data=body or None,
                    allow_redirects=False,
                    ssl=tls,
                    proxy=request.proxy(url),
                )
            except ValueError:  # for example, a line feed in a header; the message is omitted because the header may be secret
                raise DownloadError(f"{shown}: this URL or its headers cannot be sent") from None
            location = response.headers.get("Location", "")
            if not request.follows_redirects or response.status not in _MOVED or not location:
                return response
            response.release()
            once = []
            if response.status in _BECOMES_GET and method != "HEAD":
                method, body = "GET", b""
            url = redirected(shown, url, location)
        raise DownloadError(f"{shown}: redirects more than {REDIRECTS} times")

    def _reason(self, err: Exception) -> str:
        from aiohttp import (
            ClientConnectorCertificateError,
            ClientConnectorError,
            ClientPayloadError,
            InvalidURL,
            ServerTimeoutError,
        )

        if isinstance(err, InvalidURL):
            return "this is not a URL"
        if isinstance(err, ClientConnectorCertificateError):
            return f"the certificate of {err.host} cannot be trusted: {err.certificate_error}"
        if isinstance(err, ClientConnectorError):
            return f"cannot connect to {err.host}:{err.port}: {os_reason(err.os_error)}"
        if isinstance(err, ServerTimeoutError) and self._stall_s:
            return f"the server sent nothing for {self._stall_s:g} s"
        if isinstance(err, ClientPayloadError):
            return "the transfer was interrupted"
        return f"the transfer was interrupted: {type(err).__name__}"


def os_reason(err: OSError) -> str:
    """Return the kernel's message, because asyncio's message contains the address as a tuple."""
    if err.errno and err.errno > 0:
        return os.strerror(err.errno).lower()
    return err.strerror or str(err) or type(err).__name__


def _first_url(request: ClientRequest) -> URL:
    shown = mask_url(request.url)
    try:
        url = _as_url(request.url)
    except ValueError:
        raise DownloadError(f"{shown}: this is not a URL") from None
    _refuse_scheme(shown, url)
    return url


def redirected(shown: str, url: URL, location: str) -> URL:
    """
    Return the target of a redirect.

    Args:
        shown: The first URL, without secrets, for errors.
        url: The URL that redirects.
        location: The target of the redirect.

    Raises:
        DownloadError: The redirect must not be followed: its target is not an http or https URL, or it leads from https to http.
    """
    try:
        following = url.join(_as_url(location))
    except ValueError:
        raise DownloadError(f"{shown}: redirects to an invalid URL") from None
    _refuse_scheme(shown, following)
    if (url.scheme, following.scheme) == ("https", "http"):
        raise DownloadError(
            f"{shown}: redirects from https to http at {following.host}, and this is not allowed"
        )
    return following.with_user(None).with_fragment(None)


def _as_url(text: str) -> URL:
    """
    Create a URL that is sent without normalization.

    The library would normalize the URL. However, a server may distinguish `%2f`, `%2F` and `/`, or the URL may be signed. Only
    characters that cannot be sent, such as spaces, are encoded.
    """
    from yarl import URL

    return URL(text, encoded=_SENDABLE.fullmatch(text) is not None)


def _refuse_scheme(shown: str, url: URL) -> None:
    if url.scheme not in ("http", "https") or not url.host:
        raise DownloadError(f"{shown}: leads to {url.scheme or 'no'}:, but only http and https are supported")


def is_own(first: URL, url: URL) -> bool:
    """
    Whether secrets for `first` may be sent to `url`: it has the same host and port, or it changes from port 80 to https on port
    443 of the same host.
    """
    if url.host != first.host:
        return False
    there, here = (url.scheme, url.port), (first.scheme, first.port)
    return there == here or (here, there) == (("http", 80), ("https", 443))


def _own_headers(request: ClientRequest, url: URL) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the headers for the URL's own host and port, and the headers for the first request only."""
    own = [(name, _plain(value)) for name, value in request.own_headers]
    without = [one for one in own if one[0].lower() != "authorization"]
    user, password = request.username or url.user or "", _plain(request.password or url.password or "")
    if not (user or password) or (len(own) > len(without) and not request.keeps_credentials):
        return own, []
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    basic = [("Authorization", f"Basic {token}")]
    return (without + basic, []) if request.keeps_credentials else (own, basic)


def _plain(value: Secret | str) -> str:
    return value.reveal() if isinstance(value, Secret) else value
