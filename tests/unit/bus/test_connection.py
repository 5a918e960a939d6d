import asyncio
import contextlib
from typing import Any, cast

import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import BusSettings
from ccm_agent.model.errors import BusUnavailableError
from tests.support.returning_fleet import HighestNumbers


class Lossy:
    """A client whose flush loses a cancellation, as `asyncio.wait_for` does when the answer comes at the same time."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.is_flushing = asyncio.Event()

    async def flush(self, _within_s: float) -> None:
        self.is_flushing.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


class Prompt:
    """A client that the broker answers at once."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def flush(self, _within_s: float) -> None:
        await asyncio.sleep(0)


async def test_a_cancelled_caller_may_still_wait_for_the_broker_during_cleanup() -> None:
    connection = Connection(BusSettings(identity="web1"))
    tidied = False

    async def work() -> None:
        nonlocal tidied
        try:
            await asyncio.Event().wait()
        finally:
            await connection._round_trip(cast("Any", Prompt()), 5.0)
            tidied = True

    task = asyncio.create_task(work(), name="works")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    assert (tidied, task.cancelled()) == (True, True)


async def test_a_cancellation_that_the_library_lost_ends_waiters_for_the_broker() -> None:
    client = Lossy()
    connection = Connection(BusSettings(identity="web1"))
    task = asyncio.create_task(connection._round_trip(cast("Any", client), 5.0), name="waits")
    await client.is_flushing.wait()
    task.cancel()

    async with asyncio.timeout(20):
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(("misses", "told"), [(5, []), (6, ["16 s"]), (20, ["120 s"])])
async def test_a_long_pause_before_the_next_attempt_is_logged(
    caplog: pytest.LogCaptureFixture, misses: int, told: list[str]
) -> None:
    connection = Connection(BusSettings(identity="web1"), HighestNumbers())
    for _ in range(misses):
        connection._missed(BusUnavailableError("no answer"), 5.0)
    caplog.clear()

    waits = asyncio.create_task(connection._pause(), name="waits")
    await asyncio.sleep(0)
    waits.cancel()

    assert [record.__dict__["pause"] for record in caplog.records] == told
    assert all(record.message == "connecting again later" for record in caplog.records)
