"""The interface of a run for the flow of `converge.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar

from ccm_agent.model.errors import PolicyError
from ccm_agent.model.health import HealthCheck, HealthResult
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.resource import CommonProperties, CommonState
from ccm_agent.model.resource_diff import ResourceDiff
from ccm_agent.resources.contract import Decision, ResolvedResource

T = TypeVar("T")


class Limit(Protocol):
    """Limits the time of a part of a resource's flow. Raises TimeLimitError."""

    def __call__(self, work: Awaitable[T], /) -> Awaitable[T]: ...


class AttemptCounter(Protocol):
    """
    The number of the current attempt to reach the desired state, from 1; 0 without `retry`.

    `before` is the state before the first change. None while nothing has changed.
    """

    number: int
    before: CommonState | None


class ResourceSlots(Protocol):
    """The fleet's slot that a resource takes before it is changed. A noop does not take a slot."""

    async def take(self, declared: ResolvedResource) -> bool:
        """
        Take the slot. Return whether the resource had to wait. After a wait, the host may have changed.

        Raises:
            SlotError: The slot is not available. The resource is not changed.
        """
        ...

    async def give_back(self, declared: ResolvedResource, event: TransactionEvent) -> None:
        """Release the slot if the resource and its health checks succeeded. Otherwise keep it for some time."""
        ...

    def fail(self) -> None:
        """Keep the slot for some time, because the run ends at this resource."""
        ...


class ResourceUndo(Protocol):
    """The undo functions of a run. A run records changes so that they can be undone. An undo leaves some resources unchanged."""

    async def why_left(self, declared: ResolvedResource, provider: Any) -> str:
        """
        Return the reason why an undo does not change a resource that differs. "" if it changes the resource, or if this run is
        not an undo.
        """
        ...

    async def record(
        self,
        declared: ResolvedResource,
        provider: Any,
        found: Any,
        decision: Decision,
        change: Callable[[], Awaitable[Any]],
    ) -> Any:
        """
        Change a resource and record the states before and after. Return the state after the change.

        If a state cannot be stored, the change is still made, and the reason is recorded.
        """
        ...


class RunContext(Protocol):
    """The interface of the run that a resource belongs to, for the flow."""

    @property
    def noop(self) -> bool: ...
    @property
    def health_check_only(self) -> bool: ...
    @property
    def checks_planned(self) -> bool: ...
    @property
    def slots(self) -> ResourceSlots: ...
    @property
    def undo(self) -> ResourceUndo: ...
    @property
    def is_restricted(self) -> bool:
        """Whether the run is a plan or check that runs no commands of the manifest."""
        ...

    async def refusal(self, declared: ResolvedResource) -> PolicyError | None:
        """
        Return the reason why the node's policy forbids the resource, based on the properties that are known now. None if it
        does not.
        """
        ...

    def unknown(self, why: str) -> PolicyError:
        """Return the error for information that a restricted run cannot obtain."""
        ...

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""
        ...

    async def provider(self, declared: ResolvedResource) -> tuple[str, Any]:
        """Return the name and object of the resource's provider on this host. Raises NoProviderError if there is none."""
        ...

    async def holds(self, expression: str, declared: ResolvedResource) -> bool:
        """Whether a control expression is true. Raises ExpressionError if it is not boolean or fails."""
        ...

    async def is_enough(self, until: str, declared: ResolvedResource, result: Mapping[str, Any]) -> bool:
        """Whether `until` is true for the result of an attempt. Raises ExpressionError if it is not boolean or fails."""
        ...

    async def finalize(self, declared: ResolvedResource) -> None:
        """
        Render the pending fields.

        Raises:
            InputError: A template fails.
            BusError: A template needs a reply that the broker did not send.
            PolicyError: A template reads something that the node's policy forbids.
        """
        ...

    def is_unmet(self, reference: str, declared: ResolvedResource) -> bool:
        """Whether a required resource failed or had unmet requirements. Raises ManifestError if it has no outcome yet."""
        ...

    def has_failed(self, reference: str, declared: ResolvedResource) -> bool:
        """Whether a resource of `rescue` failed or had unmet requirements. False if the run ended before that resource."""
        ...

    def planned_before(self) -> str:
        """Return the last earlier resource that this plan would change, as `type#name`. "" if there is none."""
        ...

    def has_changed(self, reference: str, declared: ResolvedResource) -> bool:
        """Whether a subscribed resource changed. Raises ManifestError if it has no outcome yet."""
        ...

    def is_owed(self, reference: str, declared: ResolvedResource) -> bool:
        """Whether a subscribed resource changed in an earlier run and this resource has not been refreshed since."""
        ...

    async def changing(self, declared: ResolvedResource) -> None:
        """
        Record, before the resource changes, that its subscribers must be refreshed.

        Raises:
            HostError: The record cannot be written. The resource is not changed, because its subscribers could be forgotten.
        """
        ...

    async def look(self, declared: ResolvedResource, provider: Any) -> Any:
        """Return the state from `status`, which may have been read ahead together with other states."""
        ...

    async def look_after(self, declared: ResolvedResource, provider: Any, wanted: CommonProperties) -> Any:
        """Return the state from `status` after a change. It may be read together with the state of the next resource."""
        ...

    async def diff(
        self, declared: ResolvedResource, provider: Any, found: Any, decision: Decision, triggered_by: str
    ) -> ResourceDiff | None:
        """Return the changes that the steps of a decision make, masked. None if diffs were not requested. Never raises."""
        ...

    def forget(self) -> None:
        """Invalidate the states that were read ahead, because something on the host is about to change."""
        ...

    async def check(self, check: HealthCheck) -> HealthResult:
        """Run a health check. Raises PolicyError if the node's policy forbids the check."""
        ...

    def attempt_failed(self, declared: ResolvedResource, attempt: str, error: str, wait: str) -> None:
        """Report a failed attempt that is followed by another one."""
        ...

    async def wait(self, seconds: float) -> bool:
        """Wait for the next attempt. Return False as soon as the run ends."""
        ...

    def checked(self, event: TransactionEvent, check: str, seconds: float) -> None:
        """Record the duration of a health check."""
        ...
