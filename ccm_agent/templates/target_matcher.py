"""
Match the selectors of requests and assignments against this node.

Short selectors without patterns for facts are evaluated at once. For all others, one thread evaluates the selectors
and expressions in sequence, outside the event loop. Each expression has limits
(`templates/selector.py`), so the thread is never busy for long. Requests are also answered in sequence, so the
total time of their expressions is limited as well. Otherwise, many costly expressions of one operator could
block all other requests to the node.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ccm_agent.model.errors import SelectorLimitError

if TYPE_CHECKING:
    from ccm_agent.templates.selector import Selector

SHARE = 0.1
"""The share of one CPU for the expressions of requests."""

BURST_S = 0.3
"""The CPU time that the expressions may use in one burst."""

COSTLY_LENGTH = 2_000
"""The number of characters from which the time of selectors is charged as well."""


QUICK_LENGTH = 200
"""The number of characters up to which selectors are evaluated at once, because a thread would cost ten times as much."""


class Matches(Protocol):
    """A function that determines whether targets and an expression match a node with these facts."""

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
        Evaluate the match.

        Args:
            is_request: Whether they belong to a request. If so, the time is charged to the share of requests.

        Raises:
            SelectorError: A selector cannot be parsed.
            SelectorLimitError: The evaluation is too costly, or the share of requests is used up.
        """
        ...


class TargetMatcher:
    """
    Matches the selectors of one agent; see `Matches`.

    Args:
        call: Runs a function in a thread.
        clock: Returns monotonic seconds.
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
        if not where and sum(map(len, targets)) <= QUICK_LENGTH:
            selectors = _parse(targets)
            if not any(selector.patterns for selector in selectors):
                return _is_selected(selectors, node, facts)
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
    """Return the match or the error, and the CPU time of the evaluation."""
    begun = time.thread_time()
    answer: bool | Exception
    try:
        answer = _means(targets, where, node, facts)
    except Exception as err:  # noqa: BLE001 - raised again by the caller
        answer = err
    return answer, time.thread_time() - begun


def _means(targets: Sequence[str], where: str, node: str, facts: Mapping[str, Any]) -> bool:
    """Whether any of the targets and the expression match the node."""
    from ccm_agent.templates.selector import parse_where

    is_meant = _is_selected(_parse(targets), node, facts)
    return is_meant and (not where or parse_where(where).matches(node, facts))


def _parse(targets: Sequence[str]) -> list[Selector]:
    from ccm_agent.templates.selector import parse_targets

    return parse_targets(targets)


def _is_selected(selectors: Sequence[Selector], node: str, facts: Mapping[str, Any]) -> bool:
    from ccm_agent.templates.fact_texts import FactTexts

    texts = FactTexts(facts)
    return not selectors or any(selector.matches(node, texts) for selector in selectors)
