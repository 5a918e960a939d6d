"""Reads the states of many resources with one call of their provider. They remain valid until something on the host changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ccm_agent.resources.contract import ResolvedResource

EVERYTHING = 1 << 62

LookAhead = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
"""The optional `look_ahead` method of a provider; see `Provider`."""

LookAfter = Callable[[Any, Any], Awaitable[tuple[Any, Any]]]
"""The optional `look_after` method of a provider; see `Provider`."""


class HostChanges:
    """Counts changes to this host, across a run and its child manifests."""

    def __init__(self) -> None:
        self.count = 0

    def note(self) -> None:
        """Count an imminent change."""
        self.count += 1


class StatePrefetcher:
    """
    Reads the states of a manifest's resources in batches.

    The first batch contains all resources of a type. Each change discards the states that were read ahead. The next batches then
    contain one, two, four resources and so on. This limits repeated reads, whether many or few resources change. The first of
    these batches may be read together with the state of the changed resource.
    """

    def __init__(
        self,
        resources: list[ResolvedResource],
        changes: HostChanges,
        may_look: Callable[[ResolvedResource], bool] | None = None,
    ) -> None:
        """
        Create a prefetcher without reading any state.

        Args:
            resources: The resources of one manifest.
            changes: Counts the changes of the whole run.
            may_look: Returns whether the node's policy allows reading a resource's state. None if there is no policy.
        """
        self._changes = changes
        self._may_look = may_look
        self._seen = changes.count
        self._window = EVERYTHING
        self._states: dict[int, Any] = {}
        self._groups: dict[tuple[str, str], list[ResolvedResource]] = defaultdict(list)
        self._positions: dict[tuple[str, str], int] = defaultdict(int)
        for declared in resources:
            self._groups[_group(declared)].append(declared)

    async def look(self, declared: ResolvedResource, provider: Any) -> Any:
        """Return the state of a resource: the prefetched state if it is still valid, otherwise a new one."""
        ask: LookAhead | None = getattr(provider, "look_ahead", None)
        if ask is None:
            return await provider.status(declared.wanted)
        self._discard_outdated()
        if declared.index not in self._states:
            await self._ask(declared, ask)
        state = self._states.pop(declared.index, None)
        return state if state is not None else await provider.status(declared.wanted)

    async def look_after(self, declared: ResolvedResource, provider: Any, wanted: Any) -> Any:
        """
        Return the state of a resource after its change.

        If the provider has `look_after`, the state of the next resource is read with it. `wanted` are the properties without the
        ignored ones.
        """
        ask: LookAfter | None = getattr(provider, "look_after", None)
        following = self._following(declared) if ask is not None else None
        if ask is None or following is None:
            return await provider.status(wanted)
        self._discard_outdated()
        state, ahead = await ask(wanted, following.wanted)
        if ahead is not None:
            self._states[following.index] = ahead
            self._window = 2
        return state

    def _discard_outdated(self) -> None:
        if self._changes.count != self._seen:
            self._seen = self._changes.count
            self._states.clear()
            self._window = 1

    def _following(self, declared: ResolvedResource) -> ResolvedResource | None:
        """
        Return the next resource if it belongs to the same group and can be read ahead.

        Health checks come before the next resource, and may wait for a long time or run commands.
        """
        group = self._groups[_group(declared)]
        position = self._position(declared) + 1
        if declared.wanted.health_checks or position >= len(group):
            return None
        following = group[position]
        return following if following.index == declared.index + 1 and self._is_ready(following) else None

    async def _ask(self, declared: ResolvedResource, ask: LookAhead) -> None:
        batch = self._batch(declared)
        if batch:
            states = await ask([one.wanted for one in batch])
            self._states.update(zip((one.index for one in batch), states, strict=True))

    def _batch(self, declared: ResolvedResource) -> list[ResolvedResource]:
        """
        Return the resource and the following ones that can be read with it. An empty list if the resource cannot be read ahead.
        """
        if not self._is_ready(declared):
            return []
        group, position = self._groups[_group(declared)], self._position(declared)
        window, self._window = self._window, min(EVERYTHING, 2 * self._window)
        return [one for one in group[position : position + window] if self._is_ready(one)]

    def _position(self, declared: ResolvedResource) -> int:
        """Return the position of a resource in its group."""
        group, position = self._groups[_group(declared)], self._positions[_group(declared)]
        while group[position].index < declared.index:
            position += 1
        self._positions[_group(declared)] = position
        return position

    def _is_ready(self, declared: ResolvedResource) -> bool:
        if declared.refused is not None:
            return False
        is_rendered = declared.kind.rules.needed_by_look_ahead.isdisjoint(declared.pending)
        return is_rendered and (self._may_look is None or self._may_look(declared))


def _group(declared: ResolvedResource) -> tuple[str, str]:
    return declared.kind.name, declared.wanted.provider
