"""
Tracks the revision of each secret that this node uses, for the node's record. Operators purge an old value only when no node uses
it.

The revisions that a run opened are recorded when the run has succeeded, because the value has been deployed only then. They are
recorded for each source of desired state. The node's record shows the oldest revision, because a node uses a revision until its
last source uses a newer one. Runs that operators request share one scope. This scope is shown only for secrets that no source
reads, because it is not updated regularly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path

from ccm_agent.model.ports import Clock
from ccm_agent.model.wire import NodeRecord, SecretUse
from ccm_agent.storage.state_file import StateFile

REQUESTED = ""
"""The scope of all runs that operators request."""

Uses = dict[str, dict[str, SecretUse]]


class SecretUses:
    """
    The secrets that one node uses.

    Args:
        path: The file that stores the uses. It does not contain secrets.
        record: The node's record, which shows the uses.
        clock: Returns the current time.
        on_change: Called when the record changes.
    """

    def __init__(self, path: Path, record: NodeRecord, clock: Clock, on_change: Callable[[], None]) -> None:
        self._file: StateFile[Uses] = StateFile(path, Uses)
        self._record = record
        self._clock = clock
        self._on_change = on_change
        self._uses: Uses = {}

    def open(self) -> None:
        """Read the uses that an earlier process stored. Blocking."""
        self._uses = self._file.load() or {}
        self._file.mark_saved(self._uses)
        self._record.secrets = self._shown()

    async def note(self, scope: str, opened: Mapping[str, int], *, is_whole: bool) -> None:
        """
        Record a run that has succeeded.

        Args:
            scope: The scope of the run; REQUESTED for a run that an operator requested.
            opened: The revisions that the run opened, by secret.
            is_whole: Whether the run applied everything in the scope. If so, the scope does not use other secrets.
        """
        before = self._uses.get(scope, {})
        used = {} if is_whole else dict(before)
        for name, revision in opened.items():
            known = before.get(name)
            is_same = known is not None and known.revision == revision
            used[name] = known if known and is_same else SecretUse(revision=revision, since=self._now())
        await self._take({**self._uses, scope: used})

    async def forget(self, scope: str) -> None:
        """Remove the uses of a scope that no longer exists."""
        await self._take({one: used for one, used in self._uses.items() if one != scope})

    async def keep_only(self, kind: str, scopes: Collection[str]) -> None:
        """Remove the scopes that begin with `kind`, except the given ones."""
        await self._take(
            {one: used for one, used in self._uses.items() if not one.startswith(kind) or one in scopes}
        )

    async def _take(self, uses: Uses) -> None:
        self._uses = {scope: used for scope, used in uses.items() if used}
        # save first, because after a power loss the node must not show an older revision as if it had just begun to use it
        await self._file.save(self._uses)
        if (shown := self._shown()) != self._record.secrets:
            self._record.secrets = shown
            self._on_change()

    def _shown(self) -> dict[str, SecretUse]:
        shown: dict[str, SecretUse] = {}
        for scope, used in self._uses.items():
            for name, use in used.items() if scope != REQUESTED else ():
                known = shown.get(name)
                if known is None or (use.revision, known.since) < (known.revision, use.since):
                    shown[name] = use
        return dict(sorted({**self._uses.get(REQUESTED, {}), **shown}.items()))

    def _now(self) -> datetime:
        return self._clock.now().replace(microsecond=0)
