"""Server-sent events. There is one response per browser, which continues until the browser disconnects."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

import msgspec
from aiohttp import web

from ccm_ctl.dashboard.feed import EventFeed
from ccm_ctl.dashboard.fleet_state import FleetState
from ccm_ctl.dashboard.middleware import refusal, set_headers

log = logging.getLogger(__name__)

STREAMS = 200
"""The maximum number of pages that can be open at the same time."""

PING_S = 10.0
"""Seconds between messages that show that the connection works. A page that misses a few of them reconnects."""

WRITE_S = 20.0
"""A browser that reads nothing for this many seconds is disconnected. It can resume after its last event."""

RETRY_MS = 1000


class EventStreams:
    """The streams of all browsers."""

    def __init__(self, feed: EventFeed, state: FleetState) -> None:
        self._feed = feed
        self._state = state

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """`GET /api/stream?after=SEQUENCE`. A browser that reconnects sends `Last-Event-ID` instead."""
        if self._feed.readers >= STREAMS:
            return refusal(503, "too many pages are open")
        said = request.headers.get("Last-Event-ID") or request.query.get("after", "")
        after = int(said) if said.isascii() and said.isdigit() and len(said) < 20 else self._feed.last
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        set_headers(response)
        await response.prepare(request)
        self._feed.readers += 1
        try:
            await self._write(response, b"retry: %d\n\n" % RETRY_MS)
            await self._follow(response, after)
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._feed.readers -= 1
        return response

    async def _follow(self, response: web.StreamResponse, after: int) -> None:
        epoch = self._feed.epoch
        shown: tuple[int, bool, datetime | None] = (-1, False, None)
        while True:
            news = self._feed.news  # later events will set this object
            if self._feed.epoch != epoch or not self._feed.has(after):
                epoch, after = self._feed.epoch, self._feed.last
                await self._write(response, _message("reload", {"last": after}, after))
            after, encoded = self._feed.after(after)
            if encoded:
                await self._write(response, encoded)
            if (state := (self._state.version, self._feed.is_current, self._state.read_at)) != shown:
                shown = state
                fields = dict(zip(("version", "broker", "read"), state, strict=True))
                await self._write(response, _message("state", fields))
            if not encoded:
                await self._wait(response, news)

    async def _wait(self, response: web.StreamResponse, news: asyncio.Event) -> None:
        """Wait for events. After PING_S without events, send a message to show that the connection works."""
        try:
            async with asyncio.timeout(PING_S):
                await news.wait()
        except TimeoutError:
            await self._write(response, _message("ping", {}))

    @staticmethod
    async def _write(response: web.StreamResponse, content: bytes) -> None:
        """Write content, and wait until the browser has received most of the previous data."""
        async with asyncio.timeout(WRITE_S):
            await response.write(content)


def _message(kind: str, said: object, number: int | None = None) -> bytes:
    """Return a message of a kind. Without a number, it does not change the browser's position."""
    place = b"id: %d\n" % number if number is not None else b""
    return b"%bevent: %b\ndata: %b\n\n" % (place, kind.encode(), msgspec.json.encode(said))
