"""
Applies manifests and single resources, and reports each outcome.

Resources run in the order of their declaration. A failed resource is reported as an outcome. An error that ends the run is
stored in the summary's `reason`.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.engine import masking
from ccm_agent.engine.context import MANIFEST_LIMIT_BYTES, ManifestContext
from ccm_agent.engine.deps import EngineDeps
from ccm_agent.engine.load import ResolvedManifest, check_order, load_manifest
from ccm_agent.engine.request import PAUSED, ApplyOptions, ManifestSource
from ccm_agent.engine.resource_loop import ResourceLoop
from ccm_agent.engine.run_state import SharedRunState
from ccm_agent.engine.undo import undo_resources
from ccm_agent.manifest.build import ResourceBuilder
from ccm_agent.manifest.document import ManifestDocument, make_document
from ccm_agent.manifest.expressions import has_markers, raise_refusal_behind
from ccm_agent.manifest.tinycm.detect import is_tinycm
from ccm_agent.model import merge
from ccm_agent.model.data import Resolved
from ccm_agent.model.errors import CcmError, FileError, InputError, ManifestError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import (
    SESSION_START,
    SessionStart,
    SessionSummary,
    TransactionEvent,
    end_state,
)
from ccm_agent.resources.contract import AnyType, ResolvedResource
from ccm_agent.sessions.memory import MemorySession
from ccm_agent.sessions.refresh_log import RefreshLog

if TYPE_CHECKING:
    from ccm_agent.engine.ownership.prune import RunPrune


class PreparedManifest(Struct, kw_only=True):
    """
    A manifest that is ready to be executed.

    Attributes:
        loaded: Its resources, data and messages.
        state: The state of its run.
        data_revisions: The revision of each hiera document that was read, by URL.
        prune_scope: The owner of the ledger that the run uses; "" with `prune: off`.
    """

    loaded: ResolvedManifest
    state: SharedRunState
    data_revisions: dict[str, int] = {}
    prune_scope: str = ""


class LocalEngine:
    """
    The engine of this host; `engine.request.Engine` describes its guarantees.

    Args:
        deps: The dependencies of the engine.
    """

    def __init__(self, deps: EngineDeps) -> None:
        self.deps = deps
        self._salt = os.urandom(16)

    async def apply(self, source: ManifestSource, options: ApplyOptions) -> SessionSummary:
        """Load a manifest and execute it; see `engine.request.Engine.apply`."""
        return await self.execute(await self.load(source, options))

    async def load(self, source: ManifestSource, options: ApplyOptions) -> PreparedManifest:
        """
        Read, resolve and check a manifest. Nothing is changed.

        Raises:
            InputError: The manifest or its data are invalid.
        """
        state = await self._begin(options)
        with state.secrets.kept_out_of_errors():
            return await (
                self._load(source, state) if source.undo is None else self._load_undo(source, state)
            )

    async def _load(self, source: ManifestSource, state: SharedRunState) -> PreparedManifest:
        document = await self._document(source)
        if state.permission is not None and (source.path or source.directory):
            # "" for a manifest in `/`, because every file is below that directory
            state.permission.root = document.directory.rstrip("/")
        state.refreshes = state.refreshes_in(self._refresh_log(source, options=state.options))
        try:
            return await self._resolve(source, state, document)
        except InputError as err:
            raise_refusal_behind(err)
            raise

    async def _load_undo(self, source: ManifestSource, state: SharedRunState) -> PreparedManifest:
        """Return the resources of an undo with their earlier states. Contents come from the copies that this node kept."""
        assert source.undo is not None
        folder = source.undo.folder
        if state.permission is not None:
            state.permission.root = folder
        state.undo.begin(source.undo)
        document = ManifestDocument(text="", name=source.name, directory=folder, digest=source.digest)
        expressions = state.expressions({}, folder)
        resources = await asyncio.to_thread(undo_resources, source.undo, self.deps.catalog, expressions)
        masking.register_manifest_secrets(state.masker, resources)
        loaded = ResolvedManifest(document=document, resources=resources, data={}, expressions=expressions)
        return PreparedManifest(loaded=loaded, state=state)

    async def _resolve(
        self, source: ManifestSource, state: SharedRunState, document: ManifestDocument
    ) -> PreparedManifest:
        options = state.options
        overlays, revisions = await self._overlays(state)
        state.outer_data = _outer_data(options, overlays)
        if is_tinycm(document.name, document.text):
            from ccm_agent.engine.tinycm.load import load_tinycm

            loaded = await load_tinycm(document, state, overlays, source.module_path)
        elif source.module_path:
            raise ManifestError(f"{document.name}: this is not a TinyCM manifest; --module-path is for those")
        else:
            loaded = await asyncio.to_thread(
                load_manifest,
                document,
                self.deps.catalog,
                state.expressions,
                overlays,
                options.data,
                self.deps.read_document,
                state.secrets,
            )
        masking.register_manifest_secrets(state.masker, loaded.resources)
        check_order(loaded)
        state.exclusions.check(loaded)
        # one document may declare the data of another as secret
        state.secrets.learn_data(loaded.data)
        loaded.pre_message = state.masker.text(loaded.pre_message)
        loaded.post_message = state.masker.text(loaded.post_message)
        scope = ""
        if loaded.prune != "off":
            from ccm_agent.engine.ownership.prune import prune_scope

            scope = prune_scope(source, options, self.deps.directory)
        return PreparedManifest(
            loaded=loaded,
            state=state,
            data_revisions={**source.data_revisions, **revisions},
            prune_scope=scope,
        )

    async def execute(self, plan: PreparedManifest) -> SessionSummary:
        """Execute a loaded manifest. Return the summary as `engine.request.Engine.apply` does."""
        loaded, state, options = plan.loaded, plan.state, plan.state.options
        if options.noop and options.health_check_only:
            raise ManifestError("noop and health-check mode are mutually exclusive: choose one of them")
        verb = "Executing manifest health checks" if options.health_check_only else "Executing manifest"
        for sentence in loaded.warnings:
            state.note("warning", sentence)
        state.note("info", verb, manifest=loaded.document.name, resources=len(loaded.resources))
        await state.refreshes.open()
        await self._start(plan)
        tally = ResourceLoop()
        for event in options.done:
            # count all earlier events first, because resources of child manifests are not reached again
            await tally.record(event, state.session)
        context = ManifestContext(
            state,
            loaded,
            noop=options.noop,
            health_check_only=options.health_check_only,
            apply_resources=tally.run,
        )
        broken: CcmError | None = None
        prune: RunPrune | None = None
        with state.secrets.kept_out_of_errors():
            try:
                prune = tally.prune = self._open_prune(plan)
                if prune is not None:
                    await prune.open()
                await tally.run(context)
                if prune is not None:
                    await prune.finish(tally)
            except CcmError as err:
                broken = err
            finally:
                if prune is not None:
                    await prune.close()
            is_complete = broken is None and not state.is_paused_midway and not state.is_stopped
            if is_complete and state.exclusions.is_empty:
                broken = ManifestError(f"no resource of {loaded.document.name} matches {options.selection}")
            await state.refreshes.close(is_complete=is_complete)
        await state.undo.close()
        return self._summary(plan, tally, broken)

    def _open_prune(self, plan: PreparedManifest) -> RunPrune | None:
        """Return the object that records and removes the creations of a manifest with `prune`."""
        if not plan.prune_scope or plan.state.options.health_check_only:
            return None
        from ccm_agent.engine.ownership.prune import RunPrune

        if self.deps.creations is None:
            raise ManifestError("this program does not record what it creates, so it cannot prune")
        return RunPrune(plan.state, plan.loaded, plan.prune_scope, self.deps.creations, self._salt)

    async def managed(self, source: ManifestSource, options: ApplyOptions) -> dict[str, str]:
        """Return the resources that a manifest would manage; see `engine.request.Engine.managed`."""
        from ccm_agent.engine.ownership.managed import managed

        plan = await self.load(source, options)
        with plan.state.secrets.kept_out_of_errors():
            return await managed(plan.loaded, plan.state, self._salt)

    async def ensure(
        self, type_name: str, properties: Mapping[str, Any], options: ApplyOptions
    ) -> TransactionEvent:
        """Apply one resource; see `engine.request.Engine.ensure`."""
        kind = self.deps.catalog.find(type_name)
        state = await self._begin(options, is_single=True)
        with state.secrets.kept_out_of_errors():
            return await self._ensure(kind, properties, state)

    async def _ensure(
        self, kind: AnyType, properties: Mapping[str, Any], state: SharedRunState
    ) -> TransactionEvent:
        options = state.options
        state.refreshes = state.refreshes_in(state.session.refreshes, is_session=True)
        await state.refreshes.open()
        loaded = await self._empty(state)
        builder = ResourceBuilder(
            self.deps.catalog, loaded.expressions, None, "", is_literal=options.is_literal
        )
        declared = await asyncio.to_thread(builder.declare, kind, dict(properties), ())
        loaded.resources = [declared]
        masking.register_manifest_secrets(state.masker, loaded.resources)
        tally = ResourceLoop()
        context = ManifestContext(
            state,
            loaded,
            noop=options.noop,
            health_check_only=options.health_check_only,
            apply_resources=tally.run,
        )
        try:
            async with context:
                return await tally.apply_one(context, declared)
        finally:
            await state.refreshes.close(is_complete=False)
            await state.undo.close()

    async def status(self, type_name: str, name: str, options: ApplyOptions) -> Any:
        """
        Return the current state of the resource with this name.

        Raises:
            ManifestError: The type is unknown, or needs more than a name.
            CcmError: No provider works here, or the state cannot be read.
        """
        kind = self.deps.catalog.find(type_name)
        if not kind.can_status:
            raise ManifestError(
                f"the status of `{type_name}` resources is not supported: {kind.why_no_status}"
            )
        context = await self.context(options)
        with context.state.secrets.kept_out_of_errors():
            if has_markers(name):
                name = await asyncio.to_thread(context.loaded.expressions.text, name)
            if kind.status_name is not None:
                name = kind.status_name(name)
            wanted = kind.properties(name=name, ensure=kind.default_ensure)
            declared = ResolvedResource(kind=kind, wanted=wanted)
            context.loaded.resources = [declared]
            _, provider = await context.provider(declared)
            found = await provider.status(wanted)
        if found.timestamp is None:
            found.timestamp = self.deps.clock.now()
        return found

    async def context(self, options: ApplyOptions) -> ManifestContext:
        """Return the context of an empty manifest in the working directory, for resources that are only read."""
        state = await self._begin(options)
        with state.secrets.kept_out_of_errors():
            loaded = await self._empty(state)
        return ManifestContext(
            state, loaded, noop=True, health_check_only=False, apply_resources=ResourceLoop().run
        )

    # ---- internal ----

    async def _begin(self, options: ApplyOptions, *, is_single: bool = False) -> SharedRunState:
        session = MemorySession()
        if options.session:
            from ccm_agent.sessions.directory import open_session

            session = await open_session(options.session)
        if options.facts is None:
            facts = self.deps.gather_facts(options.more_facts)
        else:
            facts = merge.deep(options.facts, options.more_facts) if options.more_facts else options.facts
        return SharedRunState(self.deps, options, session, facts, is_single=is_single)

    async def _document(self, source: ManifestSource) -> ManifestDocument:
        path = _join(self.deps.directory, source.path) if source.path else ""
        name = source.name or source.path or "manifest"
        directory = source.directory or posixpath.dirname(path)
        directory = _join(self.deps.directory, directory)
        if source.text is not None:
            return make_document(source.text, name, directory, source.digest)
        try:
            data = await self.deps.files.read(path, MANIFEST_LIMIT_BYTES)
        except FileError as err:
            raise ManifestError(err.message) from err
        return make_document(data, name, directory, source.digest)

    def _refresh_log(self, source: ManifestSource, options: ApplyOptions) -> RefreshLog | None:
        """Return the log of a manifest's pending refreshes."""
        if self.deps.refreshes is None:
            return None
        name = source.name or _join(self.deps.directory, source.path)
        return self.deps.refreshes.log(options.scope or f"manifest {name}")

    async def _overlays(self, state: SharedRunState) -> tuple[tuple[Resolved, ...], dict[str, int]]:
        """Fetch the hiera documents that override a manifest's data. Relative paths start in the working directory."""
        options, facts, permission = state.options, state.facts, state.permission
        if not options.hiera:
            return (), {}
        for url in options.hiera:
            if permission is not None and url not in options.own_hiera:
                await permission.check_document(url, self.deps.directory)
        sources = self.deps.sources(self.deps.directory)
        if options.pins:
            sources = sources.pinned(options.pins)
        begun = time.monotonic()
        found = []
        for url in options.hiera:
            try:
                found.append(await sources.resolve(url, facts))
            except CcmError:
                if options.metrics is not None:
                    options.metrics.data_failed(url)
                raise
        if options.metrics is not None:
            options.metrics.data_resolved(time.monotonic() - begun)
        revisions = {
            url: one.revision for url, (_, one) in zip(options.hiera, found, strict=True) if one.revision
        }
        for resolved, _ in found:
            state.secrets.declare(resolved.secret)
        for data in (*(resolved.data for resolved, _ in found), options.data or {}):
            state.secrets.learn_data(data)
        return tuple(resolved for resolved, _ in found), revisions

    async def _empty(self, state: SharedRunState) -> ResolvedManifest:
        """Return an empty manifest in the working directory, as the context of a single resource."""
        from ccm_agent.hiera import rules

        directory = self.deps.directory
        data: dict[str, Any] = {}
        checks: list[Any] = []
        for overlay in (await self._overlays(state))[0]:
            data = merge.deep(data, overlay.data)
            checks += overlay.rules
        data = merge.deep(data, state.options.data or {})
        if data:
            data = await asyncio.to_thread(state.secrets.opened, data)
        if checks:
            await asyncio.to_thread(rules.check, data, checks)
        document = ManifestDocument(text="", name="", directory=directory, digest="")
        return ResolvedManifest(
            document=document, resources=[], data=data, expressions=state.expressions(data, directory)
        )

    async def _start(self, plan: PreparedManifest) -> None:
        options, now = plan.state.options, self.deps.clock.now()
        event = SessionStart(
            protocol=SESSION_START,
            event_id=new_id(now),
            timestamp=now,
            node=options.node,
            run=options.run,
            manifest=plan.loaded.document.name,
            digest=plan.loaded.document.digest,
            data_revisions=plan.data_revisions,
            resources=len(plan.loaded.resources),
            noop=options.noop,
            health_check_only=options.health_check_only,
            requester=options.requester,
            agent_version=self.deps.version,
            cause=options.cause,
        )
        await plan.state.session.start(event)
        if options.on_start is not None:
            waiting = options.on_start(event)
            if waiting is not None:
                await waiting

    def _summary(
        self, plan: PreparedManifest, tally: ResourceLoop, broken: CcmError | None
    ) -> SessionSummary:
        options, now = plan.state.options, self.deps.clock.now()
        summary = plan.state.session.summary(new_id(now), now)
        summary.node, summary.run = options.node, options.run
        summary.manifest, summary.digest = plan.loaded.document.name, plan.loaded.document.digest
        summary.data_revisions = plan.data_revisions
        summary.noop, summary.health_check_only = options.noop, options.health_check_only
        summary.failed = tally.failed
        summary.refresh_pending = plan.state.refreshes.pending
        summary.left_out = plan.state.exclusions.needs
        if plan.loaded.prune != "off" and not plan.prune_scope:
            from ccm_agent.engine.ownership.prune import NOT_LISTED

            summary.warnings = [NOT_LISTED]
        if broken is not None:
            summary.reason, summary.code = plan.state.masker.text(str(broken)), broken.code
        elif plan.state.is_paused_midway:
            summary.reason, summary.code = "paused", PAUSED
        summary.state = end_state(summary)
        if not summary.reason and (stop := plan.state.stop):
            stop.record_in(summary)
        return summary


def _outer_data(options: ApplyOptions, overlays: tuple[Resolved, ...]) -> Mapping[str, Any]:
    """Return the data that override the data of every manifest of a run."""
    data = options.data or {}
    for overlay in reversed(overlays if options.keeps_hiera else ()):
        data = merge.deep(overlay.data, data)
    return data


def _join(directory: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(directory, path))
