"""
The flow that applies every resource.

    policy → provider → control → deferred templates → require → look, decide, slot, act, verify → health checks

A resource that the node's policy forbids fails before its state is read or a command runs. Its `control` is still evaluated
first, because a resource that is not meant for this node is skipped.

An invalid manifest (an unknown provider or requirement, a control that is not boolean, a template that fails) raises an error
that ends the run. Other errors become a failed outcome, and the run continues. This also applies if a template
needs a reply from the broker and does not get one.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.model.errors import BusError, CcmError, DesiredStateError, HostError, PolicyError
from ccm_agent.model.health import HealthCheck, HealthResult, HealthStatus
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import OUTPUT_TAIL, TRANSACTION_EVENT, Outcome, TransactionEvent
from ccm_agent.model.records.undo import CHANGED_SINCE
from ccm_agent.model.resource import CommonProperties, CommonState
from ccm_agent.resources.contract import Decision, DecisionContext, ResolvedResource, StepResult

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ccm_agent.resources.run_context import Limit, RunContext, T

log = logging.getLogger(__name__)

UNKNOWN_LIMIT = 1000
"""The maximum length of a message about unknown information, in characters. It may quote a path of the manifest."""


class Attempt(Struct):
    """
    The shared state of all attempts to reach the desired state of one resource.

    Attributes:
        number: The current attempt, from 1; 0 without `retry`.
        before: The state before the first change. None while nothing has changed.
    """

    number: int = 0
    before: CommonState | None = None


async def converge(declared: ResolvedResource, run: RunContext) -> TransactionEvent:
    """
    Manage one resource and return its event.

    Raises:
        CcmError: The run must end; see the top of this file.
    """
    begun = time.monotonic_ns()
    refused = await run.refusal(declared)
    event = await (_managed(declared, run) if refused is None else _refused(declared, run, refused))
    event.duration = time.monotonic_ns() - begun
    return event


async def _managed(declared: ResolvedResource, run: RunContext) -> TransactionEvent:
    wanted = declared.wanted
    name, provider = await run.provider(declared)
    event = _new_event(declared, name, run)
    try:
        is_managed = await _is_managed(declared, run)
    except PolicyError as err:
        _deny(event, err)
        return event
    if not is_managed:
        event.skipped = True
    elif await _settle(declared, run, event):
        event.unmet_requirements = [one for one in wanted.require if run.is_unmet(one, declared)]
        if event.unmet_requirements:
            event.skipped = True
        else:
            has_slot = _has_slot(declared)
            try:
                await _apply_and_check(declared, provider, run, event)
            except BaseException:
                if has_slot:
                    run.slots.fail()
                raise
            if has_slot:
                await run.slots.give_back(declared, event)
    return event


def _has_slot(declared: ResolvedResource) -> bool:
    control = declared.wanted.control
    return control is not None and control.slots != ""


async def _apply_and_check(
    declared: ResolvedResource, provider: Any, run: RunContext, event: TransactionEvent
) -> None:
    checks = declared.wanted.health_checks
    if not run.health_check_only or declared.kind.contains_manifest:
        await _apply(declared, provider, run, event)
    if checks and run.noop and event.changed and not run.checks_planned:
        _leave_unchecked(checks, event)
    elif checks:
        await _check(checks, run, event)


async def _refused(declared: ResolvedResource, run: RunContext, refused: PolicyError) -> TransactionEvent:
    """Fail a resource that the node's policy forbids. If `control` excludes the resource from this node, skip it."""
    event = _new_event(declared, declared.wanted.provider, run)
    try:
        event.skipped = not await _is_managed(declared, run)
    except PolicyError:
        pass  # the policy may also forbid the evaluation of the resource's control
    if not event.skipped:
        _deny(event, refused)
    return event


