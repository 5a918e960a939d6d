"""Looking ahead: one question for the states of many resources, good until something on the host was changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ccm_agent.resources.contract import LookAhead
from ccm_agent.resources.converge import ResolvedResource

EVERYTHING = 1 << 62


class HostChanges:
    """Counts changes to this host, across a run and its child manifests."""

    def __init__(self) -> None:
        self.count = 0

    def note(self) -> None:
        """Something is about to change."""
        self.count += 1


class StatePrefetcher:
    """
    States of a manifest's resources, asked for together.

    The first question is about all resources of a type. After a change only the next resource is asked about, then two, then
    four: on a host where everything must be changed nothing is looked at in vain, on one where little must be, almost all is
    looked at once more and no oftener.
    """

    def __init__(
        self,
        resources: list[ResolvedResource],
        changes: HostChanges,
        may_look: Callable[[ResolvedResource], bool] | None = None,
    ) -> None:
        """
        Nothing is looked at yet.

        Args:
            resources: The resources of one manifest.
            changes: Changes of the whole run.
            may_look: Whether the node's policy lets a resource be looked at; None: nothing binds the run.
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
        """The state of a resource: the one that was seen ahead if it still holds, else a fresh one."""
        ask: LookAhead | None = getattr(provider, "look_ahead", None)
        if ask is None:
            return await provider.status(declared.wanted)
        if self._changes.count != self._seen:
            self._seen = self._changes.count
            self._states.clear()
            self._window = 1
        if declared.index not in self._states:
            await self._ask(declared, ask)
        state = self._states.pop(declared.index, None)
        return state if state is not None else await provider.status(declared.wanted)

    async def _ask(self, declared: ResolvedResource, ask: LookAhead) -> None:
        batch = self._batch(declared)
        if batch:
            states = await ask([one.wanted for one in batch])
            self._states.update(zip((one.index for one in batch), states, strict=True))

    def _batch(self, declared: ResolvedResource) -> list[ResolvedResource]:
        """The resource and those after it that can be asked about with it; none when it cannot be asked about ahead."""
        if not self._is_ready(declared):
            return []
        group = self._groups[_group(declared)]
        position = self._positions[_group(declared)]
        while group[position].index < declared.index:
            position += 1
        self._positions[_group(declared)] = position
        window, self._window = self._window, min(EVERYTHING, 2 * self._window)
        return [one for one in group[position : position + window] if self._is_ready(one)]

    def _is_ready(self, declared: ResolvedResource) -> bool:
        is_rendered = declared.kind.rules.needed_by_look_ahead.isdisjoint(declared.pending)
        return is_rendered and (self._may_look is None or self._may_look(declared))


def _group(declared: ResolvedResource) -> tuple[str, str]:
    return declared.kind.name, declared.wanted.provider
