"""Costly answers are made a few at a time."""

from __future__ import annotations

import asyncio

import pytest

from ccm_ctl.dashboard.work_limiter import TooBusyError, WorkLimiter


async def test_a_user_with_too_many_searches_is_refused_and_another_is_not() -> None:
    work, may_go = WorkLimiter(at_once=1, of_one_user=2, in_all=3), asyncio.Event()
    running, most = [0], [0]

    async def search(user: str) -> None:
        async with work.place(user):
            running[0] += 1
            most[0] = max(most[0], running[0])
            await may_go.wait()
            running[0] -= 1

    tasks = [asyncio.create_task(search(user), name=user) for user in ("eve", "eve", "ann")]
    await asyncio.sleep(0)
    for user in ("eve", "bob"):  # the bound of a user, then that of all
        with pytest.raises(TooBusyError):
            await search(user)
    may_go.set()
    await asyncio.gather(*tasks)

    await search("eve")
    assert most == [1]


async def test_a_search_that_was_given_up_leaves_its_place() -> None:
    work = WorkLimiter(at_once=1, of_one_user=1, in_all=1)

    async def search() -> None:
        async with work.place("eve"):
            await asyncio.Event().wait()

    given_up = asyncio.create_task(search(), name="given up")
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)

    async with asyncio.timeout(10), work.place("eve"):
        pass