def skip(declared: ResolvedResource, run: RunContext, reason: str) -> TransactionEvent:
    """Return the event of a resource that the run did not reach."""
    event = _new_event(declared, declared.wanted.provider, run)
    event.skipped = True
    event.error = [reason]
    return event


def _new_event(declared: ResolvedResource, provider: str, run: RunContext) -> TransactionEvent:
    wanted, now = declared.wanted, run.now()
    return TransactionEvent(
        protocol=TRANSACTION_EVENT,
        event_id=new_id(now),
        timestamp=now,
        type=declared.kind.name,
        provider=provider,
        name=wanted.name,
        alias=wanted.alias,
        requested_ensure=wanted.ensure,
        final_ensure="",
        duration=0,
        properties=wanted,
        status=None,
        error=[],
        changed=False,
        refreshed=False,
        failed=False,
        skipped=False,
        noop=False,
        unmet_requirements=[],
        health_check_only=run.health_check_only,
    )


async def _settle(declared: ResolvedResource, run: RunContext, event: TransactionEvent) -> bool:
    """
    Render the deferred fields.

    Return False, with a failed outcome, if the broker did not reply or the node's policy forbids the rendered values.
    """
    if not declared.pending:
        return True
    try:
        await run.finalize(declared)
        refused = await run.refusal(declared)
    except BusError as err:
        _fail(event, str(err), err.code)
        return False
    except PolicyError as err:
        refused = err
    if refused is not None:
        _deny(event, refused)
    return refused is None


async def _is_managed(declared: ResolvedResource, run: RunContext) -> bool:
    rescue, control = declared.wanted.rescue, declared.wanted.control
    if rescue and not any(run.has_failed(one, declared) for one in rescue):
        return False
    if control is None:
        return True
    if control.if_ and not await run.holds(control.if_, declared):
        # evaluate both expressions, so that an error in either is reported on every node
        if control.unless:
            await run.holds(control.unless, declared)
        return False
    return not (control.unless and await run.holds(control.unless, declared))


async def _apply(declared: ResolvedResource, provider: Any, run: RunContext, event: TransactionEvent) -> None:
    """Look, decide, act and verify. Errors are recorded in the event."""
    attempt, retry = Attempt(), declared.wanted.retry

    def reach() -> Awaitable[None]:
        return _reach(declared, provider, run, event, attempt)

    try:
        if retry is None or run.noop:
            await reach()
        else:
            from ccm_agent.resources.attempts import repeat

            await repeat(declared, retry, run, event, attempt, reach)
    except PolicyError as err:
        _deny(event, err)
    except CcmError as err:
        if isinstance(err, HostError) and (earlier := _planned_before(declared, run)):
            why = f"{Outcome.UNKNOWN}: {earlier} would change first; now: {err}"
            event.skipped, event.unknown = True, why[:UNKNOWN_LIMIT]
            return
        which = f" (attempt {attempt.number} of {retry.tries})" if retry and attempt.number > 1 else ""
        _fail(event, f"{err}{which}", err.code, err.output if isinstance(err, HostError) else "")
    except Exception as err:  # a bug in one resource must not stop the others
        log.exception("a resource failed with an unexpected error", extra={"resource": declared.reference})
        _fail(event, f"internal error: {type(err).__name__}: {err}", "ccm.internal")


def _planned_before(declared: ResolvedResource, run: RunContext) -> str:
    """
    Return an earlier resource that a plan would change, as `type#name`. The change may remove the cause of an error. "" if there
    is none.

    For the types of Choria CCM, a local plan returns "", because Choria CCM reports the error.
    """
    is_known = not run.noop or (run.checks_planned and not declared.kind.is_extension)
    return "" if is_known else run.planned_before()


def _limit_of(declared: ResolvedResource) -> Limit:
    """Return the time limit of a resource."""
    wanted = declared.wanted
    if not wanted.timeout or "timeout" not in declared.kind.rules.limits_resource:
        return _unlimited
    from ccm_agent.resources.time_limit import TimeLimit

    return TimeLimit(wanted.timeout).run


