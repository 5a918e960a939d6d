"""A fake `Download` with contents by URL."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from msgspec import Struct

from ccm_agent.model.errors import DownloadError
from ccm_agent.model.ports import Transfer, Transferred
from ccm_agent.model.secret import mask_url


class _Served(Struct, frozen=True, kw_only=True):
    content: bytes
    etag: str
    status: int


class FakeDownload:
    """
    A `Download` that returns the content that a test has set.

    Attributes:
        transfers: The requests, in order.
        saved: The contents that `save` received, by path.
        write: Called with the path and content of each saved file, to add it to the test's files.
    """

    def __init__(self, write: Callable[[str, bytes], None] | None = None) -> None:
        self.transfers: list[Transfer] = []
        self.saved: dict[str, bytes] = {}
        self.write = write
        self._served: dict[str, _Served] = {}

    def serve(self, url: str, content: bytes = b"", *, etag: str = "", status: int = 200) -> None:
        """Set the content of a URL."""
        self._served[url] = _Served(content=content, etag=etag, status=status)

    async def fetch(self, transfer: Transfer) -> Transferred:
        """See `Download.fetch`."""
        self.transfers.append(transfer)
        shown = mask_url(transfer.url)
        served = self._served.get(transfer.url, _Served(content=b"", etag="", status=404))
        if served.status != 200:
            raise DownloadError(f"{shown}: the server answered {served.status}")
        if served.etag and served.etag == transfer.etag:
            return Transferred(is_unchanged=True, etag=served.etag)
        if len(served.content) > transfer.limit_bytes:
            raise DownloadError(f"{shown}: is larger than {transfer.limit_bytes} bytes, the limit")
        return Transferred(
            content=served.content,
            size_bytes=len(served.content),
            sha256=hashlib.sha256(served.content).hexdigest(),
            etag=served.etag,
        )

    async def save(
        self, transfer: Transfer, path: str, on_progress: Callable[[int, int], None] | None = None
    ) -> Transferred:
        """See `Download.save`."""
        done = await self.fetch(transfer)
        if done.is_unchanged:
            return done
        self.saved[path] = done.content
        if self.write:
            self.write(path, done.content)
        if on_progress:
            on_progress(done.size_bytes, done.size_bytes)
        return Transferred(size_bytes=done.size_bytes, sha256=done.sha256, etag=done.etag)
