"""Implements `retry`: applies a failed resource again, a limited number of times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ccm_agent.model.errors import (
    BusUnavailableError,
    CcmError,
    DesiredStateError,
    DocumentError,
    HostError,
    NoProviderError,
)
from ccm_agent.model.formats.durations import format_duration, parse_duration
from ccm_agent.model.records.slots import SlotError
from ccm_agent.model.resource import Retry
from ccm_agent.resources.checks import refuse

if TYPE_CHECKING:
    from ccm_agent.model.outcome import TransactionEvent
    from ccm_agent.resources.contract import AnyType, ResolvedResource
    from ccm_agent.resources.run_context import AttemptCounter, RunContext

MOST_TRIES = 100
LONGEST_WAIT_S = 3600.0
"""The longest `every`. The node does nothing else while it waits."""


async def repeat(
    declared: ResolvedResource,
    retry: Retry,
    run: RunContext,
    event: TransactionEvent,
    attempt: AttemptCounter,
    reach: Callable[[], Awaitable[None]],
) -> None:
    """
    Repeat attempts until the desired state is reached and `until` is true, or until no attempts are left.

    Some errors would occur again in the next attempt, and are raised immediately: an invalid property, a policy, an unavailable
    slot.

    Args:
        declared, retry: The resource and its `retry`.
        run: The run of the resource. If the run ends, there are no further attempts.
        event: Receives the output of the last attempt.
        attempt: Counts the attempts.
        reach: Performs one attempt.

    Raises:
        CcmError: The error of the last attempt.
    """
    wait_s = parse_duration(retry.every)
    while True:
        attempt.number += 1
        try:
            await reach()
            # without a change, there is no result that `until` could check
            if retry.until and attempt.before is not None:
                await _require_enough(declared, retry.until, run, event)
            return
        except CcmError as err:
            if attempt.number >= retry.tries or not _may_pass(err):
                raise
            run.attempt_failed(
                declared, f"{attempt.number} of {retry.tries}", str(err), format_duration(wait_s)
            )
            if not await run.wait(wait_s):
                raise
        event.output, event.cut, event.exit_code = "", [], None
        run.forget()  # other programs had time to change the host


def check_retry(kind: AnyType, retry: Retry) -> None:
    """
    Refuse too many attempts, a wait that is too long, or a type whose resources contain other resources.

    Raises:
        PropertyError: A value is refused. The error includes its position.
    """
    if kind.contains_manifest:
        refuse(f"`{kind.name}` has no `retry`: set it for the resources of the child manifest", "retry")
    if not 1 <= retry.tries <= MOST_TRIES:
        refuse(f"`tries` is {retry.tries}: it must be from 1 to {MOST_TRIES}", "retry.tries")
    try:
        seconds = parse_duration(retry.every)
    except DocumentError as err:
        refuse(err.message, "retry.every")
    if not 0 <= seconds <= LONGEST_WAIT_S:
        refuse(
            f"`every` is `{retry.every}`: it must be from 0 to {format_duration(LONGEST_WAIT_S)}",
            "retry.every",
        )


async def _require_enough(
    declared: ResolvedResource, until: str, run: RunContext, event: TransactionEvent
) -> None:
    result = {"ensure": event.final_ensure, "output": event.output, "exit_code": event.exit_code}
    if not await run.is_enough(until, declared, result):
        raise DesiredStateError(f"`until` is not true: {until}")


def _may_pass(err: CcmError) -> bool:
    if isinstance(err, SlotError | NoProviderError):
        return False
    return isinstance(err, HostError | BusUnavailableError)
