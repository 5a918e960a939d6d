"""
The facts of this node: gathered facts, facts that an operator assigned, and the facts that determine its scopes.

Facts are gathered in a thread, at most as often as the configuration allows. Assigned facts take precedence. They are in
`CCM_FACTS` under the node's name, and are read when a notification arrives, after each connection, and on an interval. The last
good ones are stored on disk, so a node without a broker keeps its role.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from ccm_agent.agent.state.settings import Settings
from ccm_agent.agent.trust.revision_guard import RevisionGuard
from ccm_agent.bus.subjects import fact_text
from ccm_agent.metrics.agent import AgentMetrics
from ccm_agent.model import merge
from ccm_agent.model.errors import CcmError, ProtocolError
from ccm_agent.model.gathered import with_go_names
from ccm_agent.model.ports import Clock, KeyReader
from ccm_agent.storage.state_file import StateFile

log = logging.getLogger(__name__)

BUCKET = "CCM_FACTS"

ROUTED_LIMIT = 200
"""The maximum number of routed facts. Each of them adds a subscription on the broker."""


class _StoredFacts(Struct, kw_only=True):
    node: str
    facts: dict[str, Any] = {}


class AssignedFacts:
    """
    The assigned facts of one node.

    Attributes:
        node: The node's identity.
        facts: The assigned facts, as last read.
        revision: The revision of the document that was read; 0 if the facts are from disk, or if there are none.
        refusal: Why the document in the bucket is refused; "" if it is accepted.
    """

    def __init__(self, node: str, bucket: KeyReader, revision_guard: RevisionGuard, path: Path) -> None:
        """
        Args:
            node: The node's identity, which is the key.
            bucket: `CCM_FACTS`.
            revision_guard: Checks the numbers of documents.
            path: The file of the last good facts.
        """
        self.node = node
        self.facts: dict[str, Any] = {}
        self.revision = 0
        self.refusal = ""
        self._bucket = bucket
        self._revision_guard = revision_guard
        self._file = StateFile(path, _StoredFacts)

    def open(self) -> None:
        """Read the facts that an earlier process stored. Blocking."""
        kept = self._file.load()
        if kept is not None and kept.node == self.node:
            self.facts = kept.facts

    async def read(self, at_least: int = 0) -> bool:
        """
        Read the bucket.

        Args:
            at_least: A revision that is known to be stored, from a notification.

        Returns:
            Whether the facts have changed.

        Raises:
            BusError: The broker is unavailable, or does not allow the read.
            ProtocolError: The document is refused; the facts do not change.
        """
        entry = await self._bucket.newest(self.node, at_least)
        try:
            if entry is None or not entry.value:
                self._revision_guard.check_absence(BUCKET, self.node, entry)
                await self._revision_guard.save()
                return await self._adopt({}, 0)
            await self._revision_guard.prepare(BUCKET, [entry.key])
            document = self._revision_guard.check(BUCKET, entry)
            if not isinstance(document.body, dict):
                raise ProtocolError(
                    f"{BUCKET}/{self.node}: facts must be a mapping; write them with `ccmctl facts set`"
                )
        except ProtocolError as err:
            is_new = self.refusal != str(err)
            self.refusal = str(err)
            if is_new:
                raise
            return False
        await self._revision_guard.seen(document)
        return await self._adopt(document.body, entry.revision)

    async def _adopt(self, facts: dict[str, Any], revision: int) -> bool:
        self.refusal = ""
        self.revision = revision
        if facts == self.facts:
            return False
        self.facts = facts
        await self._file.save(_StoredFacts(node=self.node, facts=facts))
        return True


def routed_facts(
    assigned: Mapping[str, Any], facts: Mapping[str, Any], paths: tuple[str, ...]
) -> dict[str, str | int | bool]:
    """
    Return the facts that requests can be addressed to, by dotted path.

    Args:
        assigned: The assigned facts; all text, integers and booleans in them are routed.
        facts: All facts of the node.
        paths: Further facts that the configuration names.
    """
    routed = dict(_flat(assigned, ""))
    for path in paths:
        value = _at(facts, path)
        if fact_text(value) is not None:
            routed.setdefault(path, value)
    if len(routed) > ROUTED_LIMIT:
        log.warning(
            "too many routed facts; requests that target the excess facts do not reach this node",
            extra={"facts": len(routed), "limit": ROUTED_LIMIT},
        )
        routed = dict(sorted(routed.items())[:ROUTED_LIMIT])
    return routed


def _flat(facts: Mapping[str, Any], prefix: str) -> list[tuple[str, str | int | bool]]:
    found: list[tuple[str, str | int | bool]] = []
    for key, value in facts.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{key}.")
        elif fact_text(value) is not None:
            found.append((f"{prefix}{key}", value))
    return found


def _at(facts: Any, path: str) -> Any:
    if isinstance(facts, Mapping) and path in facts:
        return facts[path]
    for part in path.split("."):
        if not isinstance(facts, Mapping) or part not in facts:
            return None
        facts = facts[part]
    return facts


Gather = Callable[[], Mapping[str, Any]]
"""Reads all facts of this host; blocking."""


class FactCache:
    """
    The facts of one agent.

    Attributes:
        assigned: The facts that operators assigned.
    """

    def __init__(
        self,
        gather: Gather,
        assigned: AssignedFacts,
        clock: Clock,
        settings: Callable[[], Settings],
        metrics: AgentMetrics | None = None,
    ) -> None:
        """
        Args:
            gather: Reads the facts.
            assigned: The assigned facts.
            clock: Returns the current time.
            settings: Returns the current configuration, which defines how often facts are gathered and which of them are routed.
            metrics: Records the duration of gathering; None if metrics are off.
        """
        self.assigned = assigned
        self._gather = gather
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._lock = asyncio.Lock()
        self._gathered: Mapping[str, Any] | None = None
        self._gathered_at = 0.0
        self._merged: tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]] | None = None

    async def latest(self) -> Mapping[str, Any]:
        """Return the last gathered facts. If they were never gathered, gather them."""
        return await self._younger_than(float("inf"))

    async def current(self) -> Mapping[str, Any]:
        """
        Return the facts. They are gathered again if they are older than the configuration allows.

        If that fails, the last good facts are used, and the failure is logged.
        """
        return await self._younger_than(self._settings().facts_interval_s)

    async def _younger_than(self, max_age_s: float) -> Mapping[str, Any]:
        async with self._lock:
            age_s = self._clock.monotonic() - self._gathered_at
            if self._gathered is None or age_s > max_age_s:
                await self._refresh()
        return self._merge()

    async def routed(self) -> dict[str, str | int | bool]:
        """Return the facts that requests can be addressed to: assigned facts, and gathered facts that the configuration names."""
        paths = self._settings().routed_facts
        return routed_facts(self.assigned.facts, await self.latest() if paths else {}, paths)

    async def _refresh(self) -> None:
        begun = self._clock.monotonic()
        failed = False
        try:
            self._gathered = await asyncio.to_thread(self._gather)
        except (CcmError, OSError) as err:
            log.error("facts cannot be gathered", extra={"reason": str(err)})
            self._gathered = self._gathered or {}
            failed = True
        self._gathered_at = self._clock.monotonic()
        if self._metrics is not None:
            self._metrics.facts_gathered(self._gathered_at - begun, failed=failed)

    def _merge(self) -> Mapping[str, Any]:
        gathered, assigned = self._gathered or {}, self.assigned.facts
        if self._merged is None or self._merged[0] is not gathered or self._merged[1] is not assigned:
            merged = with_go_names(merge.deep(dict(gathered), dict(assigned)))
            self._merged = (gathered, assigned, merged)
        return self._merged[2]
