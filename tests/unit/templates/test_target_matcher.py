"""Selectors of requests are evaluated beside the event loop, and may not keep the node from its other work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from ccm_agent.model.errors import SelectorError, SelectorLimitError
from ccm_agent.templates.selector import PATTERNS_LIMIT, TARGETS_LIMIT
from ccm_agent.templates.target_matcher import BURST_S, QUICK_LENGTH, SHARE, TargetMatcher

HOSTILE = 'let t=repeat("a",200000); count(1..100000,{(t+string(#)) matches "c$"})>0'
FACTS = {"role": "web"}


class Seconds:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def one_thread() -> Callable[..., Any]:
    async def call(function: Callable[..., Any], *values: Any) -> Any:
        return await asyncio.to_thread(function, *values)

    return call


@pytest.mark.parametrize(
    ("targets", "where", "means"),
    [
        ([], "", True),
        (["role=web"], "", True),
        (["role=db", "role=web"], "", True),
        (["role=db"], "", False),
        (["role=web"], "Node == 'web1'", True),
        (["role=web"], "Node == 'db1'", False),
        ([], "Facts.no.such", False),
    ],
)
async def test_targets_and_expression_must_both_mean_the_node(
    targets: list[str], where: str, means: bool
) -> None:
    assert await TargetMatcher(one_thread())(targets, where, "web1", FACTS) is means


@pytest.mark.parametrize(
    ("targets", "where", "kind"),
    [
        (["=web"], "", SelectorError),
        ([], "1 +", SelectorError),
        ([], HOSTILE, SelectorLimitError),
        (["role=a"] * TARGETS_LIMIT, "", SelectorLimitError),
        (["role=a*"] * (PATTERNS_LIMIT + 1), "", SelectorLimitError),
    ],
)
async def test_the_mistake_is_raised_where_it_was_asked(
    targets: list[str], where: str, kind: type[SelectorError]
) -> None:
    with pytest.raises(kind):
        await TargetMatcher(one_thread())(targets, where, "web1", FACTS)


@pytest.mark.parametrize(
    ("targets", "threads"),
    [
        (["role=web", "node=web*"], 0),
        (["role=w*"], 1),
        ([f"role={'x' * QUICK_LENGTH}", "role=web"], 1),
    ],
)
async def test_only_selectors_that_may_take_long_are_evaluated_in_a_thread(
    targets: list[str], threads: int
) -> None:
    called = []

    async def call(function: Callable[..., Any], *values: Any) -> Any:
        called.append(function)
        return await asyncio.to_thread(function, *values)

    assert await TargetMatcher(call)(targets, "", "web1", FACTS, is_request=True)
    assert len(called) == threads


async def test_requests_are_refused_at_once_when_their_expressions_have_had_their_share() -> None:
    clock, evaluated = Seconds(), []

    async def half_the_burst(function: Callable[..., Any], *values: Any) -> tuple[bool | Exception, float]:
        evaluated.append(values)
        return True, BURST_S / 2

    selecting = TargetMatcher(half_the_burst, clock)
    for _ in range(2):
        assert await selecting([], "true", "web1", FACTS, is_request=True)

    for _ in range(100):
        with pytest.raises(SelectorLimitError, match="have taken too much of this node's time"):
            await selecting([], "true", "web1", FACTS, is_request=True)

    assert len(evaluated) == 2
    assert await selecting([], "true", "web1", FACTS), "an assignment counts by itself"
    assert await selecting(["role=web"], "", "web1", FACTS, is_request=True), (
        "so do targets without expression"
    )

    clock.now += BURST_S / SHARE

    assert await selecting([], "true", "web1", FACTS, is_request=True)


async def test_the_loop_continues_while_costly_expressions_are_evaluated() -> None:
    selecting = TargetMatcher(one_thread())
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - begun)

    watching = asyncio.create_task(watch())
    for _ in range(20):
        with pytest.raises(SelectorLimitError):
            await selecting([], HOSTILE, "web1", FACTS)
    watching.cancel()

    assert longest < 0.5