def _unlimited(work: Awaitable[T]) -> Awaitable[T]:
    return work


def _fail(event: TransactionEvent, message: str, code: str, output: str = "") -> None:
    event.failed = True
    event.error.append(message)
    event.code = event.code or code
    event.output = event.output or output[-OUTPUT_TAIL:]


def _deny(event: TransactionEvent, refused: PolicyError) -> None:
    """Mark the event as failed, or as unknown if a restricted run cannot decide."""
    if refused.is_unknown:
        event.skipped, event.unknown = True, str(refused)[:UNKNOWN_LIMIT]
    else:
        _fail(event, str(refused), refused.code)


async def _reach(
    declared: ResolvedResource, provider: Any, run: RunContext, event: TransactionEvent, attempt: Attempt
) -> None:
    kind, limited = declared.kind, _limit_of(declared)
    if declared.refused is not None:
        raise declared.refused
    wanted, found, decision, triggered_by = await limited(_decide(declared, provider, run, attempt))
    if decision.steps and _has_slot(declared) and await run.slots.take(declared):
        # the state was read before the slot was acquired
        run.forget()
        wanted, found, decision, triggered_by = await limited(_decide(declared, provider, run, attempt))
    if decision.steps and (why := await run.undo.why_left(declared, provider)):
        event.skipped, event.error, event.code = True, [why], CHANGED_SINCE
        return
    state, changed, message = found, False, ""
    is_noop = run.noop and not kind.contains_manifest
    if decision.steps:
        if not kind.contains_manifest:
            # if there are several attempts, the first one shows the whole change
            event.diff = event.diff or await run.diff(declared, provider, found, decision, triggered_by)
        if is_noop:
            message, changed = _noop_message(decision, kind.noop_separator), True
        else:
            attempt.before = attempt.before or found
            state = await run.undo.record(
                declared,
                provider,
                found,
                decision,
                lambda: limited(_act(declared, wanted, provider, run, decision, event)),
            )
    if attempt.before is not None:
        changed = kind.has_changed is None or kind.has_changed(attempt.before, state)
        if not changed:
            event.diff = None
    stable = decision.is_stable
    if decision.steps and not is_noop:
        stable = not changed if kind.contains_manifest else kind.stable_when_changed or stable
    elif changed and not is_noop:
        stable = kind.stable_when_changed  # an earlier, failed attempt made the change
    if state.timestamp is None:
        state.timestamp = event.timestamp
    state.changed, state.stable, state.refreshed = changed, stable, decision.refreshed
    state.noop, state.noop_message = is_noop, message
    event.status, event.final_ensure = state, state.ensure
    event.changed, event.refreshed = changed, decision.refreshed
    event.noop, event.noop_message = is_noop, message
    if decision.refreshed:
        event.triggered_by = triggered_by


async def _decide(
    declared: ResolvedResource, provider: Any, run: RunContext, attempt: Attempt
) -> tuple[CommonProperties, CommonState, Decision, str]:
    """
    Read the state and decide the steps.

    Also return the properties without the ignored ones, and the subscribed resource that has changed.
    """
    found = await run.look(declared, provider)
    wanted = declared.wanted
    if wanted.ignore:
        from ccm_agent.resources.ignored import without_ignored

        # an earlier attempt may have created the resource without all of its properties
        wanted = without_ignored(declared.kind, wanted, attempt.before or found)
    # The state is read first, which runs guards. As in Choria CCM, they run even if a subscribed resource does not exist.
    triggered_by = _trigger(declared, run)
    context = DecisionContext(noop=run.noop, triggered_by=triggered_by, is_restricted=run.is_restricted)
    decision = declared.kind.decide(wanted, found, context)
    if decision.unknown:
        raise run.unknown(decision.unknown)
    if decision.error is not None:
        raise decision.error
    return wanted, found, decision, triggered_by


