"""
Downloads: the `Download` port, over aiohttp.

Redirects are followed here and not by the library, for what is secret must not travel to another host with them.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ccm_agent.model.errors import DownloadError
from ccm_agent.model.ports import Transfer, Transferred
from ccm_agent.model.secret import Secret, mask_url
from ccm_agent.system.hop import Threads

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

    from ccm_agent.system.received import Received

REDIRECTS = 10
CONNECT_S = 30.0
STALL_S = 60.0
"""A server that says nothing for so long is given up; a large file may take as long as it likes while it comes."""
ATTEMPTS = 5
"""How often in a row a transfer may break off without a byte gained before it is given up."""
PAUSE_S = 2.0
CHUNK_BYTES = 1 << 16
WRITE_BYTES = 1 << 20
LARGE_BYTES = 64 << 20
"""What is larger is begun only where there is room for it."""
FILES_AT_ONCE = 4
_MOVED = frozenset({301, 302, 303, 307, 308})
_OK, _PARTIAL, _UNCHANGED, _SERVER_ERROR = 200, 206, 304, 500
_SENDABLE = re.compile(r"(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+")
"""What a URL may hold as it is sent: RFC 3986, section 2."""

OnProgress = Callable[[int, int], None]


class BrokeOffError(DownloadError):
    """A transfer ended too early, for a reason that may pass."""


class SystemDownload:
    """
    The `Download` of this host.

    Args:
        user_agent: What servers see in their logs.
        stall_s: How long a server may say nothing.
        pause_s: How long to wait before a transfer that broke off goes on.
    """

    def __init__(
        self, user_agent: str = "ccm", *, stall_s: float = STALL_S, pause_s: float = PAUSE_S
    ) -> None:
        self._user_agent = user_agent
        self._stall_s = stall_s
        self._pause_s = pause_s
        self._threads = Threads("ccm-save", FILES_AT_ONCE)

    async def fetch(self, transfer: Transfer) -> Transferred:
        """See `Download.fetch`."""
        from hashlib import sha256

        content, digest = bytearray(), sha256()
        async with self._session() as session, self._response(session, transfer, 0, "") as response:
            if response.status == _UNCHANGED:
                return _unchanged(transfer)
            async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                content += chunk
                digest.update(chunk)
                _refuse_larger(transfer, len(content))
            etag, modified = _validators(response)
        return Transferred(
            content=bytes(content),
            size_bytes=len(content),
            sha256=digest.hexdigest(),
            etag=etag,
            last_modified=modified,
        )

    async def save(self, transfer: Transfer, path: str, on_progress: OnProgress | None = None) -> Transferred:
        """See `Download.save`."""
        from ccm_agent.system.received import Received

        received = await self._threads.call(Received, path)
        try:
            async with self._session() as session:
                done = await self._receive(session, transfer, received, on_progress)
            await self._threads.call(received.discard if done.is_unchanged else received.finish)
        except BaseException:
            await self._threads.call(received.discard)
            raise
        return done

    async def _receive(
        self, session: ClientSession, transfer: Transfer, received: Received, on_progress: OnProgress | None
    ) -> Transferred:
        """The whole content, in as many attempts as bring it further."""
        idle, validator = 0, ""
        while True:
            had = received.size_bytes
            try:
                async with self._response(session, transfer, had, validator) as response:
                    if response.status == _UNCHANGED:
                        return _unchanged(transfer)
                    etag, modified = _validators(response)
                    validator = modified if etag.startswith("W/") or not etag else etag
                    await self._take(transfer, response, received, on_progress)
                return Transferred(
                    size_bytes=received.size_bytes, sha256=received.sha256, etag=etag, last_modified=modified
                )
            except BrokeOffError:
                idle = 0 if received.size_bytes > had else idle + 1
                if not received.size_bytes or idle >= ATTEMPTS:
                    raise
                await asyncio.sleep(self._pause_s)

    async def _take(
        self,
        transfer: Transfer,
        response: ClientResponse,
        received: Received,
        on_progress: OnProgress | None,
    ) -> None:
        if response.status == _OK and received.size_bytes:
            await self._threads.call(received.restart)
        coming = response.content_length or 0
        if coming > LARGE_BYTES:
            await self._threads.call(received.make_sure_of_room, coming)
        total = received.size_bytes + coming if coming else 0
        waiting = bytearray()
        try:
            async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                waiting += chunk
                _refuse_larger(transfer, received.size_bytes + len(waiting))
                if len(waiting) >= WRITE_BYTES:
                    data, waiting = bytes(waiting), bytearray()
                    await self._threads.call(received.add, data)
                    if on_progress:
                        on_progress(received.size_bytes, total)
        finally:
            await self._threads.call(
                received.add, bytes(waiting)
            )  # what came before it broke off need not come again
        if on_progress:
            on_progress(received.size_bytes, total)

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[ClientSession]:
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar

        timeout = ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=self._stall_s)
        async with ClientSession(
            timeout=timeout, cookie_jar=DummyCookieJar(), auto_decompress=False
        ) as session:
            yield session

    @asynccontextmanager
    async def _response(
        self, session: ClientSession, transfer: Transfer, had: int, validator: str
    ) -> AsyncIterator[ClientResponse]:
        """An answer with content, or one that says that nothing has changed. What goes wrong while it is read is ours too."""
        from aiohttp import ClientError

        shown = mask_url(transfer.url)
        try:
            async with await self._ask(
                session, transfer, self._headers(transfer, had, validator)
            ) as response:
                self._refuse_answer(transfer, response, had)
                yield response
        except ClientError as err:
            raise BrokeOffError(
                f"{shown}: {self._reason(err)}"
            ) from None  # it may show the URL as it was given

    async def _ask(
        self, session: ClientSession, transfer: Transfer, headers: dict[str, str]
    ) -> ClientResponse:
        """The first answer that is no redirect."""
        try:
            first = _as_url(transfer.url)
        except ValueError:
            raise DownloadError(f"{mask_url(transfer.url)}: this is not a URL") from None
        _refuse_scheme(transfer, first)
        secret, basic = _secret_headers(transfer), _basic(transfer, first)
        url = first = first.with_user(None).with_fragment(None)
        for _ in range(REDIRECTS + 1):
            own = {**basic, **secret} if _is_own(first, url) else {}
            try:
                response = await session.get(
                    url, headers={**headers, **own}, allow_redirects=False, proxy=_proxy(url)
                )
            except ValueError:  # a line feed in a header, for instance, which may be secret
                raise DownloadError(
                    f"{mask_url(transfer.url)}: this URL or its headers cannot be sent"
                ) from None
            location = response.headers.get("Location", "")
            if response.status not in _MOVED or not location:
                return response
            response.release()
            basic = {}  # user name and password go to the URL that they were given for alone, as Go's client has it
            try:
                following = url.join(_as_url(location))
            except ValueError:
                raise DownloadError(f"{mask_url(transfer.url)}: redirects to what is no URL") from None
            _refuse_scheme(transfer, following)
            if (url.scheme, following.scheme) == ("https", "http"):
                raise DownloadError(
                    f"{mask_url(transfer.url)}: redirects from https to http at {following.host}, which is not followed"
                )
            url = following.with_user(None).with_fragment(None)
        raise DownloadError(f"{mask_url(transfer.url)}: redirects more than {REDIRECTS} times")

    def _headers(self, transfer: Transfer, had: int, validator: str) -> dict[str, str]:
        # what is compressed on the way could neither be checked against a digest nor go on in the middle
        headers = {"User-Agent": self._user_agent, "Accept-Encoding": "identity"}
        if had and validator:
            headers |= {"Range": f"bytes={had}-", "If-Range": validator}
        elif not had and transfer.etag:
            headers["If-None-Match"] = transfer.etag
        elif not had and transfer.last_modified:
            headers["If-Modified-Since"] = transfer.last_modified
        return headers

    def _refuse_answer(self, transfer: Transfer, response: ClientResponse, had: int) -> None:
        status, shown = response.status, mask_url(transfer.url)
        if status == _UNCHANGED and not had and (transfer.etag or transfer.last_modified):
            return
        if status == _PARTIAL and had:
            if not response.headers.get("Content-Range", "").startswith(f"bytes {had}-"):
                raise DownloadError(f"{shown}: the server went on at another place than it was asked to")
        elif status != _OK:
            error = BrokeOffError if status >= _SERVER_ERROR and had else DownloadError
            raise error(f"{shown}: the server answered {status} {response.reason or ''}".rstrip())
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise DownloadError(f"{shown}: the server compressed its answer, although it was asked not to")
        _refuse_larger(transfer, had * (status == _PARTIAL) + (response.content_length or 0))

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
            return f"cannot connect to {err.host}:{err.port}: {err.os_error.strerror or err.os_error}"
        if isinstance(err, ServerTimeoutError):
            return f"the server said nothing for {self._stall_s:g} s"
        if isinstance(err, ClientPayloadError):
            return "the transfer broke off"
        return f"the transfer broke off: {type(err).__name__}"


def _as_url(text: str) -> URL:
    """
    A URL, or part of one, which is sent as it is written.

    The library would write it anew in a spelling of its own, and a server may tell `%2f` from `%2F` and from `/`, or have signed
    what it was asked for. Only what cannot be sent as it stands, such as a space, is written anew.
    """
    from yarl import URL

    return URL(text, encoded=_SENDABLE.fullmatch(text) is not None)


def _unchanged(transfer: Transfer) -> Transferred:
    return Transferred(is_unchanged=True, etag=transfer.etag, last_modified=transfer.last_modified)


def _validators(response: ClientResponse) -> tuple[str, str]:
    return response.headers.get("ETag", ""), response.headers.get("Last-Modified", "")


def _refuse_larger(transfer: Transfer, size_bytes: int) -> None:
    if size_bytes > transfer.limit_bytes:
        raise DownloadError(
            f"{mask_url(transfer.url)}: is larger than {transfer.limit_bytes} bytes, the limit"
        )


def _refuse_scheme(transfer: Transfer, url: URL) -> None:
    if url.scheme not in ("http", "https") or not url.host:
        raise DownloadError(
            f"{mask_url(transfer.url)}: leads to {url.scheme or 'no'}:, and only http and https are fetched"
        )


def _is_own(first: URL, url: URL) -> bool:
    """Whether what is secret may be sent there: the host that it is meant for, or the same host grown safe."""
    if url.host != first.host:
        return False
    return (url.scheme, url.port) == (first.scheme, first.port) or (first.scheme, url.scheme) == (
        "http",
        "https",
    )


def _secret_headers(transfer: Transfer) -> dict[str, str]:
    return {name: _plain(value) for name, value in transfer.headers.items()}


def _basic(transfer: Transfer, url: URL) -> dict[str, str]:
    """Basic authentication, unless a header says who asks."""
    user, password = transfer.username or url.user or "", _plain(transfer.password or url.password or "")
    if not (user or password) or any(name.lower() == "authorization" for name in transfer.headers):
        return {}
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {token}"}


def _plain(value: str | Secret) -> str:
    return value.reveal() if isinstance(value, Secret) else value


def _proxy(url: URL) -> str | None:
    """The proxy that the environment names for a URL, as curl and Go take it; aiohttp's own way would read ~/.netrc too."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    if not proxies or proxy_bypass(url.host or ""):
        return None
    return proxies.get(url.scheme)
