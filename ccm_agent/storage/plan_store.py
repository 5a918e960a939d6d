"""
Stores saved plans of this node. An apply of a saved plan is refused if the node has changed since then.

A saved plan contains a digest for each resource, which covers its properties, its current state and the planned changes. These
digests do not leave the node. The controller receives only one digest of all of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import FileError
from ccm_agent.model.formats.untrusted_json import Moment
from ccm_agent.model.ids import is_id
from ccm_agent.model.outcome import SessionSummary, TransactionEvent
from ccm_agent.model.ports import Clock
from ccm_agent.storage.state_file import StateFile

log = logging.getLogger(__name__)

KEPT = 20
"""The maximum number of saved plans. The oldest are removed first."""

KEPT_FOR = timedelta(hours=24)
"""The maximum age at which a plan can be applied."""

_VOLATILE = {"timestamp", "mtime", "next_runs"}
"""Fields of a state that can differ although the resource has not changed."""


class SavedPlan(Struct, kw_only=True):
    """
    The findings of a plan.

    Attributes:
        run: The run of the plan.
        saved: The time at which the plan ended.
        digest: The SHA-256 of the manifest or bundle, in hex.
        data: The URLs of hiera documents in the request.
        data_revisions: The revisions of the hiera documents that were read, by URL.
        resources: A digest for each resource, by its name in events.
    """

    run: str
    saved: Moment
    digest: str
    data: list[str] = []
    data_revisions: dict[str, int] = {}
    resources: dict[str, str] = {}

    @property
    def found(self) -> str:
        """Return one digest of all findings."""
        return _digest([self.digest, self.data, self.data_revisions, self.resources])

    def moved(self, now: SavedPlan) -> list[str]:
        """Return the sorted names of the resources and the data URLs that differ from those of another plan."""
        pairs = ((self.resources, now.resources), (self.data_revisions, now.data_revisions))
        return sorted(
            name
            for before, after in pairs
            for name in before.keys() | after.keys()
            if before.get(name) != after.get(name)
        )


class PlanRecord:
    """Collects the findings of a plan from its events."""

    def __init__(self) -> None:
        self._resources: dict[str, str] = {}

    def add(self, event: TransactionEvent) -> None:
        """Add the complete, masked event of a resource."""
        name = f"{event.parent} > {event.type}#{event.name}" if event.parent else f"{event.type}#{event.name}"
        told = [
            self._resources.get(name, ""),
            event.requested_ensure,
            str(event.outcome),
            event.noop_message,
            event.triggered_by,
            event.unmet_requirements,
            event.error,
            msgspec.to_builtins(event.properties),
            _settled(msgspec.to_builtins(event.status)),
        ]
        self._resources[name] = _digest(told)

    def finish(self, run: str, summary: SessionSummary, data: list[str], now: datetime) -> SavedPlan:
        """Return the findings at the end of the plan."""
        return SavedPlan(
            run=run,
            saved=now,
            digest=summary.digest,
            data=data,
            data_revisions=summary.data_revisions,
            resources=self._resources,
        )


class PlanStore:
    """
    The saved plans of this node, each in a file of mode 0600.

    Args:
        folder: The folder of the files.
        clock: Used to determine the age of plans.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    async def keep(self, plan: SavedPlan) -> bool:
        """Save a plan, and remove plans that are too old or exceed the limit. Return whether saving succeeded."""
        return await asyncio.to_thread(self._keep, plan)

    async def find(self, run: str) -> SavedPlan | None:
        """Return the plan of a run; None if it is no longer saved on this node."""
        if not is_id(run):
            return None
        found = await asyncio.to_thread(self._file(run).load)
        if found is None or found.run != run or self._clock.now() - found.saved > KEPT_FOR:
            return None
        return found

    def _file(self, run: str) -> StateFile[SavedPlan]:
        return StateFile(self._folder / f"{run}.json", SavedPlan)

    def _keep(self, plan: SavedPlan) -> bool:
        if not is_id(plan.run):
            return False
        try:
            self._file(plan.run).write(plan)
            # IDs begin with the time, so sorting by name sorts by age
            for path in sorted(self._folder.glob("*.json"))[:-KEPT]:
                path.unlink(missing_ok=True)
        except (FileError, OSError) as err:
            log.warning("a plan cannot be stored", extra={"run": plan.run, "reason": str(err)})
            return False
        return True


def _settled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _settled(one) for key, one in value.items() if key not in _VOLATILE}
    return value


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
