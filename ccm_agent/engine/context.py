"""
One manifest in one run: the context of its resources' flow (`RunContext`) and of their providers (`ResourceContext`).

A child manifest (`apply`) has its own context, which shares session, changes, facts and provider choices with its parent.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from ccm_agent.engine.load import ResolvedManifest, check_rescue, load_manifest
from ccm_agent.engine.masking import (
    HIDDEN,
    register_manifest_secrets,
    register_rule_secrets,
    register_secrets,
)
from ccm_agent.engine.prefetch import StatePrefetcher
from ccm_agent.engine.refreshes import ManifestScope
from ccm_agent.engine.run_state import SharedRunState
from ccm_agent.manifest.document import ManifestDocument, Path, make_document, place_error
from ccm_agent.manifest.expressions import (
    bus_error_behind,
    holds_markers,
    holds_templates,
    raise_refusal_behind,
    render,
    render_rules,
)
from ccm_agent.model import merge
from ccm_agent.model.errors import (
    CcmError,
    ExpressionLimitError,
    FileError,
    InputError,
    ManifestError,
    NoProviderError,
    PolicyError,
)
from ccm_agent.model.health import HealthCheck, HealthResult, HealthStatus
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.ports import Clock, Files, Runner
from ccm_agent.model.resource import CommonProperties, parse_reference
from ccm_agent.model.resource_diff import ResourceDiff
from ccm_agent.resources.contract import ChildManifest, ChildOutcome, Decision, ProviderSpec, ResolvedResource
from ccm_agent.resources.converge import converge, would_have_changed

if TYPE_CHECKING:
    from ccm_agent.engine.slots import ManifestSlots
    from ccm_agent.resources.run_context import ResourceUndo
    from ccm_agent.templates.env import Environment

MANIFEST_LIMIT_BYTES = 64 << 20
"""The maximum size of a manifest file."""

BRIEF_LENGTH = 4096
"""The longest text that is rendered on the event loop; longer texts are rendered in a thread."""

MAX_DEPTH = 10
"""The maximum nesting depth of manifests, including the outermost one."""

Value = TypeVar("Value")

ApplyResources = Callable[["ManifestContext"], Awaitable[Mapping[tuple[str, str], TransactionEvent]]]
"""Applies the resources of a manifest in order, and returns the last event of each by type and name."""


class ManifestContext(ManifestScope):
    """
    The context of one manifest's resources and of their providers.

    Args:
        state: The state that the whole run shares.
        loaded: The manifest.
        noop, health_check_only: The modes of the manifest.
        parents: The contexts of the enclosing manifests, outermost first.
        asked_by: The `apply` resource that includes this manifest, as `apply#name`; "" for the outermost manifest.
        apply_resources: Applies the resources of a context; this is the engine's own loop.
    """

    parents: tuple[ManifestContext, ...]

    def __init__(
        self,
        state: SharedRunState,
        loaded: ResolvedManifest,
        *,
        noop: bool,
        health_check_only: bool,
        parents: tuple[ManifestContext, ...] = (),
        asked_by: str = "",
        apply_resources: ApplyResources,
    ) -> None:
        super().__init__(
            loaded.resources,
            noop=noop,
            health_check_only=health_check_only,
            parents=parents,
            asked_by=asked_by,
        )
        self.state = state
        self.loaded = loaded
        self._apply_resources = apply_resources
        state.secrets.refuse_exposed(*loaded.resources)
        permission = state.permission
        may_look = (lambda one: permission.may_look_ahead(one, self.directory)) if permission else None
        self._ahead = StatePrefetcher(loaded.resources, state.changes, may_look)
        self._providers: dict[tuple[str, str], tuple[ProviderSpec, Any]] = {}

    @cached_property
    def slots(self) -> ManifestSlots:
        """The fleet's slots that resources of this manifest hold."""
        from ccm_agent.engine.slots import ManifestSlots

        state = self.state
        return ManifestSlots(
            state.deps.slots, state.options.run, state.masker, state.is_ending, noop=self.noop
        )

    # ---- for providers: ResourceContext ----

    @property
    def runner(self) -> Runner:
        return self.state.runner

    @property
    def files(self) -> Files:
        return self.state.deps.files

    @property
    def clock(self) -> Clock:
        return self.state.deps.clock

    @property
    def directory(self) -> str:
        return self.loaded.document.directory

    @property
    def shown_directory(self) -> str:
        shown = posixpath.dirname(self.loaded.document.name)
        meant = posixpath.normpath(posixpath.join(self.state.deps.directory, shown))
        return shown if meant == self.directory else self.directory

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.state.facts

    @property
    def data(self) -> Mapping[str, Any]:
        return self.loaded.data

    @property
    def environ(self) -> Mapping[str, str]:
        return self.state.expressions.environ

    @property
    def may_run_commands(self) -> bool:
        return not self.is_restricted

    def port(self, name: str) -> Any:
        return self.state.deps.port(name)

    def environment(self, data: Mapping[str, Any] | None = None) -> Environment:
        expressions = self.loaded.expressions
        if data is not None:
            expressions = self.state.expressions(data, self.directory)
        return expressions.environment

    def say(self, message: str, **fields: object) -> None:
        self.state.note("info", message, **fields)

    async def apply_child(self, child: ChildManifest) -> ChildOutcome:
        noop, checks_only = self.noop or child.noop, self.health_check_only or child.health_check_only
        if noop and checks_only:
            raise ManifestError("noop and health-check mode are mutually exclusive: nothing would be done")
        if len(self.parents) + 1 >= MAX_DEPTH:
            raise ManifestError(
                f"manifests are nested more than {MAX_DEPTH} levels deep: does one include itself?"
            )
        loaded = await self._load_child(child)
        context = ManifestContext(
            self.state,
            loaded,
            noop=noop,
            health_check_only=checks_only,
            parents=(*self.parents, self),
            asked_by=child.resource,
            apply_resources=self._apply_resources,
        )
        self.state.note("info", "Executing manifest", manifest=child.path, resources=len(loaded.resources))
        from ccm_agent.engine.child_outcome import count_outcomes, note_outcome

        outcome = count_outcomes(loaded.resources, await self._apply_resources(context), noop)
        note_outcome(child, outcome, self.state.note)
        return outcome

    def item_of(self, declared: ResolvedResource) -> AbstractContextManager[None]:
        """Give expressions access to the `for_each` item of a resource while the resource is applied."""
        if declared.item is UNSET:
            return nullcontext()
        return self.loaded.expressions.environment.with_variable("item", declared.item)

    async def manage(self, declared: ResolvedResource) -> TransactionEvent:
        """Apply one resource and return its event; see `converge`."""
        with self.item_of(declared):
            return await converge(declared, self)

    # ---- for the flow: RunContext ----

    @property
    def undo(self) -> ResourceUndo:
        return self.state.undo

    @property
    def checks_planned(self) -> bool:
        return self.state.options.checks_planned and not self.is_restricted

    @property
    def is_restricted(self) -> bool:
        return self.state.permission is not None and self.state.permission.is_restricted

    async def refusal(self, declared: ResolvedResource) -> PolicyError | None:
        permission = self.state.permission
        return await permission.refusal(declared, self.directory) if permission is not None else None

    def unknown(self, why: str) -> PolicyError:
        permission = self.state.permission
        return permission.unknown(why) if permission is not None else PolicyError(why)

    def now(self) -> datetime:
        return self.state.deps.clock.now()

    async def provider(self, declared: ResolvedResource) -> tuple[str, Any]:
        key = (declared.kind.name, declared.wanted.provider)
        try:
            if key not in self._providers:
                spec = await self.state.registry.pick(
                    declared.kind, declared.wanted.provider, self.state.facts
                )
                self._providers[key] = spec, spec.make(self._context_for(declared))
            spec, provider = self._providers[key]
            if spec.takes is not None and not spec.takes(declared.wanted):
                raise NoProviderError(f"the provider {spec.name} cannot manage this resource")
        except NoProviderError as err:
            place = self.loaded.place(declared.path)
            raise NoProviderError(f"{declared.reference}: {err.message}", place=place) from err
        return spec.name, provider

    async def holds(self, expression: str, declared: ResolvedResource, field: str = "control") -> bool:
        try:
            return await self._evaluated(expression, partial(self.loaded.expressions.holds, expression))
        except InputError as err:
            raise_refusal_behind(err)
            return await asyncio.to_thread(place_error, err, self._document, (*declared.path, field))

    async def is_enough(self, until: str, declared: ResolvedResource, result: Mapping[str, Any]) -> bool:
        with self.loaded.expressions.environment.with_variable("result", result):
            return await self.holds(until, declared, "retry")

    async def finalize(self, declared: ResolvedResource) -> None:
        for field in declared.pending:
            value = getattr(declared.wanted, field)
            if holds_markers(value):
                setattr(declared.wanted, field, await self._rendered(value, (*declared.path, field)))
        declared.pending = ()
        register_secrets(self.state.masker, declared.kind, declared.wanted)
        self.state.secrets.refuse_exposed(declared)
        if declared.kind.finalize is not None:
            declared.kind.finalize(declared.wanted)

    def is_unmet(self, reference: str, declared: ResolvedResource) -> bool:
        event = self._last(reference, declared, "requires")
        return event is None or event.failed or bool(event.unmet_requirements)

    def has_failed(self, reference: str, declared: ResolvedResource) -> bool:
        # the session may contain a resource of the same name from another manifest or from an earlier run
        parsed = parse_reference(reference)
        event = self.outcomes.get((parsed.type, parsed.name)) if parsed is not None else None
        return event is not None and (event.failed or bool(event.unmet_requirements))

    def has_changed(self, reference: str, declared: ResolvedResource) -> bool:
        event = self._last(reference, declared, "subscribes to")
        if event is None:
            return False
        if would_have_changed(event) and not self.noop:
            # A change that a child only announced under noop was not made. A change that an earlier process announced is
            # treated as a change, as in Choria CCM.
            return self.state.session.is_foreign(event)
        return event.changed

    def is_owed(self, reference: str, declared: ResolvedResource) -> bool:
        return self.state.refreshes.is_owed(reference, declared, self)

    async def changing(self, declared: ResolvedResource) -> None:
        await self.state.refreshes.changing(declared, self)

    async def look(self, declared: ResolvedResource, provider: Any) -> Any:
        await self.finish(but=provider)
        return await self._ahead.look(declared, provider)

    async def look_after(self, declared: ResolvedResource, provider: Any, wanted: CommonProperties) -> Any:
        return await self._ahead.look_after(declared, provider, wanted)

    async def diff(
        self, declared: ResolvedResource, provider: Any, found: Any, decision: Decision, triggered_by: str
    ) -> ResourceDiff | None:
        hides = self.state.undo.hides(declared)
        return await self.state.diffs.of(declared, provider, found, decision, triggered_by, hides=hides)

    def forget(self) -> None:
        self.state.changes.note()

    async def check(self, check: HealthCheck) -> HealthResult:
        from ccm_agent.health.run import run_check

        try:
            settled = await self._with_gossfiles(await self._settled(check))
            if self.state.permission is not None:
                await self.state.permission.check_health(settled)
            result = await run_check(settled, self)
        except InputError as err:
            raise_refusal_behind(err)
            # the outcome of the resource does not change; only its health is unknown
            result = HealthResult(status=HealthStatus.UNKNOWN, output=err.message, name=check.name)
        if result.status != HealthStatus.OK:
            status = HealthStatus(result.status).name
            self.state.note(
                "warning", "Health check failed", check=check.name, status=status, tries=result.tries
            )
        return result

    def attempt_failed(self, declared: ResolvedResource, attempt: str, error: str, wait: str) -> None:
        shown = HIDDEN if declared.wanted.sensitive else error
        self.state.note(
            "warning", "Attempt failed", resource=declared.reference, attempt=attempt, error=shown, next=wait
        )

    async def wait(self, seconds: float) -> bool:
        return await self.state.wait(seconds)

    def checked(self, event: TransactionEvent, check: str, seconds: float) -> None:
        if self.state.options.metrics is not None:
            name = self.state.masker.name
            shown = replace(event, name=name(event.name), alias=name(event.alias))
            self.state.options.metrics.checked(shown, name(check), seconds)

    async def finish(self, but: Any = None) -> None:
        """Run the deferred last step of each provider except `but`; see `Provider`. Raises HostError if a step fails."""
        if (stop := self.state.stop) is not None and stop.is_kill:
            return
        for _, provider in list(self._providers.values()):
            if provider is not but and (finish := getattr(provider, "finish", None)) is not None:
                await finish()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Run the deferred steps of the providers, then release the providers."""
        try:
            if kind is None:
                await self.finish()
            elif issubclass(kind, CcmError):
                with suppress(CcmError):  # the first error is the one that ends the run
                    await self.finish()
        finally:
            # Providers and this context refer to each other. The garbage collector would free them only some time after the run.
            self._providers.clear()

    # ---- internal ----

    def _context_for(self, declared: ResolvedResource) -> Any:
        """Return the context for a provider: this context, or a restricted one if the node's policy limits the run."""
        permission = self.state.permission
        if permission is None:
            return self
        from ccm_agent.engine.permission import ConfinedContext

        commands = not declared.kind.rules.commands or permission.may_run_commands(declared.kind)
        return ConfinedContext(self, permission, commands=commands)

    @property
    def _document(self) -> ManifestDocument:
        return self.loaded.listed or self.loaded.document

    async def _settled(self, check: HealthCheck) -> HealthCheck:
        """Return a check with its templates rendered. Templates may refer to the result of the resource's change."""
        if not check.goss_rules or not holds_templates(check.goss_rules):
            return check
        rules = await self._evaluated(
            str(check.goss_rules), partial(render_rules, check.goss_rules, self.loaded.expressions)
        )
        settled = replace(check, goss_rules=rules)
        register_rule_secrets(self.state.masker, settled)
        return settled

    async def _with_gossfiles(self, check: HealthCheck) -> HealthCheck:
        """Return a check with the rules from the files that its goss rules refer to."""
        from ccm_agent.health.goss.gossfiles import FILE_LIMIT_BYTES, names_files, with_files

        if not names_files(check.goss_rules):
            return check

        async def read(path: str) -> bytes:
            if self.state.permission is not None:
                await self.state.permission.check_source(path, self.directory)
            return await self.files.read(path, FILE_LIMIT_BYTES)

        complete = replace(check, goss_rules=await with_files(check.goss_rules, read))
        register_rule_secrets(self.state.masker, complete)
        return complete

    async def _rendered(self, value: Any, path: Path) -> Any:
        """Return a property with its expressions rendered. An error includes the property's path."""
        try:
            try:
                return await self._evaluated(str(value), partial(render, value, self.loaded.expressions))
            except InputError as err:
                raise_refusal_behind(err)
                return await asyncio.to_thread(place_error, err, self._document, path)
        except InputError as err:
            cause = bus_error_behind(err)
            if cause is None:
                raise
            raise type(cause)(str(err)) from err

    async def _evaluated(self, text: str, evaluate: Callable[[], Value]) -> Value:
        """
        Evaluate a text, in a thread if that may block.

        Most texts are cheap, and switching to a thread would cost more. An expensive evaluation is abandoned and repeated in a
        thread. This is safe because an evaluation does not change anything.
        """
        if len(text) <= BRIEF_LENGTH and not self.state.takes_time(text):
            try:
                with self.loaded.expressions.environment.brief():
                    return evaluate()
            except ExpressionLimitError:
                pass
        return await asyncio.to_thread(evaluate)

    def _last(self, reference: str, declared: ResolvedResource, verb: str) -> TransactionEvent | None:
        """Return the last outcome. If there is none, return None for `rescue`, otherwise raise ManifestError."""
        parsed = parse_reference(reference)
        event = None
        if parsed is not None:
            last, shown = self.state.session.last, self.state.masker.name(parsed.name)
            # an event from another process has a masked name
            event = last(parsed.type, parsed.name) or last(parsed.type, shown)
        if event is None and not declared.wanted.rescue:
            message = (
                f"{declared.reference} {verb} `{reference}`, which has no result yet: declare it earlier"
            )
            raise ManifestError(message, place=self.loaded.place(declared.path))
        return event

    async def _load_child(self, child: ChildManifest) -> ResolvedManifest:
        path = posixpath.normpath(posixpath.join(self.directory, child.path))
        if self.state.permission is not None:
            await self.state.permission.check_source(path, self.directory)
        try:
            data = await self.files.read(path, MANIFEST_LIMIT_BYTES)
        except FileError as err:
            raise ManifestError(f"the child manifest {path} cannot be read: {err.message}") from err
        document = make_document(data, path, posixpath.dirname(path))
        # the parent manifest's data already include the overrides
        override = self.data if child.data is None else merge.deep(child.data, self.state.outer_data)
        deps = self.state.deps
        try:
            loaded = await asyncio.to_thread(
                load_manifest,
                document,
                deps.catalog,
                self.state.expressions,
                (),
                override,
                deps.read_document,
                self.state.secrets,
            )
        except InputError as err:
            raise_refusal_behind(err)
            raise
        register_manifest_secrets(self.state.masker, loaded.resources)
        check_rescue(loaded)
        for around in (*self.parents, self):
            same = around.loaded.document.name == path or around.loaded.document.digest == document.digest
            if same and around.loaded.data == loaded.data:
                raise ManifestError(f"{path} includes itself with the same data, so it would never end")
        if not child.allow_apply and any(one.kind.contains_manifest for one in loaded.resources):
            raise ManifestError(f"{path} contains `apply` resources, which `allow_apply: false` forbids")
        return loaded
