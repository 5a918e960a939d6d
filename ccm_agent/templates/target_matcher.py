"""
Whether the selectors of a request or assignment mean this node, away from the event loop.

One thread evaluates them, one after the other. An expression ends by its own limits (`templates/selector.py`), so the thread is
never busy for long. Requests are answered one after the other as well, so the time of all their expressions is bounded, too:
otherwise an operator who sends many costly ones would keep the node from all other requests.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from ccm_agent.model.errors import SelectorLimitError

SHARE = 0.1
"""Of one CPU, for the expressions of requests."""

BURST_S = 0.3
"""CPU time that they may take at once."""

COSTLY_LENGTH = 2_000
"""Characters of selectors from which on their time counts, too."""


class Matches(Protocol):
    """Whether targets and expression mean a node with these facts."""

    async def __call__(
        self,
        targets: Sequence[str],
        where: str,
        node: str,
        facts: Mapping[str, Any],
        *,
        is_request: bool = False,
    ) -> bool:
        """
        The answer.

        Args:
            is_request: Everybody who may ask the node can send this one, so it counts against the share of requests.

        Raises:
            SelectorError: A selector cannot be read.
            SelectorLimitError: It is too costly, or those before it were.
        """
        ...


class TargetMatcher:
    """
    The answers of one agent; see `Matches`.

    Args:
        call: Runs a function in a thread.
        clock: Seconds that pass.
    """

    def __init__(
        self,
        call: Callable[..., Awaitable[tuple[bool | Exception, float]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._call = call
        self._clock = clock
        self._left_s = BURST_S
        self._seen_s = clock()

    async def __call__(
        self,
        targets: Sequence[str],
        where: str,
        node: str,
        facts: Mapping[str, Any],
        *,
        is_request: bool = False,
    ) -> bool:
        """See `Matches`."""
        is_costly = is_request and (bool(where) or sum(map(len, targets)) > COSTLY_LENGTH)
        if is_costly:
            self._admit()
        answer, cpu_s = await self._call(_measured, targets, where, node, facts)
        if is_costly:
            self._left_s -= cpu_s
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _admit(self) -> None:
        now = self._clock()
        self._left_s = min(self._left_s + SHARE * (now - self._seen_s), BURST_S)
        self._seen_s = now
        if self._left_s <= 0:
            raise SelectorLimitError(
                "the expressions of requests have taken too much of this node's time; "
                "select by facts, or ask again in a few seconds"
            )


def _measured(
    targets: Sequence[str], where: str, node: str, facts: Mapping[str, Any]
) -> tuple[bool | Exception, float]:
    """The answer, or what is wrong with the selectors, and the CPU time that it took."""
    begun = time.thread_time()
    answer: bool | Exception
    try:
        answer = _means(targets, where, node, facts)
    except Exception as err:  # noqa: BLE001 - it is raised where it was asked
        answer = err
    return answer, time.thread_time() - begun


def _means(targets: Sequence[str], where: str, node: str, facts: Mapping[str, Any]) -> bool:
    """Any of the targets means the node, and so does the expression."""
    from ccm_agent.templates.selector import FactTexts, parse_targets, parse_where

    texts = FactTexts(facts)
    is_meant = not targets or any(selector.matches(node, texts) for selector in parse_targets(targets))
    return is_meant and (not where or parse_where(where).matches(node, facts))
