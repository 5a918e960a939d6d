"""One resource through the flow, with a provider of the test's choice and nothing else of a run."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from ccm_agent.engine.diffs import RunDiffs
from ccm_agent.engine.request import ApplyOptions
from ccm_agent.engine.undo import RunUndo
from ccm_agent.model.errors import PolicyError
from ccm_agent.model.health import HealthCheck, HealthResult
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.resource import CommonProperties
from ccm_agent.model.resource_diff import ResourceDiff
from ccm_agent.model.secret import Masker
from ccm_agent.resources.contract import AnyType, Decision, ResolvedResource
from ccm_agent.resources.converge import converge
from ccm_agent.testing.files import FakeFiles

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Run:
    """
    Surroundings of one resource.

    Args:
        provider: Manages it.
        noop: Nothing is changed.
        changed: References of resources that changed before.
        diffs: Makes diffs; None: the run was not asked for them.
    """

    health_check_only = False
    is_restricted = False
    checks_planned = False

    def __init__(
        self,
        provider: Any,
        *,
        noop: bool = False,
        changed: Collection[str] = (),
        diffs: RunDiffs | None = None,
    ) -> None:
        self._diffs = diffs or RunDiffs(Masker(), is_wanted=False)
        self._provider = provider
        self.undo = RunUndo(FakeFiles(), ApplyOptions(), Masker())
        self.noop = noop
        self._changed = changed

    def now(self) -> datetime:
        return NOON

    def planned_before(self) -> str:
        return ""

    async def refusal(self, declared: ResolvedResource) -> PolicyError | None:
        return None

    def unknown(self, why: str) -> PolicyError:
        raise AssertionError("nothing was to be left open")

    async def provider(self, declared: ResolvedResource) -> tuple[str, Any]:
        return "posix", self._provider

    async def holds(self, expression: str, declared: ResolvedResource) -> bool:
        raise AssertionError("no control expression was expected")

    async def finalize(self, declared: ResolvedResource) -> None:
        raise AssertionError("no pending field was expected")

    def is_unmet(self, reference: str, declared: ResolvedResource) -> bool:
        return False

    def is_owed(self, reference: str, declared: ResolvedResource) -> bool:
        return False

    async def changing(self, declared: ResolvedResource) -> None:
        pass

    def has_changed(self, reference: str, declared: ResolvedResource) -> bool:
        return reference in self._changed

    async def look(self, declared: ResolvedResource, provider: Any) -> Any:
        return await provider.status(declared.wanted)

    async def look_after(self, declared: ResolvedResource, provider: Any, wanted: CommonProperties) -> Any:
        return await provider.status(wanted)

    async def diff(
        self, declared: ResolvedResource, provider: Any, found: Any, decision: Decision, triggered_by: str
    ) -> ResourceDiff | None:
        return await self._diffs.of(declared, provider, found, decision, triggered_by)

    def forget(self) -> None:
        pass

    def attempt_failed(self, declared: ResolvedResource, attempt: str, error: str, wait: str) -> None:
        raise AssertionError("no further attempt was expected")

    async def wait(self, seconds: float) -> bool:
        raise AssertionError("no further attempt was expected")

    def checked(self, event: TransactionEvent, check: str, seconds: float) -> None:
        """Nobody measures here."""

    async def check(self, check: HealthCheck) -> HealthResult:
        raise AssertionError("no health check was expected")


async def manage(
    kind: AnyType,
    provider: Any,
    wanted: CommonProperties,
    *,
    noop: bool = False,
    changed: Collection[str] = (),
    diffs: RunDiffs | None = None,
) -> TransactionEvent:
    """What became of a resource."""
    run = Run(provider, noop=noop, changed=changed, diffs=diffs)
    return await converge(ResolvedResource(kind=kind, wanted=wanted), run)
