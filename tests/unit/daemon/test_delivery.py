"""How events leave the spool: in order, each until the stream has it, and nothing stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.daemon.delivery import Delivery
from ccm_agent.daemon.segment import Kind
from ccm_agent.daemon.spool import Spool
from ccm_agent.model.errors import BusError, BusUnavailableError, ProtocolError
from ccm_agent.testing.memory_bus import MemoryBroker
from tests.support.agent import NODE, memory_bus, until


class Stream:
    """Takes events, but for those that a test has it refuse; what was tried, in order."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.refusals: dict[str, list[BusError]] = {}

    async def publish(self, subject: str, event_id: str, body: bytes) -> int:
        self.tried.append(event_id)
        if errors := self.refusals.get(event_id):
            raise errors.pop(0)
        return len(self.tried)


class Sender:
    """A spool and what empties it into a stream."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stream = Stream()
        self.lost: list[int] = []
        self.spool = Spool(folder, limit_bytes=1 << 20, segment_bytes=2000)
        link = memory_bus(MemoryBroker(), NODE).link
        events: Any = self.stream
        self.delivery = Delivery(self.spool, events, link, retry_s=0.001, on_lost=self._told)

    @property
    def files(self) -> list[str]:
        """The names of the spool's files, oldest first."""
        return sorted(path.name for path in self.folder.iterdir())

    def _told(self, count: int) -> None:
        self.lost.append(count)
        self.spool.reported(count)

    def put(self, *event_ids: str, kind: Kind = Kind.AGENT, size: int = 10) -> None:
        for event_id in event_ids:
            self.spool.append(subject=event_id, event_id=event_id, body=b"b" * size, kind=kind)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Events are sent, until all have left."""
        task = asyncio.create_task(self.delivery.run(), name="delivery")
        try:
            yield
            await until(lambda: not self.spool.backlog)
        finally:
            task.cancel()
            await asyncio.wait([task])
            self.spool.close()


@pytest.fixture
async def sender(tmp_path: Path) -> Sender:
    one = Sender(tmp_path / "spool")
    await asyncio.to_thread(one.spool.open)
    return one


async def test_an_event_is_sent_until_the_stream_has_it_and_none_overtakes_it(sender: Sender) -> None:
    sender.stream.refusals["a"] = [BusUnavailableError("no answer"), BusUnavailableError("no answer")]
    sender.put("a", "b")

    async with sender.open():
        pass

    assert sender.stream.tried == ["a", "a", "a", "b"]
    assert (sender.delivery.sent, sender.delivery.trouble, sender.lost) == (2, "", [])


async def test_what_the_protocol_refuses_is_given_up_after_three_tries_and_counted(sender: Sender) -> None:
    sender.stream.refusals["a"] = [ProtocolError("too large")] * 4
    sender.put("a", "b")

    async with sender.open():
        pass

    assert sender.stream.tried == ["a", "a", "a", "b"]
    assert (sender.delivery.sent, sender.lost) == (1, [1])


async def test_a_broker_that_does_not_answer_is_no_reason_to_give_an_event_up(sender: Sender) -> None:
    sender.stream.refusals["a"] = [BusUnavailableError("no answer")] * 10
    sender.put("a")

    async with sender.open():
        pass

    assert sender.stream.tried == ["a"] * 11
    assert (sender.delivery.sent, sender.lost) == (1, [])


async def test_files_are_removed_as_their_events_leave(sender: Sender) -> None:
    sender.put(*(f"e{number}" for number in range(40)), size=300)
    before = sender.files

    async with sender.open():
        await until(lambda: len(sender.files) == 1)

    assert (len(before) > 5, sender.files) == (True, before[-1:])


async def test_what_was_lost_is_told_as_soon_as_an_event_of_a_run_was_taken(sender: Sender) -> None:
    sender.put("gone")
    sender.spool.give_up((await sender.spool.first()).seq)
    sender.put("of the agent")
    sender.put("of a run", kind=Kind.RESOURCE)

    async with sender.open():
        pass

    assert (sender.stream.tried, sender.lost) == (["of the agent", "of a run"], [1])
