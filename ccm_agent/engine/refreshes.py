"""
The pending refreshes of one run. They result from its own changes or from earlier runs.

Within a run, the session's events determine which subscribers are refreshed, as in Choria CCM. Across runs, the log does. A
change is recorded before it is made. The record is removed when each subscriber has been refreshed or is no longer declared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from ccm_agent.model.errors import HostError
from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.ports import Clock
from ccm_agent.model.resource import parse_reference
from ccm_agent.model.secret import Masker
from ccm_agent.resources.contract import ResolvedResource
from ccm_agent.resources.converge import subscriptions
from ccm_agent.sessions.memory import MemorySession
from ccm_agent.sessions.refresh_log import (
    ANY,
    CHANGES_LIMIT,
    COMPACT_LINES,
    LabelledResource,
    RefreshLog,
    StoredResource,
    TriggerChange,
)

log = logging.getLogger(__name__)

NAMED_LIMIT = 20
"""The maximum number of resources that an event or a summary names."""

_PROGRAM = lazy_pattern(r"[A-Za-z0-9_./+-]+")


class SubscriptionIndex:
    """
    The subscriptions in one manifest.

    Attributes:
        subscribers: The subscribing resources, by reference.
        nested: The `apply` resources by name, each of which contains a manifest.
    """

    def __init__(self, resources: Iterable[ResolvedResource]) -> None:
        self.subscribers: dict[str, list[ResolvedResource]] = {}
        self.nested: dict[str, ResolvedResource] = {}
        for declared in resources:
            if declared.kind.contains_manifest:
                self.nested[declared.reference] = declared
            for reference in subscriptions(declared):
                self.subscribers.setdefault(_plain(reference), []).append(declared)


class ManifestScope:
    """
    A manifest of a run, with its enclosing manifests.

    Attributes:
        noop, health_check_only: The modes of the manifest.
        parents: The enclosing manifests, outermost first.
        asked_by: The `apply` resource that includes this manifest, as `apply#name`; "" for the outermost manifest.
        outcomes: The last event of each of its resources, by type and name, and by type and alias.
    """

    def __init__(
        self,
        resources: Sequence[ResolvedResource],
        *,
        noop: bool,
        health_check_only: bool,
        parents: tuple[ManifestScope, ...],
        asked_by: str,
    ) -> None:
        self.noop = noop
        self.health_check_only = health_check_only
        self.parents = parents
        self.asked_by = asked_by
        self.outcomes: dict[tuple[str, str], TransactionEvent] = {}
        self._resources = resources

    def planned_before(self) -> str:
        """Return the last earlier resource that this plan would change, as `type#name`. "" if there is none."""
        for scope in (self, *reversed(self.parents)):
            for event in reversed(scope.outcomes.values()):
                if event.noop and event.changed:
                    return f"{event.type}#{event.name}"
        return ""

    @cached_property
    def outline(self) -> SubscriptionIndex:
        """The subscriptions of this manifest."""
        return SubscriptionIndex(self._resources)


class Refreshes:
    """
    The pending refreshes of one run.

    Args:
        kept: The log of pending refreshes. With None, they are forgotten when the run ends.
        session: The events of the run.
        masker: Masks the names that are stored or shown.
        clock: Returns the time of the changes.
        note: Reports a note of the run: its level, message and fields.
        is_plan: Whether the run changes nothing.
        is_session: Whether other processes use the same session. A change may then have subscribers that are unknown here.

    Attributes:
        is_incomplete: Whether the run did not reach all resources, so that some subscribers are unknown.
    """

    def __init__(
        self,
        kept: RefreshLog | None,
        *,
        session: MemorySession,
        masker: Masker,
        clock: Clock,
        note: Callable[..., None],
        is_plan: bool,
        is_session: bool,
    ) -> None:
        self.is_incomplete = is_session
        self._log = kept
        self._session = session
        self._masker = masker
        self._clock = clock
        self._note = note
        self._is_session = is_session
        self._is_plan = is_plan
        self._lines = 0
        self._changes: dict[str, TriggerChange] = {}
        self._by_key: dict[str, list[TriggerChange]] = {}
        self._own: set[str] = set()
        self._met: list[tuple[StoredResource, frozenset[str]]] = []
        self._shown: dict[str, str] = {}

    async def open(self) -> None:
        """Read the refreshes that earlier runs left. A damaged file is reported, and its readable part is used."""
        if self._log is None:
            return
        found = await asyncio.to_thread(self._log.load)
        if found.trouble:
            await self._report(found.trouble)
        self._lines = found.lines
        for change in found.changes.values():
            self._know(change)

    def is_owed(self, reference: str, declared: ResolvedResource, context: ManifestScope) -> bool:
        """
        Whether an earlier run changed a resource without refreshing this subscriber.

        While the changed resource fails, its subscribers wait, because its state is unknown.
        """
        if not self._changes or self._has_failed(reference):
            return False
        keys = self._subscriber(declared, context).keys
        return any(
            change.id not in self._own and change.waits_for(keys) for change in self._changes_of(reference)
        )

    async def changing(self, declared: ResolvedResource, context: ManifestScope) -> None:
        """
        Record that a resource and its enclosing manifests are about to change.

        Raises:
            HostError: The change cannot be recorded.
        """
        if self._log is None or self._is_plan:
            return
        chain = (*context.parents, context)
        # a manifest that has not been read yet can contain a subscriber
        is_open = self._is_session or any(
            len(around.outline.nested) > (around is not context) for around in chain
        )
        changed = [(declared, chain)]
        changed += [
            (found, chain[:depth])
            for depth, one in enumerate(chain)
            if depth and (found := chain[depth - 1].outline.nested.get(one.asked_by)) is not None
        ]
        for one, around in changed:
            waiting = list(self._subscribers_of(one, around))
            if waiting or is_open:
                await self._record(one, waiting, is_open=is_open)

    async def ended(
        self, declared: ResolvedResource, context: ManifestScope, event: TransactionEvent
    ) -> None:
        """Record whether a resource was refreshed or remained unchanged. Sets `refresh_pending` of the event."""
        if self._log is None:
            return
        is_real = not (context.noop or context.health_check_only)
        if subscriptions(declared):
            await self._ended_subscriber(declared, context, event, is_real=is_real)
        if not is_real:
            return
        if self._own and not event.changed and not event.failed:
            await self._did_not_change(declared)
        if declared.kind.contains_manifest and (event.failed or event.unmet_requirements or event.error):
            self.is_incomplete = True

    async def close(self, *, is_complete: bool) -> None:
        """End the run. After a complete run, only known subscribers that are still declared remain pending."""
        if self._log is None or self._is_plan or not (self._changes or self._lines):
            return
        if not is_complete or self.is_incomplete:
            is_settled = all(change.is_settled for change in self._changes.values())
            if is_settled or self._lines > COMPACT_LINES:
                await self._try(self._log.compact)
            return
        for change in self._changes.values():
            triggers = set(change.trigger.keys)
            change.waiting = [
                kept
                for kept, subscribed in self._met
                if (ANY in triggers or triggers & subscribed) and change.waits_for(kept.keys)
            ]
            change.is_open, change.done = False, []
        await self._try(self._log.settle, self._changes)

    @property
    def pending(self) -> list[str]:
        """Return the first subscribers that a later run must refresh, with names that may be shown."""
        names: dict[str, None] = {}
        for change in self._changes.values():
            names.update((self._shown.get(one.keys[0], one.label), None) for one in change.waiting)
            if change.is_open and not change.waiting and not self._is_session:
                names[f"the subscribers of {change.trigger.label}"] = None
        return list(names)[:NAMED_LIMIT]

    # ---- internal ----

    async def _ended_subscriber(
        self, declared: ResolvedResource, context: ManifestScope, event: TransactionEvent, *, is_real: bool
    ) -> None:
        kept = self._subscriber(declared, context)
        is_excluded = _is_excluded(event)
        if is_real and not is_excluded:
            subscribed = frozenset(self._key(one) for one in subscriptions(declared))
            self._met.append((kept, subscribed))
            self._shown[kept.keys[0]] = self._masker.name(declared.reference)
        if not self._changes:
            return
        is_refreshed = event.status is not None and not event.noop
        if is_real and (is_refreshed or is_excluded):
            # the subscriber ran after all of its triggers, including those that failed
            await self._refreshed(declared, kept, of_all=is_excluded or event.changed)
        event.refresh_pending = [
            reference
            for reference in subscriptions(declared)
            if any(change.waits_for(kept.keys) for change in self._changes_of(reference))
        ][:NAMED_LIMIT]

    async def _refreshed(self, declared: ResolvedResource, kept: StoredResource, *, of_all: bool) -> None:
        """Mark a subscriber as refreshed for all its triggers, or only for the triggers that have not failed."""
        assert self._log is not None
        settled = {
            change.id: change
            for reference in subscriptions(declared)
            if of_all or not self._has_failed(reference)
            for change in self._changes_of(reference)
            if change.waits_for(kept.keys)
        }
        if not settled:
            return
        await self._try(self._log.refreshed, kept.keys, list(settled))
        for change in settled.values():
            change.refreshed(kept.keys)

    async def _did_not_change(self, declared: ResolvedResource) -> None:
        """Remove the record that was written before the change."""
        assert self._log is not None
        gone = {
            change.id
            for reference in _references(declared)
            for change in self._changes_of(reference)
            if change.id in self._own
        }
        if gone:
            await self._try(self._log.drop, sorted(gone))
            self._own -= gone
            for number in gone:
                self._forget(self._changes.pop(number))

    async def _record(
        self, declared: ResolvedResource, waiting: list[StoredResource], *, is_open: bool
    ) -> None:
        assert self._log is not None
        label = self._label(declared)
        keys = tuple(self._key(one) for one in _references(declared))
        if self._is_recorded(keys, waiting, is_open=is_open):
            return
        if len(self._changes) >= CHANGES_LIMIT:
            label, keys, is_open = "a resource", (ANY,), True
            if self._is_recorded(keys, [], is_open=True):
                return
        now = self._clock.now()
        change = TriggerChange(
            id=new_id(now), trigger=StoredResource(label, keys), since=now, waiting=waiting, is_open=is_open
        )
        try:
            await asyncio.to_thread(self._log.add, change)
        except HostError as err:
            raise type(err)(
                f"nothing was changed: cannot record that subscribers must be refreshed: {err.message}"
            ) from err
        self._lines += 1
        self._own.add(change.id)
        self._know(change)

    def _is_recorded(self, keys: Iterable[str], waiting: list[StoredResource], *, is_open: bool) -> bool:
        """Whether this run has already recorded the same change and no subscriber has been refreshed since."""
        return any(
            change.id in self._own
            and not change.done
            and change.is_open >= is_open
            and all(change.waits_for(one.keys) for one in waiting)
            for key in keys
            for change in self._by_key.get(key, ())
        )

    def _subscribers_of(
        self, declared: ResolvedResource, chain: Iterable[ManifestScope]
    ) -> Iterator[StoredResource]:
        """Yield the known subscribers of a resource in the manifests that are being applied."""
        for context in chain:
            if context.noop or context.health_check_only:
                continue
            for reference in _references(declared):
                for one in context.outline.subscribers.get(reference, ()):
                    yield self._subscriber(one, context)

    def _subscriber(self, declared: ResolvedResource, context: ManifestScope) -> StoredResource:
        """Return the record of a subscriber. Resources with the same name in two child manifests are distinct."""
        assert self._log is not None
        inside = "".join(f"{one.asked_by} > " for one in (*context.parents[1:], context) if one.asked_by)
        references = tuple(f"{inside}{one}" for one in _references(declared))
        return self._log.kept(LabelledResource(label=self._label(declared), references=references))

    def _label(self, declared: ResolvedResource) -> str:
        """
        Return a readable name that can be stored on disk. It never contains a command, because a command can contain a secret.
        """
        wanted, masker = declared.wanted, self._masker
        name = wanted.alias or wanted.name
        if declared.kind.rules.commands and not wanted.alias and not getattr(wanted, "command", ""):
            program = wanted.name.split(maxsplit=1)
            is_plain = bool(program) and _PROGRAM.fullmatch(program[0]) is not None
            name = f"{program[0]} …" if is_plain and len(program) > 1 else program[0] if is_plain else "…"
        return masker.name(f"{declared.kind.name}#{name}")

    def _changes_of(self, reference: str) -> list[TriggerChange]:
        return [*self._by_key.get(self._key(reference), ()), *self._by_key.get(ANY, ())]

    def _key(self, reference: str) -> str:
        assert self._log is not None
        return self._log.key(_plain(reference))

    def _has_failed(self, reference: str) -> bool:
        """Whether a resource failed before its state was known."""
        parsed = parse_reference(reference)
        event = self._session.last(parsed.type, parsed.name) if parsed is not None else None
        return event is not None and event.failed and not event.changed and event.status is None

    def _know(self, change: TriggerChange) -> None:
        self._changes[change.id] = change
        for key in change.trigger.keys:
            self._by_key.setdefault(key, []).append(change)

    def _forget(self, change: TriggerChange) -> None:
        for key in change.trigger.keys:
            self._by_key[key].remove(change)

    async def _report(self, trouble: str) -> None:
        """Report that pending refreshes are unknown, and move the damaged file aside."""
        message = "Pending refreshes cannot be read: a subscriber may miss a refresh"
        self._note("warning", message, reason=trouble)
        log.warning(message, extra={"reason": trouble})
        if not self._is_plan and self._log is not None:
            await self._try(self._log.set_aside)

    async def _try(self, write: Any, *args: Any) -> None:
        """Write to the log. If that fails, the worst result is an additional refresh of a subscriber."""
        try:
            await asyncio.to_thread(write, *args)
            self._lines += 1
        except HostError as err:
            message = "Pending refreshes cannot be written: a subscriber may be refreshed twice"
            self._note("warning", message, reason=err.message)
            log.warning(message, extra={"reason": err.message})


def _references(declared: ResolvedResource) -> list[str]:
    """Return the references of a resource: by name and by alias."""
    wanted = declared.wanted
    names = dict.fromkeys(name for name in (wanted.name, wanted.alias) if name)
    return [f"{declared.kind.name}#{name}" for name in names]


def _plain(reference: str) -> str:
    """Normalize a reference as `_references` does."""
    parsed = parse_reference(reference)
    return f"{parsed.type}#{parsed.name}" if parsed is not None else reference


def _is_excluded(event: TransactionEvent) -> bool:
    """Whether `control` excludes the resource on this node."""
    return event.skipped and not (event.unmet_requirements or event.unknown or event.error)
