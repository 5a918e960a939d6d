"""Implements the `Download` port for this host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING

from ccm_agent.model.errors import DownloadError
from ccm_agent.model.ports import Transfer, Transferred
from ccm_agent.model.secret import mask_url
from ccm_agent.system.http.http import ClientRequest, HttpClient, TransferInterruptedError
from ccm_agent.system.threads import Threads

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from yarl import URL

    from ccm_agent.system.http.download_file import DownloadedFile

STALL_S = 60.0
"""A transfer fails after this many seconds without data. The total time is not limited."""
ATTEMPTS = 5
"""A transfer fails after this many consecutive interruptions without new data."""
PAUSE_S = 2.0
CHUNK_BYTES = 1 << 16
WRITE_BYTES = 1 << 20
LARGE_BYTES = 64 << 20
"""Free space is checked before larger files are downloaded."""
FILES_AT_ONCE = 4
_OK, _PARTIAL, _UNCHANGED, _SERVER_ERROR = 200, 206, 304, 500

OnProgress = Callable[[int, int], None]


class SystemDownload:
    """
    The `Download` of this host.

    Args:
        user_agent: The User-Agent header, which appears in server logs.
        stall_s: The maximum time without data, in seconds.
        pause_s: The pause before an interrupted transfer is resumed, in seconds.
    """

    def __init__(
        self, user_agent: str = "ccm", *, stall_s: float = STALL_S, pause_s: float = PAUSE_S
    ) -> None:
        self._client = HttpClient(user_agent, stall_s=stall_s)
        self._pause_s = pause_s
        self._threads = Threads("ccm-save", FILES_AT_ONCE)

    async def fetch(self, transfer: Transfer) -> Transferred:
        content, digest = bytearray(), sha256()
        async with self._response(transfer, 0, "") as response:
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
        from ccm_agent.system.http.download_file import DownloadedFile

        received = await self._threads.call(DownloadedFile, path)
        try:
            done = await self._receive(transfer, received, on_progress)
            await self._threads.call(received.discard if done.is_unchanged else received.finish)
        except BaseException:
            await self._threads.call(received.discard)
            raise
        return done

    async def _receive(
        self, transfer: Transfer, received: DownloadedFile, on_progress: OnProgress | None
    ) -> Transferred:
        """Receive the whole content. Resume after interruptions, while attempts make progress."""
        idle, validator = 0, ""
        while True:
            had = received.size_bytes
            try:
                async with self._response(transfer, had, validator) as response:
                    if response.status == _UNCHANGED:
                        return _unchanged(transfer)
                    etag, modified = _validators(response)
                    validator = modified if etag.startswith("W/") or not etag else etag
                    await self._take(transfer, response, received, on_progress)
                return Transferred(
                    size_bytes=received.size_bytes, sha256=received.sha256, etag=etag, last_modified=modified
                )
            except TransferInterruptedError:
                idle = 0 if received.size_bytes > had else idle + 1
                if not received.size_bytes or idle >= ATTEMPTS:
                    raise
                await asyncio.sleep(self._pause_s)

    async def _take(
        self,
        transfer: Transfer,
        response: ClientResponse,
        received: DownloadedFile,
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
            )  # resume after the bytes that were already received
        if on_progress:
            on_progress(received.size_bytes, total)

    @asynccontextmanager
    async def _response(self, transfer: Transfer, had: int, validator: str) -> AsyncIterator[ClientResponse]:
        """Yield a response with content, or a "not modified" response."""
        request = ClientRequest(
            url=transfer.url,
            headers=_headers(transfer, had, validator),
            own_headers=tuple(transfer.headers.items()),
            # as in Go's client, these are sent only to the original URL
            username=transfer.username,
            password=transfer.password,
            proxy=_environment_proxy,
        )
        async with self._client.send(request) as response:
            _refuse_answer(transfer, response, had)
            yield response


def _headers(transfer: Transfer, had: int, validator: str) -> list[tuple[str, str]]:
    # request uncompressed content, because compressed content cannot be verified against a digest or resumed
    headers = [("Accept-Encoding", "identity")]
    if had and validator:
        headers += [("Range", f"bytes={had}-"), ("If-Range", validator)]
    elif not had and transfer.etag:
        headers.append(("If-None-Match", transfer.etag))
    elif not had and transfer.last_modified:
        headers.append(("If-Modified-Since", transfer.last_modified))
    return headers


def _refuse_answer(transfer: Transfer, response: ClientResponse, had: int) -> None:
    status, shown = response.status, mask_url(transfer.url)
    if status == _UNCHANGED and not had and (transfer.etag or transfer.last_modified):
        return
    if status == _PARTIAL and had:
        if not response.headers.get("Content-Range", "").startswith(f"bytes {had}-"):
            raise DownloadError(f"{shown}: the server resumed at the wrong position")
    elif status != _OK:
        error = TransferInterruptedError if status >= _SERVER_ERROR and had else DownloadError
        raise error(f"{shown}: the server answered {status} {response.reason or ''}".rstrip())
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise DownloadError(
            f"{shown}: the server sent a compressed response, although this was not requested"
        )
    _refuse_larger(transfer, had * (status == _PARTIAL) + (response.content_length or 0))


def _unchanged(transfer: Transfer) -> Transferred:
    return Transferred(is_unchanged=True, etag=transfer.etag, last_modified=transfer.last_modified)


def _validators(response: ClientResponse) -> tuple[str, str]:
    return response.headers.get("ETag", ""), response.headers.get("Last-Modified", "")


def _refuse_larger(transfer: Transfer, size_bytes: int) -> None:
    if size_bytes > transfer.limit_bytes:
        raise DownloadError(
            f"{mask_url(transfer.url)}: is larger than {transfer.limit_bytes} bytes, the limit"
        )


def _environment_proxy(url: URL) -> str | None:
    """
    Return the proxy for a URL from the environment, like curl and Go. aiohttp's own lookup is not used, because it also reads
    ~/.netrc.
    """
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    if not proxies or proxy_bypass(url.host or ""):
        return None
    return proxies.get(url.scheme)
