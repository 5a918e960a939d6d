"""Reading the stream as it grows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.ids import new_id
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.events.live_events import LiveEvents
from tests.support.controller import NOW, event, fleet_on

RUN = "2zFXabcdefghijklmnopqrstuvw"


class Listener:
    """What a reader said."""

    def __init__(self) -> None:
        self.sequences: list[int] = []
        self.restarts = 0
        self.states: list[bool] = []
        self._news = asyncio.Event()

    def take(self, events: list[object]) -> None:
        self.sequences += [one.sequence for one in events]  # type: ignore[attr-defined]
        self._news.set()

    def restart(self) -> None:
        self.restarts += 1
        self.sequences.clear()

    def state(self, is_current: bool) -> None:
        self.states.append(is_current)
        self._news.set()

    async def until(self, happened: object) -> None:
        async with asyncio.timeout(10):
            while not happened():  # type: ignore[operator]
                self._news.clear()
                await self._news.wait()


async def publish(broker: MemoryBroker, number: int) -> None:
    said = event("/etc/motd", number)
    subject = event_subject(said.protocol, "web1", RUN)
    await MemoryBus(broker, "web1").events.publish(subject, new_id(), msgspec.json.encode(said))


@contextlib.asynccontextmanager
async def reading(broker: MemoryBroker) -> AsyncIterator[Listener]:
    listener = Listener()
    reader = LiveEvents(
        fleet_on(MemoryBus(broker, "op")),
        on_events=listener.take,
        on_restart=listener.restart,
        on_state=listener.state,
    )
    task = asyncio.create_task(reader.run(), name="reader")
    try:
        yield listener
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_stored_and_new_events_come_once_and_in_order() -> None:
    broker = MemoryBroker(now=lambda: NOW)
    await publish(broker, 1)
    await publish(broker, 2)

    async with reading(broker) as listener:
        await listener.until(lambda: len(listener.sequences) == 2)
        for number in (3, 4, 5):
            await publish(broker, number)
        await listener.until(lambda: len(listener.sequences) >= 5)

    assert listener.sequences == [1, 2, 3, 4, 5]
    assert (listener.restarts, listener.states) == (0, [True])


async def test_events_of_an_outage_are_read_when_the_broker_is_back() -> None:
    broker = MemoryBroker(now=lambda: NOW)
    await publish(broker, 1)

    async with reading(broker) as listener:
        await listener.until(lambda: listener.sequences == [1])
        broker.stop()
        await listener.until(lambda: listener.states[-1:] == [False])
        broker.start()
        await publish(broker, 2)
        await listener.until(lambda: len(listener.sequences) >= 2)

    assert listener.sequences == [1, 2]


async def test_a_stream_that_was_created_again_is_read_from_its_begin() -> None:
    broker = MemoryBroker(now=lambda: NOW)
    for number in (1, 2, 3):
        await publish(broker, number)

    async with reading(broker) as listener:
        await listener.until(lambda: len(listener.sequences) == 3)
        broker.events.clear()
        await publish(broker, 1)
        await listener.until(lambda: listener.restarts == 1 and len(listener.sequences) == 1)

    assert listener.restarts == 1
