"""
Distinguishes corrected drift from intended changes, and decides when a critical health check leads to an apply.

A change is corrected drift if the manifest, data and assigned facts are the same as when the resource was last in its
desired state. If any of them is new, the change is intended. This information is stored on disk for each source, so a
restart does not turn drift into an intended change.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from ccm_agent.agent.cache.facts import AssignedFacts
from ccm_agent.metrics.agent import AgentMetrics
from ccm_agent.model.errors import FileError
from ccm_agent.model.outcome import Outcome, SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.ports import Clock
from ccm_agent.sessions import creation_ledger
from ccm_agent.sessions.pending_refreshes import PendingRefreshes
from ccm_agent.storage.secret_uses import SecretUses
from ccm_agent.storage.state_file import StateFile

log = logging.getLogger(__name__)

NAMED_LIMIT = 20
"""The number of corrected resources in an `agent.drift` event; the events of the run contain all of them."""


OnDrift = Callable[[str, str, int, Sequence[str]], None]
"""
Reports the corrections of a run: the source's name, the run, the number of corrections, and the first corrected resources.
"""


class _Settled(Struct, kw_only=True):
    source: str
    wanted: str = ""
    resources: list[str] = []


class Drift:
    """
    The resources of one source that were in their desired state, and those that the current run corrected.

    Attributes:
        corrected: `type#name` of the first resources that the current run has corrected.
        corrections: The number of all corrections.
        source: The source's name.
    """

    def __init__(self, source: str, folder: Path, context: Callable[[], object], report: OnDrift) -> None:
        """
        Args:
            source: The source's name.
            folder: The folder for the files of all sources.
            context: Returns the other inputs of the desired state: assigned facts, and documents without a revision.
            report: Called at the end of a run that has corrected drift.
        """
        self.corrected: list[str] = []
        self.corrections = 0
        self.source = source
        self._path = folder / f"{hashlib.sha256(source.encode()).hexdigest()[:32]}.json"
        self._file = StateFile(self._path, _Settled)
        self._context = context
        self._report = report
        self._wanted = ""
        self._settled: set[str] = set()
        self._kept: tuple[str, frozenset[str]] = ("", frozenset())
        self._writing: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Read the file of an earlier process."""
        kept = await asyncio.to_thread(self._file.load)
        if kept is not None and kept.source == self.source:
            self._wanted, self._settled = kept.wanted, set(kept.resources)
            self._kept = (self._wanted, frozenset(self._settled))

    def start(self, start: SessionStart) -> None:
        """Handle the start of a run; its digests show whether the desired state has changed."""
        self.corrected, self.corrections = [], 0
        wanted = [start.digest, sorted(start.data_revisions.items()), self._context()]
        digest = hashlib.sha256(msgspec.json.encode(wanted, order="sorted")).hexdigest()
        if digest != self._wanted:
            self._wanted = digest
            self._settled.clear()

    def judge(self, event: TransactionEvent) -> bool | None:
        """
        Return whether a change corrected drift; None if there was no change, or if this is unknown.

        An `exec` makes a change each time it runs, without checking the state first, so it cannot show whether there was
        drift.
        """
        reference = f"{event.parent} > {event.type}#{event.name}" if event.parent else _reference(event)
        was_settled = reference in self._settled
        if event.outcome in (Outcome.FAILED, Outcome.SKIPPED, Outcome.UNMET):
            # If the resource was settled before, this is drift that could not be corrected yet.
            return None
        self._settled.add(reference)
        if event.outcome is Outcome.STABLE or event.noop or event.type == "exec":
            return None
        if was_settled:
            self.corrections += 1
            if len(self.corrected) < NAMED_LIMIT:
                self.corrected.append(_reference(event))
        return was_settled

    async def finish(self, name: str, run: str) -> None:
        """
        Handle the end of a run: report its corrections, then save.

        The report comes before the first await: the agent may be about to stop, and the next process would not report the
        corrections.

        Args:
            name: The source's name, for operators.
            run: The run.
        """
        if self.corrections:
            self._report(name, run, self.corrections, self.corrected)
        await self.save()

    async def save(self) -> None:
        """Save the settled resources, if they have changed."""
        now = (self._wanted, frozenset(self._settled))
        if now == self._kept:
            return
        settled = _Settled(source=self.source, wanted=self._wanted, resources=sorted(self._settled))
        # A thread continues even if the task that waits for it is cancelled, so `forget` waits for it.
        self._writing = asyncio.get_running_loop().run_in_executor(None, self._file.write, settled)
        self._writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.shield(self._writing)
            self._kept = now
        except FileError as err:
            log.warning(
                "the list of resources in their desired state cannot be saved", extra={"reason": str(err)}
            )

    async def forget(self) -> None:
        """Delete the file of a removed source. Its loop must have ended."""
        if self._writing is not None:
            await asyncio.wait({self._writing})
        self._wanted, self._kept = "", ("", frozenset())
        self._settled.clear()
        await asyncio.to_thread(_remove, self._path)


