"""A fake `Network` with scripted answers."""

from __future__ import annotations

import asyncio

from ccm_agent.model.errors import DownloadError
from ccm_agent.model.network import HttpRequest, HttpResponse


class FakeNetwork:
    """
    A `Network` with scripted answers.

    Attributes:
        answers: Answers by URL. A string is the reason of a failure. With None, the server never answers.
        listening: The reachable endpoints, as `tcp://host:port`.
        names: Addresses by name.
        zones: Records by server, name and type.
        asked: The requests, in order.
    """

    def __init__(self) -> None:
        self.answers: dict[str, HttpResponse | str | None] = {}
        self.listening: set[str] = set()
        self.names: dict[str, list[str]] = {}
        self.zones: dict[tuple[str, str, str], list[str]] = {}
        self.asked: list[HttpRequest] = []

    async def ask(self, ask: HttpRequest) -> HttpResponse:
        """See `Network.ask`."""
        self.asked.append(ask)
        answer = self.answers.get(ask.url, "connection refused")
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, HttpResponse):
            return answer
        raise DownloadError(f"{ask.url}: {answer}")

    async def reach(self, protocol: str, host: str, port: int, local: str = "") -> str:
        """See `Network.reach`."""
        return "" if f"{protocol}://{host}:{port}" in self.listening else "connection refused"

    async def resolve(self, host: str) -> list[str]:
        """See `Network.resolve`."""
        return sorted(self.names.get(host, []))

    async def records(self, server: str, port: int, name: str, record: str) -> list[str]:
        """See `Network.records`."""
        if not any(known == f"{server}:{port}" for known, _, _ in self.zones):
            raise DownloadError(f"{server}: connection refused")
        return sorted(self.zones.get((f"{server}:{port}", name, record), []))
