"""
Data from the web that outlives the web server: what was fetched once is kept on disk, and stands when it cannot be had.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from ccm_agent.agent.cache.state_file import load_state, save_state
from ccm_agent.model.errors import DownloadError, FileError
from ccm_agent.model.ports import Download, Transfer, Transferred
from ccm_agent.model.secret import mask_url

log = logging.getLogger(__name__)

FETCH_S = 60.0
"""A server that sends a byte now and then must not keep a run from beginning."""


class _Kept(Struct, kw_only=True):
    url: str
    content: bytes
    sha256: str
    etag: str = ""
    last_modified: str = ""


class CachedDownload:
    """A `Download` for small documents, which answers from disk while the server does not; `save` it passes on."""

    def __init__(self, inner: Download, folder: Path) -> None:
        """
        Nothing is fetched yet.

        Args:
            inner: The web.
            folder: Where documents are kept.
        """
        self._inner = inner
        self._folder = folder

    async def fetch(self, transfer: Transfer) -> Transferred:
        """See `Download.fetch`; the last good document while the newest one cannot be had, and for what has not changed."""
        name = mask_url(transfer.url)
        path = self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"
        kept = await asyncio.to_thread(load_state, path, _Kept)
        if kept is not None and (kept.url != name or hashlib.sha256(kept.content).hexdigest() != kept.sha256):
            kept = None
        asked = transfer
        if kept is not None:
            asked = Transfer(
                url=transfer.url,
                headers=transfer.headers,
                username=transfer.username,
                password=transfer.password,
                etag=kept.etag,
                last_modified=kept.last_modified,
                limit_bytes=transfer.limit_bytes,
            )
        try:
            done = await self._fetch(asked)
        except DownloadError as err:
            if kept is None:
                raise
            log.warning("the last good document stands", extra={"url": name, "reason": str(err)})
            return _answer(kept)
        if kept is not None and (done.is_unchanged or done.sha256 == kept.sha256):
            return _answer(kept)
        await self._keep(path, name, done)
        return done

    async def save(
        self, transfer: Transfer, path: str, on_progress: Callable[[int, int], None] | None = None
    ) -> Transferred:
        """See `Download.save`."""
        return await self._inner.save(transfer, path, on_progress)

    async def _fetch(self, transfer: Transfer) -> Transferred:
        try:
            async with asyncio.timeout(FETCH_S):
                return await self._inner.fetch(transfer)
        except TimeoutError:
            raise DownloadError(
                f"{mask_url(transfer.url)}: not fetched in {FETCH_S:g} s; is the server slow?"
            ) from None

    async def _keep(self, path: Path, name: str, done: Transferred) -> None:
        kept = _Kept(
            url=name,
            content=done.content,
            sha256=done.sha256,
            etag=done.etag,
            last_modified=done.last_modified,
        )
        try:
            await save_state(path, kept)
        except FileError as err:
            log.warning("a document is not kept on disk", extra={"reason": str(err)})


def _answer(kept: _Kept) -> Transferred:
    return Transferred(
        content=kept.content,
        size_bytes=len(kept.content),
        sha256=kept.sha256,
        etag=kept.etag,
        last_modified=kept.last_modified,
    )
