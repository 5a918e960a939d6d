"""
Which resources each of several assignments would manage on this node: their manifests are loaded, and nothing is applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct

from ccm_agent.agent.desired.assignment_rules import StoredAssignment
from ccm_agent.agent.desired.source import FETCH_S
from ccm_agent.engine.bundle import inner_path
from ccm_agent.engine.request import ApplyOptions, Engine, ManifestSource
from ccm_agent.model.errors import CcmError
from ccm_agent.model.wire import Bundle
from ccm_agent.policy.grant import Grant

log = logging.getLogger(__name__)


class _Seen(Struct, frozen=True, kw_only=True):
    known: StoredAssignment
    facts: str
    managed: frozenset[str]


class ResourceConflicts:
    """What the assignments of one agent would manage, remembered while neither they nor the facts change."""

    def __init__(
        self,
        node: str,
        engine: Engine,
        unpack: Callable[[Bundle], Awaitable[str]],
        external_data: Callable[[], str],
        grant: Callable[[StoredAssignment], Grant | None] = lambda _known: None,
    ) -> None:
        """
        Nothing is loaded yet.

        Args:
            node: The node.
            engine: Loads manifests.
            unpack: The folder of a bundle, fetched if need be.
            external_data: URL of a hiera document of the configuration as it is now; "" is none.
            grant: What the node's policy lets an assignment touch, so what its templates may read.
        """
        self._node = node
        self._engine = engine
        self._unpack = unpack
        self._external_data = external_data
        self._grant = grant
        self._seen: dict[str, _Seen] = {}

    async def managed(
        self, applied: Mapping[str, StoredAssignment], facts: Mapping[str, Any], digest: str
    ) -> dict[str, frozenset[str]]:
        """
        `type#name` of what each manages, by name; nothing of one that cannot be loaded, which its own run will tell.

        Args:
            applied: The assignments by name.
            facts: All facts.
            digest: Of the facts, without what never stands still.
        """
        found: dict[str, frozenset[str]] = {}
        for name, known in applied.items():
            seen = self._seen.get(name)
            if seen is None or (seen.known, seen.facts) != (known, digest):
                managed = await self._load(name, known, facts)
                if managed is None:
                    continue
                seen = _Seen(known=known, facts=digest, managed=managed)
                # data that is not pinned may be other at any time
                if known.pins or not (known.assignment.data or self._external_data()):
                    self._seen[name] = seen
            found[name] = seen.managed
        self._seen = {name: seen for name, seen in self._seen.items() if name in applied}
        return found

    async def _load(
        self, name: str, known: StoredAssignment, facts: Mapping[str, Any]
    ) -> frozenset[str] | None:
        assignment = known.assignment
        urls = [url] if (url := self._external_data()) else []
        options = ApplyOptions(
            noop=True,
            hiera=(*urls, *assignment.data),
            keeps_hiera=True,
            pins=known.pins,
            facts=facts,
            node=self._node,
            grant=self._grant(known),
            own_hiera=frozenset(urls),
        )
        try:
            async with asyncio.timeout(FETCH_S):
                folder = await self._unpack(assignment.bundle)
                path = f"{folder}/{inner_path(assignment.bundle.manifest, name)}"
                source = ManifestSource(
                    path=path, directory=folder, name=name, digest=assignment.bundle.digest
                )
                return frozenset(await self._engine.managed(source, options))
        except (CcmError, TimeoutError) as err:
            log.warning(
                "what an assignment manages is not known", extra={"assignment": name, "reason": str(err)}
            )
            return None
