"""
Which revision of each secret this node uses, for its record: an operator purges an old value only when no node uses it.

What a run opened counts when the run has succeeded: only then is the value where the manifest wants it. Each source of desired
state counts for itself, and the record shows the oldest revision, because a node uses a revision until its last source has taken
a newer one. Runs that operators request count together, and only for secrets that no source reads: no later run brings them up
to date.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path

from ccm_agent.model.ports import Clock
from ccm_agent.model.wire import NodeRecord, SecretUse
from ccm_agent.storage.state_file import StateFile

REQUESTED = ""
"""The scope of runs that operators request."""

Uses = dict[str, dict[str, SecretUse]]


class SecretUses:
    """
    The secrets that one node uses.

    Args:
        path: Remembers them. They are not secret.
        record: Shows them.
        clock: What time it is.
        on_change: Called when the record shows something else than before.
    """

    def __init__(self, path: Path, record: NodeRecord, clock: Clock, on_change: Callable[[], None]) -> None:
        self._file: StateFile[Uses] = StateFile(path, Uses)
        self._record = record
        self._clock = clock
        self._on_change = on_change
        self._uses: Uses = {}

    def open(self) -> None:
        """Read what an earlier process left. Blocking."""
        self._uses = self._file.load() or {}
        self._file.mark_saved(self._uses)
        self._record.secrets = self._shown()

    async def note(self, scope: str, opened: Mapping[str, int], *, is_whole: bool) -> None:
        """
        Take note of a run that has succeeded.

        Args:
            scope: Whose run it was; REQUESTED for one that an operator requested.
            opened: The revisions that it opened, by secret.
            is_whole: It applied all that the scope wants, so the scope uses no other secret.
        """
        before = self._uses.get(scope, {})
        used = {} if is_whole else dict(before)
        for name, revision in opened.items():
            known = before.get(name)
            is_same = known is not None and known.revision == revision
            used[name] = known if known and is_same else SecretUse(revision=revision, since=self._now())
        await self._take({**self._uses, scope: used})

    async def forget(self, scope: str) -> None:
        """A scope does not exist any more."""
        await self._take({one: used for one, used in self._uses.items() if one != scope})

    async def keep_only(self, kind: str, scopes: Collection[str]) -> None:
        """Forget scopes that begin with a text, except for these."""
        await self._take(
            {one: used for one, used in self._uses.items() if not one.startswith(kind) or one in scopes}
        )

    async def _take(self, uses: Uses) -> None:
        self._uses = {scope: used for scope, used in uses.items() if used}
        # on disk first: after a power loss, the node must not show an older revision again as one that it just began to use
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
