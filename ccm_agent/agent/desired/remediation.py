"""
When a critical health check leads to an apply: not on a disabled node, and twice an hour at most for each thing that is applied.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from ccm_agent.metrics.agent import AgentMetrics
from ccm_agent.model.outcome import SessionSummary
from ccm_agent.model.ports import Clock

log = logging.getLogger(__name__)

REMEDIATIONS_AN_HOUR = 2
"""A check that an apply does not heal must not make the node apply for ever."""

HOUR_S = 3600.0

HEALTH = "health"
"""Cause of runs of checks that nobody asked for, and of the applies that follow from them."""


class Remediation:
    """What one thing's critical checks lead to."""

    def __init__(
        self,
        kind: str,
        name: str,
        clock: Clock,
        is_disabled: Callable[[], bool],
        metrics: AgentMetrics | None,
    ) -> None:
        """
        Nothing was acted upon yet.

        Args:
            kind, name: What is applied: "source" or "assignment", and which.
            clock: Time.
            is_disabled: The node converges on nothing now.
            metrics: Counts what is acted upon; None: nobody counts.
        """
        self._what = {kind: name}
        self._name = name
        self._clock = clock
        self._is_disabled = is_disabled
        self._metrics = metrics
        self._acted: deque[float] = deque(maxlen=REMEDIATIONS_AN_HOUR)

    def follows(self, summary: SessionSummary | None) -> bool:
        """An apply follows from this run of checks, and is counted as one; None: it was left before its end."""
        if summary is None or not summary.health_check_critical_count:
            return False
        if self._is_disabled():
            log.warning("a critical health check is left alone: the node is disabled", extra=self._what)
            return False
        now = self._clock.monotonic()
        if len(self._acted) == REMEDIATIONS_AN_HOUR and now - self._acted[0] < HOUR_S:
            log.warning(
                "a critical health check is left alone: it was acted upon twice in the last hour",
                extra=self._what,
            )
            return False
        self._acted.append(now)
        if self._metrics is not None:
            self._metrics.remediated(self._name)
        log.warning("a critical health check is acted upon", extra=self._what)
        return True
