"""
Removes resources that earlier runs of a manifest created and that the manifest no longer contains.

Only a complete run removes resources. It removes only resources that have not changed since an earlier run. Other
resources are released: they stay on the host, and their record is deleted. These are resources that
existed before, have changed since, or are managed by another source of this node.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ccm_agent.engine.context import ManifestContext
from ccm_agent.engine.ownership.creations import CreationWriter
from ccm_agent.engine.ownership.managed import managed_key, plain_reference
from ccm_agent.manifest.build import ResourceBuilder
from ccm_agent.model.errors import CcmError, InputError, ManifestError, PruneError
from ccm_agent.model.ids import short_id
from ccm_agent.model.outcome import PRUNE_PLANNED, RELEASED
from ccm_agent.model.records.undo import CHANGED_SINCE, UndoEntry
from ccm_agent.model.resource import ABSENT, parse_reference
from ccm_agent.resources.contract import ResolvedResource
from ccm_agent.resources.converge import skip
from ccm_agent.sessions.creation_ledger import CreationLedger, Key, LedgerEntry, find_claims

if TYPE_CHECKING:
    from pathlib import Path

    from ccm_agent.engine.load import ResolvedManifest
    from ccm_agent.engine.request import ApplyOptions, ManifestSource
    from ccm_agent.engine.resource_loop import ResourceLoop
    from ccm_agent.engine.run_state import SharedRunState
    from ccm_agent.model.outcome import TransactionEvent

NOT_LISTED = (
    "only runs of an assignment list the resources that `prune` would remove; see `ccmctl assign --mode plan`"
)
"""The warning of a plan that an operator requests."""

LASTING_SCOPES = ("assignment ", "source ")
"""Prefixes of the scopes that stay the same from run to run; see `ApplyOptions.scope`."""

NAMED = 5
"""The maximum number of resources that an error names."""


def prune_scope(source: ManifestSource, options: ApplyOptions, directory: str) -> str:
    """
    Return the owner of the ledger for a run with `prune`. "" for an operator's plan, which does not list removals.

    Raises:
        ManifestError: The manifest does not stay the same from run to run.
    """
    if options.scope.startswith(LASTING_SCOPES):
        return options.scope
    if not options.scope and source.path and source.text is None:
        return f"manifest {posixpath.normpath(posixpath.join(directory, source.path))}"
    if options.noop and options.scope:
        return ""
    raise ManifestError(
        "`prune` compares a manifest with its earlier runs, so it needs an assignment or a local file: use `ccmctl assign`, or "
        "remove `prune`"
    )


class RunPrune:
    """
    Records the resources that one run creates, and removes those of earlier runs.

    Args:
        state: The state of the run.
        loaded: The outermost manifest.
        scope: The owner of the ledger.
        folder: The folder of the ledgers.
        salt: The engine's salt; see `ownership.managed`.
    """

    def __init__(
        self, state: SharedRunState, loaded: ResolvedManifest, scope: str, folder: Path, salt: bytes
    ) -> None:
        self._state = state
        self._loaded = loaded
        self._folder = folder
        self._salt = salt
        self._ledger = CreationLedger(folder, scope)
        self._is_plan = state.options.noop
        self._declared: set[str] = set()
        self._claims: set[str] = set()
        self._managed: frozenset[str] = frozenset()
        self._is_incomplete = bool(state.options.done)

    async def open(self) -> None:
        """
        Read the ledger, and start to record the resources that the run creates.

        Raises:
            HostError: The ledger cannot be used, or another run of the manifest is in progress. Nothing was changed.
        """
        state, ledger = self._state, self._ledger
        if not self._is_plan:
            await asyncio.to_thread(ledger.lock)
        await asyncio.to_thread(ledger.load)
        if ledger.trouble:
            state.note("warning", "The record of what was created is not used", reason=ledger.trouble)
            if not self._is_plan:
                await asyncio.to_thread(ledger.set_aside)
        if not self._is_plan:
            recorder = CreationWriter(
                ledger, state.options.run, state.deps.files, state.masker, state.secrets, state.note
            )
            state.undo.around = recorder.around

    async def close(self) -> None:
        """Finish the record at the end of the run. Never raises."""
        try:
            await asyncio.to_thread(self._ledger.close)
        except CcmError as err:
            self._state.note("warning", "The record of what was created may be lost", reason=str(err))

    def declare(self, context: ManifestContext) -> None:
        """
        Record the resources of a manifest that is about to be applied.

        Raises:
            ManifestError: A child manifest sets `prune`.
        """
        if context.parents and context.loaded.prune != "off":
            raise ManifestError(
                f"{context.loaded.document.name}: `prune` belongs in the outermost manifest; remove it here"
            )
        self._declared.update(
            plain_reference(one.kind.name, one.wanted.name) for one in context.loaded.resources
        )

    def note_child(self, event: TransactionEvent) -> None:
        """Record the outcome of an `apply` resource. The content of a skipped child is unknown."""
        if event.skipped or event.failed or event.unmet_requirements:
            self._is_incomplete = True

    async def finish(self, loop: ResourceLoop) -> None:
        """
        Remove the resources that are no longer in the manifest. A plan only lists them.

        Raises:
            PruneError: There are more removals than `max_prune`. Nothing was removed.
            CcmError: An error that must end the run.
        """
        gone = [one for one in self._ledger.entries.values() if not self._is_declared(one)]
        why = self._why_incomplete(loop)
        if not why:
            await self._complete_records()
            why = await self._find_others() if gone else ""
        if gone and why:
            self._state.note("warning", "Nothing is pruned", reason=why, resources=len(gone))
        elif gone:
            await self._prune(gone, loop)

    # ---- internal ----

    def _is_declared(self, entry: LedgerEntry) -> bool:
        owners = (parse_reference(one) for one in entry.owners)
        references = (plain_reference(one.type, one.name) for one in owners if one is not None)
        return plain_reference(*entry.key) in self._declared or any(
            one in self._declared for one in references
        )

    def _why_incomplete(self, loop: ResourceLoop) -> str:
        state = self._state
        if state.options.selection is not None:
            return "only selected resources were applied"
        if loop.failed:
            return "a resource failed"
        if state.is_ending() or state.is_paused_midway:
            return "the run was stopped"
        if self._is_incomplete or state.refreshes.is_incomplete:
            return "not all resources of the manifest were reached"
        return ""

    async def _complete_records(self) -> None:
        """Check the resources that an earlier run began to create. That run was killed before it recorded the results."""
        if self._is_plan:
            return
        unknown = [
            one
            for one in self._ledger.entries.values()
            if one.removal and one.left is None and self._is_declared(one)
        ]
        async with self._context(noop=True) as context:
            for entry in unknown:
                try:
                    declared = self._removal(entry)
                    _, provider = await context.provider(declared)
                    found = await provider.status(declared.wanted)
                except CcmError:
                    continue  # its state remains unknown, so it is never removed
                rules = declared.kind.undo
                if found.ensure == ABSENT:
                    await asyncio.to_thread(self._ledger.drop, entry.key)
                elif rules is not None:
                    await asyncio.to_thread(self._ledger.put, [replace(entry, left=rules.identify(found))])

    async def _find_others(self) -> str:
        """Find the resources that other sources of this node manage. Return the reason if they are unknown, otherwise ""."""
        try:
            self._claims = await asyncio.to_thread(find_claims, self._folder, self._ledger.scope)
        except CcmError as err:
            return str(err)
        if self._state.options.managed_elsewhere is not None:
            managed = await self._state.options.managed_elsewhere()
            if managed is None:
                return "the resources of the node's other assignments are unknown"
            self._managed = frozenset(managed)
        return ""

    def _why_released(self, entry: LedgerEntry) -> str:
        reference = plain_reference(*entry.key)
        if reference in self._claims or managed_key(reference, self._salt) in self._managed:
            return "another manifest of this node manages it"
        if not entry.removal:
            return "it existed before"
        if entry.left is None:
            return "the run that created it was interrupted"
        return ""

    async def _prune(self, gone: Sequence[LedgerEntry], loop: ResourceLoop) -> None:
        released: list[tuple[LedgerEntry, str]] = []
        removals: list[tuple[LedgerEntry, ResolvedResource]] = []
        for entry in reversed(gone):
            why = self._why_released(entry)
            try:
                if not why:
                    removals.append((entry, self._removal(entry, len(removals))))
            except InputError as err:
                why = f"it cannot be removed: {err}"
            if why:
                released.append((entry, why))
        planned = await self._plan(removals)
        removed = [event for event in planned if event.changed]
        is_too_many = self._loaded.prune == "apply" and len(removed) > self._loaded.max_prune
        if self._is_plan or not is_too_many:
            for entry, why in released:
                await self._release(entry, why, loop)
        if self._is_plan or self._loaded.prune == "plan":
            await self._list(removals, planned, loop)
        elif not is_too_many:
            await self._remove(removals, loop)
        if is_too_many:
            names = [self._state.masker.name(f"{one.type}#{one.name}") for one in removed]
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            raise PruneError(
                f"nothing was removed: {len(names)} {'resource is' if len(names) == 1 else 'resources are'} no longer in the "
                f"manifest, and `max_prune` is "
                f"{self._loaded.max_prune}: {', '.join(names[:NAMED])}{more}; raise `max_prune`, or restore them"
            )

    async def _plan(self, removals: Sequence[tuple[LedgerEntry, ResolvedResource]]) -> list[TransactionEvent]:
        """Return the noop events of the removals, in the order of the removals."""
        self._begin(removals, is_plan=True)
        resources = [declared for _, declared in removals]
        async with self._context(noop=True, resources=resources) as context:
            return [await self._manage(context, one) for one in resources]

    async def _list(
        self,
        removals: Sequence[tuple[LedgerEntry, ResolvedResource]],
        planned: Sequence[TransactionEvent],
        loop: ResourceLoop,
    ) -> None:
        """
        Report what an apply would remove. With `prune: plan` no apply removes anything, so no resource is reported as changed.
        """
        context = self._context(noop=True)
        for (entry, declared), event in zip(removals, planned, strict=True):
            if event.changed and self._loaded.prune == "plan":
                event = skip(declared, context, f"would be removed: {self._why_pruned(entry)}")
                event.code = PRUNE_PLANNED
            elif event.changed:
                event.noop_message = f"{event.noop_message}: {self._why_pruned(entry)}"
            elif not event.failed and not event.skipped:
                continue  # it no longer exists
            await self._report(context, entry, declared, event, loop)

    async def _remove(
        self, removals: Sequence[tuple[LedgerEntry, ResolvedResource]], loop: ResourceLoop
    ) -> None:
        self._begin(removals, is_plan=False)
        resources = [declared for _, declared in removals]
        async with self._context(noop=False, resources=resources) as context:
            for entry, declared in removals:
                if (stop := self._state.stop) is not None:
                    stop.has_taken_effect = True
                if self._state.is_ending():
                    return
                event = await self._manage(context, declared)
                is_left = event.failed or (event.skipped and event.code != CHANGED_SINCE)
                if event.changed or event.failed or event.skipped:
                    await self._report(context, entry, declared, event, loop)
                if not is_left:
                    await asyncio.to_thread(self._ledger.drop, entry.key)

    async def _release(self, entry: LedgerEntry, why: str, loop: ResourceLoop) -> None:
        """Report a resource that is not removed, and delete its record."""
        try:
            kind = self._state.deps.catalog.find(entry.type)
            wanted = kind.properties(name=entry.name, ensure=kind.default_ensure)
        except InputError:
            self._state.note("info", "Released", resource=entry.reference, reason=why)
        else:
            context, declared = self._context(noop=self._is_plan), ResolvedResource(kind=kind, wanted=wanted)
            event = skip(declared, context, why)
            event.code = RELEASED
            await self._report(context, entry, declared, event, loop)
        if not self._is_plan and self._loaded.prune == "apply":
            await asyncio.to_thread(self._ledger.drop, entry.key)

    async def _report(
        self,
        context: ManifestContext,
        entry: LedgerEntry,
        declared: ResolvedResource,
        event: TransactionEvent,
        loop: ResourceLoop,
    ) -> None:
        if event.code == CHANGED_SINCE:
            event.code = RELEASED
        if event.code == RELEASED:
            event.error = [f"no longer in the manifest, and not removed: {why}" for why in event.error]
        else:
            event.pruned = self._why_pruned(entry)
        await loop.report(context, declared, event)

    async def _manage(self, context: ManifestContext, declared: ResolvedResource) -> TransactionEvent:
        locked = self._state.exclusions.event(declared, context, context)
        return locked or await context.manage(declared)

    def _begin(self, removals: Sequence[tuple[LedgerEntry, ResolvedResource]], *, is_plan: bool) -> None:
        entries = {
            entry.key: UndoEntry(
                type=entry.type,
                name=entry.name,
                properties=entry.removal,
                left=entry.left,
                is_secret=True,  # the secrets of the removed resources are unknown in this run
            )
            for entry, _ in removals
        }
        runs = {entry.key: entry.run for entry, _ in removals}
        self._state.undo.begin_prune(entries, runs, is_plan=is_plan)

    def _removal(self, entry: LedgerEntry, index: int = 0) -> ResolvedResource:
        """
        Return a resource that removes the recorded one.

        Raises:
            InputError: The type no longer exists here, or it has other properties.
        """
        kind = self._state.deps.catalog.find(entry.type)
        # Names are used literally. A text that looks like a template must not be evaluated.
        builder = ResourceBuilder(
            self._state.deps.catalog, self._loaded.expressions, None, "", is_literal=True
        )
        return builder.declare(kind, {**entry.removal, "name": entry.name}, (), index)

    def _context(self, *, noop: bool, resources: Sequence[ResolvedResource] = ()) -> ManifestContext:
        return ManifestContext(
            self._state,
            replace(self._loaded, resources=list(resources)),
            noop=noop,
            health_check_only=False,
            apply_resources=_apply_nothing,
        )

    def _why_pruned(self, entry: LedgerEntry) -> str:
        run = f"the run {short_id(entry.run)}" if entry.run else "an earlier run"
        return f"created by {run}, no longer in the manifest"


async def _apply_nothing(context: ManifestContext) -> Mapping[Key, TransactionEvent]:
    """Apply nothing, because removals do not include child manifests."""
    return {}
