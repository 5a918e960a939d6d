"""
A convergence that somebody at this host asked for, and how it ended for each thing that the node converges on.
"""

from __future__ import annotations

import asyncio

from msgspec import Struct

from ccm_agent.model.outcome import FailedResource, SessionSummary
from ccm_agent.model.wire import NodeState

NOT_BEGUN = "was not begun: the agent stops, or reads its configuration again"


class ConvergenceResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    How it ended for one of them.

    Attributes:
        name: The source of a manifest, or an assignment.
        state: "stable", "changed", "failed", or "refused" when it was not begun.
        run: The run; "" when there was none.
        reason, code: Why it failed as a whole or was not begun; with another state, what else should be known.
        changed, failed, total: Numbers of resources.
        resources: Failed resources with their errors, the first 20.
    """

    name: str
    state: str
    run: str = ""
    reason: str = ""
    code: str = ""
    changed: int = 0
    failed: int = 0
    total: int = 0
    resources: list[FailedResource] = []


def ended_of(name: str, summary: SessionSummary, note: str = "") -> ConvergenceResult:
    """How a run ended."""
    return ConvergenceResult(
        name=name,
        state=summary.state,
        run=summary.run,
        reason=summary.reason or note,
        code=summary.code,
        changed=summary.changed_resources,
        failed=summary.failed_resources,
        total=summary.total_resources,
        resources=summary.failed,
    )


def not_begun(name: str, reason: str = NOT_BEGUN, code: str = "") -> ConvergenceResult:
    """It was not begun."""
    return ConvergenceResult(name=name, state=NodeState.REFUSED, reason=reason, code=code)


class RunOnceWaiters:
    """
    Those who wait for the end of the next turn of one worker.

    An order that comes while a turn goes on is one for the turn after it: what it wants to see applied may be newer.
    """

    def __init__(self, name: str) -> None:
        """Nobody waits."""
        self._name = name
        self._waiting: list[asyncio.Future[ConvergenceResult]] = []
        self._served: list[asyncio.Future[ConvergenceResult]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def place(self) -> asyncio.Future[ConvergenceResult]:
        """Wait for the end of the next turn."""
        order: asyncio.Future[ConvergenceResult] = asyncio.get_running_loop().create_future()
        self._waiting.append(order)
        return order

    def begin(self) -> None:
        """A turn begins: whoever waits now is answered by its end."""
        self._served += self._waiting
        self._waiting = []

    def end(self, ended: ConvergenceResult | None) -> None:
        """The turn has ended; None: with nothing that was applied."""
        for order in self._served:
            if not order.done():
                order.set_result(ended or not_begun(self._name))
        self._served = []

    def give_up(self) -> None:
        """There will be no turn any more."""
        self.begin()
        self.end(None)
