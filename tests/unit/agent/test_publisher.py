"""How events leave the spool: in order, each until the stream has it, and nothing stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.agent.events.publisher import EventPublisher
from ccm_agent.model.errors import BusError, BusUnavailableError, ProtocolError
from ccm_agent.model.ports import Published
from ccm_agent.storage.spool import Spool
from ccm_agent.storage.spool_segment import Kind, Spooled
from ccm_agent.testing.memory_bus import MemoryBroker
from tests.support.agent import NODE, memory_bus, until


class Stream:
    """
    Takes events, but for those that a test has it refuse or had before; what was tried, in order.

    Attributes:
        tried: Subjects, which in these tests are the events' names.
        message_ids: The message ids of the tries.
        refusals: Errors to raise, by subject.
        had: Subjects of which the next try is answered as a duplicate.
        headers: The headers of the tries.
    """

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.message_ids: list[str] = []
        self.refusals: dict[str, list[BusError]] = {}
        self.had: list[str] = []
        self.headers: list[Mapping[str, str]] = []

    async def publish(
        self, subject: str, message_id: str, body: bytes, headers: Mapping[str, str]
    ) -> Published:
        self.headers.append(headers)
        self.tried.append(subject)
        self.message_ids.append(message_id)
        if errors := self.refusals.get(subject):
            raise errors.pop(0)
        is_duplicate = subject in self.had
        if is_duplicate:
            self.had.remove(subject)
        return Published(sequence=len(self.tried), is_duplicate=is_duplicate)


class Sender:
    """A spool and what empties it into a stream."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stream = Stream()
        self.lost: list[int] = []
        self.spool = Spool(folder, limit_bytes=1 << 20, segment_bytes=2000)
        link = memory_bus(MemoryBroker(), NODE).link
        events: Any = self.stream
        self.signed = 0
        self.delivery = EventPublisher(
            self.spool, events, link, retry_s=0.001, on_lost=self._told, sign=self._sign
        )

    @property
    def files(self) -> list[str]:
        """The names of the spool's files, oldest first."""
        return sorted(path.name for path in self.folder.iterdir())

    def _told(self, count: int) -> None:
        self.lost.append(count)
        self.spool.reported(count)

    def _sign(self, event: Spooled) -> str:
        self.signed += 1
        return f"signature {self.signed} of {event.subject}"

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


async def test_an_event_is_sent_until_the_stream_has_it_and_in_order(sender: Sender) -> None:
    sender.stream.refusals["a"] = [BusUnavailableError("no answer"), BusUnavailableError("no answer")]
    sender.put("a", "b")

    async with sender.open():
        pass

    assert sender.stream.tried == ["a", "a", "a", "b"]
    assert (sender.delivery.sent, sender.delivery.trouble, sender.lost) == (2, "", [])


async def test_an_event_has_one_message_id_for_all_tries_which_its_event_id_does_not_tell(
    sender: Sender,
) -> None:
    sender.stream.refusals["a"] = [BusUnavailableError("no answer")]
    sender.put("a", "b")

    async with sender.open():
        pass

    first, again, other = sender.stream.message_ids
    assert first == again != other
    assert (len(first), first.isascii(), first in ("a", "b")) == (22, True, False)


async def test_an_event_keeps_its_message_id_when_the_process_is_killed(sender: Sender) -> None:
    sender.put("a")
    before = (await sender.spool.first()).message_id
    sender.spool.close()

    again = Sender(sender.folder)
    await asyncio.to_thread(again.spool.open)
    again.stream.had.append("a")
    async with again.open():
        pass

    assert again.stream.message_ids == [before]


async def test_an_event_whose_message_id_another_sender_used_is_sent_under_a_new_one(
    sender: Sender, caplog: pytest.LogCaptureFixture
) -> None:
    sender.stream.had.append("a")
    sender.put("a", "b")

    async with sender.open():
        pass

    assert sender.stream.tried == ["a", "a", "b"]
    assert len(set(sender.stream.message_ids)) == 3
    assert "another sender has used a message id" in caplog.text


async def test_a_retry_that_the_stream_has_already_is_acknowledged(sender: Sender) -> None:
    sender.stream.refusals["a"] = [BusUnavailableError("no answer")]
    sender.stream.had.append("a")
    sender.put("a", "b")

    async with sender.open():
        pass

    assert sender.stream.tried == ["a", "a", "b"]


async def test_each_attempt_has_the_same_position_and_signature(sender: Sender) -> None:
    sender.stream.refusals["a"] = [BusUnavailableError("no answer")] * 2
    sender.put("a", "b")

    async with sender.open():
        pass

    first, again, last, other = sender.stream.headers
    assert first == again == last
    assert first["Ccm-Signature"] == "signature 1 of a"
    assert first["Ccm-Chain"] != other["Ccm-Chain"]
    assert other["Ccm-Signature"] == "signature 2 of b"


async def test_only_summaries_and_events_about_the_agent_are_signed(sender: Sender) -> None:
    sender.put("start", kind=Kind.START)
    sender.put("resource", kind=Kind.RESOURCE)
    sender.put("summary", kind=Kind.SUMMARY)
    sender.put("agent")

    async with sender.open():
        pass

    signed = ["Ccm-Signature" in headers for headers in sender.stream.headers]
    assert signed == [False, False, True, True]


async def test_a_protocol_error_is_given_up_after_three_tries_and_counted(sender: Sender) -> None:
    sender.stream.refusals["a"] = [ProtocolError("too large")] * 4
    sender.put("a", "b")

    async with sender.open():
        pass

    assert sender.stream.tried == ["a", "a", "a", "b"]
    assert (sender.delivery.sent, sender.lost) == (1, [1])


async def test_an_unreachable_broker_does_not_discard_an_event(sender: Sender) -> None:
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


async def test_losses_are_reported_as_soon_as_an_event_of_a_run_is_accepted(sender: Sender) -> None:
    sender.put("gone")
    sender.spool.give_up((await sender.spool.first()).seq)
    sender.put("of the agent")
    sender.put("of a run", kind=Kind.RESOURCE)

    async with sender.open():
        pass

    assert (sender.stream.tried, sender.lost) == (["of the agent", "of a run"], [1])
