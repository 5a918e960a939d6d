"""What became of the resources of a child manifest, in numbers."""

from __future__ import annotations

from collections.abc import Mapping

from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.resources.contract import ChildOutcome
from ccm_agent.resources.converge import ResolvedResource, would_have_changed


def count_outcomes(
    resources: list[ResolvedResource], events: Mapping[tuple[str, str], TransactionEvent], noop: bool
) -> ChildOutcome:
    """
    What became of a manifest's resources; of two with one name the last event counts for both, as in the reference.

    Args:
        resources: All of them, those that were not reached too.
        events: The last event of each, by type and name.
        noop: They ran without changing anything.
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
