"""Answers that are made once for many browsers."""

from __future__ import annotations

import asyncio

import pytest

from ccm_agent.model.errors import RunError
from ccm_ctl.dashboard.recent_answers import RecentAnswers


async def test_browsers_that_ask_at_the_same_time_share_an_answer() -> None:
    answers, made, may_go = RecentAnswers(), [0], asyncio.Event()

    async def make() -> int:
        made[0] += 1
        await may_go.wait()
        return made[0]

    asked = [asyncio.create_task(answers.give("a", make), name=f"browser{number}") for number in range(3)]
    asked[0].cancel()
    await asyncio.sleep(0)
    may_go.set()

    assert await asyncio.gather(*asked[1:]) == [1, 1]
    assert await answers.give("other", make) == 2


async def test_an_error_reaches_the_browser_that_asked() -> None:
    async def fail() -> int:
        raise RunError("there is no such run")

    with pytest.raises(RunError):
        await RecentAnswers().give("a", fail)
