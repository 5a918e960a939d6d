"""What becomes of requests between their coming and their answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ccm_agent.agent.requests import subscriptions as module
from ccm_agent.agent.requests.subscriptions import RequestQueue
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.limited_log import LINES
from ccm_agent.model.ports import IncomingRequest
from tests.support.agent import WAIT_S


class Desk:
    """Whoever looks at requests, and what was done with them in order; `broken` and `wrong` are not handled."""

    def __init__(self) -> None:
        self.inbox = RequestQueue()
        self.done: list[tuple[str, ...]] = []
        self._last = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Requests are looked at, until `last` was."""
        task = asyncio.create_task(
            self.inbox.run(self._handle, self._refused, self._handled), name="requests"
        )
        try:
            yield
            async with asyncio.timeout(WAIT_S):
                await self._last.wait()
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _handle(self, incoming: IncomingRequest) -> None:
        await asyncio.sleep(0)
        if incoming.subject == "broken":
            raise RuntimeError("no")
        if incoming.subject == "wrong":
            raise ProtocolError("no run id")
        self.done.append(("handle", incoming.subject))

    def _refused(self, subject: str, reason: str) -> None:
        self.done.append(("refuse", subject, reason))

    def _handled(self, incoming: IncomingRequest) -> None:
        self.done.append(("handled", incoming.subject))
        if incoming.subject == "unreadable":
            raise ValueError("no time")
        if incoming.subject == "last":
            self._last.set()


def request(subject: str) -> IncomingRequest:
    return IncomingRequest(subject=subject, protocol="", scope="all", body=b"")


async def test_requests_are_looked_at_one_after_the_other_in_order() -> None:
    desk = Desk()
    desk.inbox.put(request("before"))

    async with desk.open():
        desk.inbox.put(request("then"))
        desk.inbox.put(request("last"))

    assert desk.done == [
        (done, name) for name in ("before", "then", "last") for done in ("handle", "handled")
    ]
    assert desk.inbox.is_empty


async def test_a_protocol_error_is_refused_and_the_next_request_is_handled() -> None:
    desk = Desk()

    async with desk.open():
        desk.inbox.put(request("wrong"))
        desk.inbox.put(request("last"))

    assert desk.done == [
        ("refuse", "wrong", "no run id"),
        ("handled", "wrong"),
        ("handle", "last"),
        ("handled", "last"),
    ]


async def test_a_request_that_breaks_its_handler_does_not_end_the_agent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()

    async with desk.open():
        desk.inbox.put(request("broken"))
        desk.inbox.put(request("last"))

    assert desk.done == [("handled", "broken"), ("handle", "last"), ("handled", "last")]
    assert [(record.message, record.subject) for record in caplog.records] == [  # type: ignore[attr-defined]
        ("a request could not be handled", "broken")
    ]


async def test_an_error_after_handling_a_request_does_not_end_the_agent() -> None:
    desk = Desk()

    async with desk.open():
        desk.inbox.put(request("unreadable"))
        desk.inbox.put(request("last"))

    assert desk.done[-1] == ("handled", "last")


async def test_a_flood_of_requests_that_break_their_handler_writes_a_few_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()

    async with desk.open():
        for _ in range(50):
            desk.inbox.put(request("broken"))
        desk.inbox.put(request("last"))

    assert len(caplog.records) == LINES


async def test_of_too_many_that_wait_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INBOX_LIMIT", 2)
    desk = Desk()
    for name in ("one", "two", "last"):
        desk.inbox.put(request(name))

    async with desk.open():
        pass

    assert [one[1] for one in desk.done if one[0] == "handle"] == ["two", "last"]


async def test_a_stopping_agent_accepts_nothing_and_finishes_the_queue() -> None:
    desk = Desk()
    desk.inbox.put(request("first"))
    desk.inbox.put(request("last"))

    desk.inbox.close()
    desk.inbox.put(request("late"))
    async with desk.open():
        pass

    assert [one[1] for one in desk.done if one[0] == "handle"] == ["first", "last"]
    assert desk.inbox.is_empty
