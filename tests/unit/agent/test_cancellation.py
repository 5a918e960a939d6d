import asyncio
import contextlib

from ccm_agent.agent.process.agent import cancel_and_wait


async def test_a_task_that_loses_a_cancellation_is_asked_again() -> None:
    heard = 0

    async def deaf() -> None:
        nonlocal heard
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        heard += 1
        await asyncio.Event().wait()

    deaf_one = asyncio.create_task(deaf(), name="deaf")
    ended = asyncio.create_task(asyncio.sleep(0), name="ended")
    await ended
    await asyncio.sleep(0)

    async with asyncio.timeout(20):
        await cancel_and_wait([deaf_one, ended], retry_s=0.01)

    assert (heard, deaf_one.cancelled(), ended.cancelled()) == (1, True, False)
