"""The loop over the resources of a manifest. It applies each resource in order, then masks, records and reports the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ccm_agent.engine import masking
from ccm_agent.engine.context import ManifestContext
from ccm_agent.engine.load import keys_of
from ccm_agent.model.errors import BusError
from ccm_agent.model.outcome import FailedResource, TransactionEvent, note_failure
from ccm_agent.resources.contract import ResolvedResource
from ccm_agent.resources.converge import skip
from ccm_agent.sessions.memory import MemorySession


class DeclaredResources(Protocol):
    """Records which resources a run reaches; `ownership.prune.RunPrune` is the real implementation."""

    def declare(self, context: ManifestContext) -> None: ...
    def note_child(self, event: TransactionEvent) -> None: ...


class ResourceLoop:
    """
    Loops over resources and collects the counts for the summary.

    Attributes:
        failed: The first failed resources.
        prune: Records the resources of all manifests. None if `prune` is off.
    """

    def __init__(self) -> None:
        self.failed: list[FailedResource] = []
        self.prune: DeclaredResources | None = None

    async def run(self, context: ManifestContext) -> Mapping[tuple[str, str], TransactionEvent]:
        """Apply a manifest's resources in order. Return the last event of each, by type and name."""
        async with context:
            return await self._run(context)

    async def _run(self, context: ManifestContext) -> Mapping[tuple[str, str], TransactionEvent]:
        resources, state = context.loaded.resources, context.state
        if self.prune is not None:
            self.prune.declare(context)
        on_resource = state.options.on_resource if not context.parents else None
        last = context.outcomes
        ends_at_failure, is_ended = context.loaded.fail_on_error and not context.health_check_only, False
        for number, declared in enumerate(resources, 1):
            if is_ended and not declared.wanted.rescue:
                continue
            if state.is_paused:
                state.is_paused_midway = True
                break
            if on_resource is not None:
                on_resource(state.masker.name(declared.reference), number, len(resources))
            event = await self.apply_one(context, declared)
            if state.is_paused_midway:
                # the child manifest has not finished, so it has no outcome yet
                break
            if self.prune is not None and declared.kind.contains_manifest:
                self.prune.note_child(event)
            last.update(dict.fromkeys(keys_of(declared), event))
            if event.failed and ends_at_failure and not is_ended:
                state.note("warning", "Terminating manifest execution due to failed resource")
                is_ended = state.refreshes.is_incomplete = True
        return last

    async def apply_one(self, context: ManifestContext, declared: ResolvedResource) -> TransactionEvent:
        """Apply one resource, then mask, record and report its outcome."""
        state = context.state
        parent = (
            " > ".join(one.asked_by for one in (*context.parents[1:], context)) if context.parents else ""
        )
        earlier = state.done_before(parent, declared)
        if earlier is not None:
            event = earlier
        elif (stop := state.stop) is not None:
            stop.has_taken_effect = True
            event = skip(declared, context, stop.reason)
        else:
            event = state.exclusions.event(declared, context, context) or await context.manage(declared)
        if not state.is_paused_midway:
            await state.refreshes.ended(declared, context, event)
        if earlier is not None or state.is_paused_midway:
            return event
        event.parent = parent
        event = await self.report(context, declared, event)
        if declared.wanted.register_when_stable:
            await _register(context, declared, event)
        return event

    async def report(
        self, context: ManifestContext, declared: ResolvedResource, event: TransactionEvent
    ) -> TransactionEvent:
        """Mask, record and report an outcome. Return the masked event."""
        state = context.state
        if event.output and (grant := state.options.grant) is not None and grant.withholds_output:
            event.output, event.cut = "", ["output"]
        hides = state.secrets.are_in(declared)
        event = masking.mask_event(event, declared.kind, state.masker, hides_digests=hides)
        await self.record(event, state.session, declared)
        if state.options.on_event is not None:
            waiting = state.options.on_event(event)
            if waiting is not None:
                await waiting
        return event

    async def record(
        self, event: TransactionEvent, session: MemorySession, declared: ResolvedResource | None = None
    ) -> None:
        """Record an outcome under the resource's own names, because the names in the event may be masked."""
        names = (declared.wanted.name, declared.wanted.alias) if declared is not None else ()
        await session.record(event, names)
        note_failure(self.failed, event)


async def _register(context: ManifestContext, declared: ResolvedResource, event: TransactionEvent) -> None:
    """Publish the service entries of a resource that is stable and passed all its checks."""
    publish = context.state.deps.register
    if publish is None or context.noop or context.is_restricted or event.failed or event.skipped:
        return
    for entry in declared.wanted.register_when_stable:
        try:
            await publish(entry)
        except BusError as err:
            # a lost broker connection must not stop the run; the next run publishes the entry again
            context.state.note("warning", "Registration failed", service=entry.service, error=str(err))