def forget_others(folder: Path, kind: str, names: Collection[str]) -> None:
    """Remove the files of all sources whose name has this prefix, except for these. Blocking."""
    for path in folder.glob("*.json"):
        kept = StateFile(path, _Settled).load()
        if kept is not None and kept.source.startswith(kind) and kept.source.removeprefix(kind) not in names:
            _remove(path)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as err:
        log.warning(
            "the list of resources in their desired state cannot be removed",
            extra={"path": str(path), "reason": str(err)},
        )


def _reference(event: TransactionEvent) -> str:
    return f"{event.type}#{event.name}"


class SourceRecords:
    """
    The records that one node stores for each source: drift, pending refreshes, used secrets.

    Args:
        folder: The folder for the records of drift.
        refreshes: Pending refreshes.
        secret_uses: The revisions of secrets that this node uses.
        assigned: The assigned facts, which are part of the desired state.
        on_drift: Reports the corrections of a run.
        creations: The folder with the records of the resources that runs created.
    """

    def __init__(
        self,
        folder: Path,
        refreshes: PendingRefreshes,
        secret_uses: SecretUses,
        assigned: AssignedFacts,
        on_drift: OnDrift,
        creations: Path,
    ) -> None:
        self._folder = folder
        self._creations = creations
        self._refreshes = refreshes
        self._secret_uses = secret_uses
        self._assigned = assigned
        self._on_drift = on_drift

    def make_drift(self, source: str, digest: Callable[[], str] | None = None) -> Drift:
        """
        Return the drift record of a source.

        Args:
            source: The source's name.
            digest: Returns a digest of the documents that have no revision; None: there are none.
        """
        assigned = self._assigned

        def context() -> object:
            return assigned.facts if digest is None else [assigned.facts, digest()]

        return Drift(source, self._folder, context, self._on_drift)

    async def forget(self, scope: str, drift: Drift) -> None:
        """Delete the records of a removed source, because another source may get its name. Its loop must have ended."""
        await drift.forget()
        await self._refreshes.forget(scope)
        await self._secret_uses.forget(scope)
        await asyncio.to_thread(creation_ledger.forget, self._creations, scope)

    async def keep_only(self, kind: str, scopes: Collection[str]) -> None:
        """Delete the refreshes, creations and secrets of all scopes with this prefix, except for these."""
        kept = set(scopes)
        await self._refreshes.keep_only(kind, kept)
        await self._secret_uses.keep_only(kind, kept)
        await asyncio.to_thread(creation_ledger.forget_others, self._creations, kind, kept)

    async def keep_drift_only(self, kind: str, names: Collection[str]) -> None:
        """Delete the drift records of all sources whose name has this prefix, except for these."""
        await asyncio.to_thread(forget_others, self._folder, kind, set(names))


REMEDIATIONS_AN_HOUR = 2
"""The limit of applies per hour. A check that an apply does not fix must not make the node apply endlessly."""

HOUR_S = 3600.0

HEALTH = "health"
"""The cause of runs of checks at an interval, and of the applies that result from them."""


class Remediation:
    """Decides whether a critical health check leads to an apply: not on a disabled node, and at most twice an hour."""

    def __init__(
        self,
        kind: str,
        name: str,
        clock: Clock,
        is_disabled: Callable[[], bool],
        metrics: AgentMetrics | None,
    ) -> None:
        """
        Args:
            kind, name: "source" or "assignment", and the name of that source or assignment.
            clock: Returns the current time.
            is_disabled: Returns whether the node is disabled.
            metrics: Counts the applies that follow; None if metrics are off.
        """
        self._what = {kind: name}
        self._name = name
        self._clock = clock
        self._is_disabled = is_disabled
        self._metrics = metrics
        self._acted: deque[float] = deque(maxlen=REMEDIATIONS_AN_HOUR)

    def follows(self, summary: SessionSummary | None) -> bool:
        """
        Whether an apply follows from this run of checks; if so, it is counted. The summary is None if the checks did not end.
        """
        if summary is None or not summary.health_check_critical_count:
            return False
        if self._is_disabled():
            log.warning("a critical health check is ignored: the node is disabled", extra=self._what)
            return False
        now = self._clock.monotonic()
        if len(self._acted) == REMEDIATIONS_AN_HOUR and now - self._acted[0] < HOUR_S:
            log.warning(
                "a critical health check is ignored: it started two applies in the last hour",
                extra=self._what,
            )
            return False
        self._acted.append(now)
        if self._metrics is not None:
            self._metrics.remediated(self._name)
        log.warning("a critical health check starts an apply", extra=self._what)
        return True
