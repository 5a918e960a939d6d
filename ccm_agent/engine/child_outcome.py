"""Counts and reports the outcomes of a child manifest's resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.resources.contract import ChildManifest, ChildOutcome, ResolvedResource
from ccm_agent.resources.converge import would_have_changed


def count_outcomes(
    resources: list[ResolvedResource], events: Mapping[tuple[str, str], TransactionEvent], noop: bool
) -> ChildOutcome:
    """
    Count the outcomes of a manifest's resources. The last event is used for all resources of the same name, as in
    Choria CCM.

    Args:
        resources: All resources, including those that the run did not reach.
        events: The last event of each resource, by type and name.
        noop: Whether the manifest ran under noop.
    """
    last = [events.get((one.kind.name, one.wanted.name)) for one in resources]
    failed = [event is not None and (event.failed or bool(event.unmet_requirements)) for event in last]
    changed = [
        event is not None and event.changed and not bad for event, bad in zip(last, failed, strict=True)
    ]
    made = any(event.changed and not would_have_changed(event) for event in last if event is not None)
    return ChildOutcome(
        resources=len(resources),
        changed=sum(changed),
        failed=sum(failed),
        noop=noop or (any(changed) and not made),
    )


def note_outcome(child: ChildManifest, outcome: ChildOutcome, note: Callable[..., None]) -> None:
    """Report the outcome of a child manifest as a note of the run."""
    level, words = "info", "Child manifest completed"
    if outcome.failed:
        level, words = "error", "Child manifest had failures"
    elif outcome.changed:
        level, words = "warning", "Child manifest had changes"
    note(
        level,
        words,
        manifest=child.path,
        resources=outcome.resources,
        changed=outcome.changed,
        failed=outcome.failed,
        skipped=outcome.resources - outcome.changed - outcome.failed,
    )