def _trigger(declared: ResolvedResource, run: RunContext) -> str:
    """Return the first subscribed resource that changed, in this run or an earlier one. "" if none did."""
    found = ""
    for reference in subscriptions(declared):
        if run.has_changed(reference, declared):
            return reference
        if not found and run.is_owed(reference, declared):
            found = reference
    return found


def subscriptions(declared: ResolvedResource) -> list[str]:
    """Return the references that a resource subscribes to."""
    return getattr(declared.wanted, "subscribe", None) or []


def _noop_message(decision: Decision, joint: str) -> str:
    first, *rest = [step.noop for step in decision.steps]
    if joint.startswith(","):
        rest = [text[:1].lower() + text[1:] for text in rest]
    return joint.join([first, *rest])


async def _act(
    declared: ResolvedResource,
    wanted: CommonProperties,
    provider: Any,
    run: RunContext,
    decision: Decision,
    event: TransactionEvent,
) -> CommonState:
    """Run the steps and read the state again. Raises DesiredStateError if it is still not the desired state."""
    kind = declared.kind
    if not kind.contains_manifest:
        await run.changing(declared)
        run.forget()
    left: CommonState | None = None
    for step in decision.steps:
        result = await step.action(provider)
        if isinstance(result, StepResult):
            left = result.state or left
            event.output, event.cut = result.output, ["output"] if result.is_output_cut else []
            event.exit_code = result.exit_code
            if result.error is not None:
                raise result.error
        elif result is not None:
            left = result
    state: CommonState = await run.look_after(declared, provider, wanted) if left is None else left
    if kind.verify:
        again = kind.decide(wanted, state, DecisionContext(verifying=True))
        if again.error is not None:
            raise again.error
        if again.steps:
            reason = again.reason or "the resource is not in its desired state after the change"
            raise DesiredStateError(f"failed to reach desired state {wanted.ensure}: {reason}")
    return state


async def _check(checks: list[HealthCheck], run: RunContext, event: TransactionEvent) -> None:
    results = []
    for check in checks:
        begun = time.monotonic()
        try:
            result = await run.check(check)
        except PolicyError as err:
            results.append(_not_run(check, run, event, err))
            continue
        run.checked(event, result.name, time.monotonic() - begun)
        results.append(result)
        if result.status != HealthStatus.OK:
            status = (
                HealthStatus(result.status).name if result.status in (1, 2) else HealthStatus.UNKNOWN.name
            )
            why = f": {result.output.splitlines()[0]}" if result.output else ""
            _fail(event, f"health check {check.name or check.format} is {status}{why}", "host.health")
    event.health_check = results


def _leave_unchecked(checks: list[HealthCheck], event: TransactionEvent) -> None:
    """Report checks that a plan skips. They would check the state before the change, and fail on a new host."""
    why = "the health checks are not run in a plan that would change the resource"
    event.unknown = event.unknown or f"{Outcome.UNKNOWN}: {why}"
    event.health_check = [
        HealthResult(status=HealthStatus.UNKNOWN, tries=0, output=event.unknown, name=check.name)
        for check in checks
    ]


def _not_run(
    check: HealthCheck, run: RunContext, event: TransactionEvent, refused: PolicyError
) -> HealthResult:
    """Record a check that the node's policy forbids. The outcome of the resource itself does not change."""
    if not refused.is_unknown:
        _fail(event, str(refused), refused.code)
    else:
        event.unknown = event.unknown or str(refused)[:UNKNOWN_LIMIT]
        event.skipped = event.skipped or run.health_check_only
    return HealthResult(status=HealthStatus.UNKNOWN, tries=0, output=str(refused), name=check.name)


def would_have_changed(event: TransactionEvent) -> bool:
    """Whether an event reports a change that was not made, because the resource or its child manifest ran under noop."""
    return event.changed and (event.noop or bool(getattr(event.status, "announced", False)))
