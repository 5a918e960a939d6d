"""
This node's facts, as fresh as they have to be: gathered in a thread and no more often than the configuration allows.

Assigned facts lie over them and are always those of this moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ccm_agent.metrics.agent import AgentMetrics
from ccm_agent.model import merge
from ccm_agent.model.errors import CcmError
from ccm_agent.model.gathered import with_go_names
from ccm_agent.model.ports import Clock

log = logging.getLogger(__name__)

Gather = Callable[[], Mapping[str, Any]]
"""Reads all facts of this host; blocking."""


class FactCache:
    """Facts of one agent."""

    def __init__(
        self,
        gather: Gather,
        assigned: Callable[[], Mapping[str, Any]],
        clock: Clock,
        metrics: AgentMetrics | None = None,
    ) -> None:
        """
        Nothing is gathered yet.

        Args:
            gather: Reads them.
            assigned: What is assigned at this moment.
            clock: What time it is.
            metrics: Counts what it took; None: nobody counts.
        """
        self._gather = gather
        self._metrics = metrics
        self._assigned = assigned
        self._clock = clock
        self._lock = asyncio.Lock()
        self._gathered: Mapping[str, Any] | None = None
        self._gathered_at = 0.0
        self._merged: tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]] | None = None

    async def latest(self) -> Mapping[str, Any]:
        """The facts as they were gathered last; they are gathered only if they never were."""
        return await self.current(float("inf"))

    async def current(self, max_age_s: float) -> Mapping[str, Any]:
        """
        The facts, gathered anew when they are older than `max_age_s`.

        When that fails the last good ones stand, and the failure is logged.
        """
        async with self._lock:
            age_s = self._clock.monotonic() - self._gathered_at
            if self._gathered is None or age_s > max_age_s:
                await self._refresh()
        return self._merge()

    async def _refresh(self) -> None:
        begun = self._clock.monotonic()
        failed = False
        try:
            self._gathered = await asyncio.to_thread(self._gather)
        except (CcmError, OSError) as err:
            log.error("facts cannot be gathered", extra={"reason": str(err)})
            self._gathered = self._gathered or {}
            failed = True
        self._gathered_at = self._clock.monotonic()
        if self._metrics is not None:
            self._metrics.facts_gathered(self._gathered_at - begun, failed=failed)

    def _merge(self) -> Mapping[str, Any]:
        gathered, assigned = self._gathered or {}, self._assigned()
        if self._merged is None or self._merged[0] is not gathered or self._merged[1] is not assigned:
            merged = with_go_names(merge.deep(dict(gathered), dict(assigned)))
            self._merged = (gathered, assigned, merged)
        return self._merged[2]
