"""
Finds the resources that each assignment would manage on this node, by loading their manifests without applying them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ccm_agent.agent.cache.bundle_cache import BundleCache
from ccm_agent.agent.desired.assignments import CAUSE, StoredAssignment
from ccm_agent.agent.desired.origins import FETCH_S
from ccm_agent.agent.runs.admission import NodePolicy
from ccm_agent.agent.state.settings import Settings
from ccm_agent.engine.bundle import inner_path
from ccm_agent.engine.request import ApplyOptions, Engine, ManifestSource
from ccm_agent.model.errors import CcmError
from ccm_agent.model.records.policy import Principal
from ccm_agent.policy.grant import Grant

log = logging.getLogger(__name__)


class _Seen(Struct, frozen=True, kw_only=True):
    known: StoredAssignment
    facts: str
    managed: Mapping[str, str]


class ResourceConflicts:
    """The resources of this node's assignments, cached while neither the assignments nor the facts change."""

    def __init__(
        self,
        node: str,
        engine: Engine,
        bundles: BundleCache,
        policy: NodePolicy,
        settings: Callable[[], Settings],
    ) -> None:
        """
        Args:
            node: The node's identity.
            engine: Loads manifests.
            bundles: Unpacked manifests.
            policy: Decides which files their templates may read.
            settings: Returns the current configuration.
        """
        self._node = node
        self._engine = engine
        self._bundles = bundles
        self._policy = policy
        self._settings = settings
        self._seen: dict[str, _Seen] = {}

    async def managed(
        self, applied: Mapping[str, StoredAssignment], facts: Mapping[str, Any], digest: str
    ) -> dict[str, Mapping[str, str]]:
        """
        Return the resources that each assignment manages, by name, as the engine returns them. An assignment that cannot be
        loaded has no resources; its own run reports the error.

        Args:
            applied: The assignments by name.
            facts: All facts.
            digest: A digest of the facts, without those that change constantly.
        """
        found: dict[str, Mapping[str, str]] = {}
        for name, known in applied.items():
            seen = self._seen.get(name)
            if seen is None or (seen.known, seen.facts) != (known, digest):
                managed = await self._load(name, known, facts)
                if managed is None:
                    continue
                seen = _Seen(known=known, facts=digest, managed=managed)
                # Data that is not pinned may change at any time.
                if known.pins or not (known.assignment.data or self._settings().external_data_url):
                    self._seen[name] = seen
            found[name] = seen.managed
        self._seen = {name: seen for name, seen in self._seen.items() if name in applied}
        return found

    async def of_manifest(
        self, source: ManifestSource, principal: Principal, facts: Mapping[str, Any]
    ) -> Mapping[str, str] | None:
        """Return the resources that a configured manifest manages; None if it cannot be loaded."""
        grant = self._policy.ruling(principal, "apply", "apply").grant
        try:
            async with asyncio.timeout(FETCH_S):
                return await self._engine.managed(source, self._options(facts, grant))
        except (CcmError, TimeoutError) as err:
            log.warning(
                "the resources of a manifest are unknown", extra={"source": source.name, "reason": str(err)}
            )
            return None

    async def _load(
        self, name: str, known: StoredAssignment, facts: Mapping[str, Any]
    ) -> Mapping[str, str] | None:
        assignment = known.assignment
        # the policy's limits for the run also apply to its templates
        grant = self._policy.ruling(known.asked_by, CAUSE, "apply").grant
        options = self._options(facts, grant, assignment.data, known.pins)
        try:
            async with asyncio.timeout(FETCH_S):
                folder = await self._bundles.unpacked(assignment.bundle)
                path = f"{folder}/{inner_path(assignment.bundle.manifest, name)}"
                source = ManifestSource(
                    path=path, directory=folder, name=name, digest=assignment.bundle.digest
                )
                return await self._engine.managed(source, options)
        except (CcmError, TimeoutError) as err:
            log.warning(
                "the resources of an assignment are unknown", extra={"assignment": name, "reason": str(err)}
            )
            return None

    def _options(
        self,
        facts: Mapping[str, Any],
        grant: Grant | None,
        data: Sequence[str] = (),
        pins: Mapping[str, int] | None = None,
    ) -> ApplyOptions:
        external_data = self._settings().external_data_url
        urls = [external_data] if external_data else []
        return ApplyOptions(
            noop=True,
            hiera=(*urls, *data),
            keeps_hiera=True,
            pins=pins or {},
            facts=facts,
            node=self._node,
            grant=grant,
            own_hiera=frozenset(urls),
        )
