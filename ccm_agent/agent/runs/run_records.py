"""The records of a node's runs: the log of requests, the last run, pending refreshes, used secrets, and a checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from ccm_agent.agent.events.run_report import Checkpoint
from ccm_agent.agent.runs.admission import ResourceLocks
from ccm_agent.agent.runs.run_queue import QueuedRun
from ccm_agent.agent.state.presence import NodePresence
from ccm_agent.agent.state.request_log import RequestLog
from ccm_agent.model.errors import FileError
from ccm_agent.model.outcome import SessionSummary
from ccm_agent.model.wire import ManifestRequest, NodeState
from ccm_agent.sessions.pending_refreshes import PendingRefreshes
from ccm_agent.sessions.refresh_store import SCOPE
from ccm_agent.storage.journal import sync_folder
from ccm_agent.storage.secret_uses import REQUESTED, SecretUses
from ccm_agent.storage.state_file import StateFile
from ccm_agent.storage.undo_store import UndoStore


class RunRecords:
    """
    The records that the runs of one agent leave.

    Args:
        presence: Publishes the last run.
        request_log: The log of requested runs.
        undo: The undo records of this node's runs.
        refreshes: Pending refreshes.
        secret_uses: The revisions of secrets that this node uses.
        locks: The resources that operators have locked.
    """

    def __init__(
        self,
        presence: NodePresence,
        request_log: RequestLog,
        undo: UndoStore,
        refreshes: PendingRefreshes,
        secret_uses: SecretUses,
        locks: ResourceLocks,
    ) -> None:
        self._presence = presence
        self._request_log = request_log
        self._undo = undo
        self._refreshes = refreshes
        self._secret_uses = secret_uses
        self._locks = locks

    @property
    def node(self) -> str:
        """The node's identity."""
        return self._presence.record.node

    def begin(self, run: str) -> None:
        """Record that a requested run is starting."""
        self._request_log.begin(run)

    def end(self, run: str, summary: SessionSummary) -> None:
        """Record the summary of a run that has ended."""
        self._request_log.end(run, summary.state, summary.reason, summary.code)

    def recall_last(self) -> None:
        """Read the last run from the log of requests."""
        last = self._request_log.last_run
        if last is not None:
            self._presence.ended(last.run, last.state, datetime.fromtimestamp(last.at, UTC))

    def note_last(self, run: str, state: str) -> None:
        """Record a run that ends now as the last run in the node's record, so that a kill does not hide it."""
        self._request_log.note_last(run, state)
        self._presence.record.incomplete_undos = list(self._undo.incomplete)
        self._presence.ended(run, state)

    async def read_refreshes(self, job: QueuedRun, summary: SessionSummary | None) -> None:
        """
        Read the refreshes that are pending after a run: it may have left refreshes for the next run, or completed pending
        refreshes.
        """
        known = self._refreshes
        if job.action in ("plan", "check"):
            return
        if (
            not known.is_empty
            or summary is None
            or summary.refresh_pending
            or summary.state in (NodeState.FAILED, NodeState.STOPPED)
        ):
            await known.refresh()

    async def note_secrets(
        self, job: QueuedRun, summary: SessionSummary | None, opened: Mapping[str, int]
    ) -> None:
        """Record that the node uses the secrets that a successful run opened, unless a resource is locked."""
        is_done = summary is not None and summary.state in (NodeState.STABLE, NodeState.CHANGED)
        if not is_done or job.action in ("plan", "check") or self._locks.current:
            return
        is_release = isinstance(job.request, ManifestRequest) and job.request.stage is not None
        scope = job.own.scope if job.own is not None else f"{SCOPE}{job.name}" if is_release else REQUESTED
        await self._secret_uses.note(scope, opened, is_whole=scope != REQUESTED)


class Checkpoints:
    """
    Stores the one run of a node that the next process continues.

    Attributes:
        run: The run's id; "" if there is none.
    """

    def __init__(self, path: Path) -> None:
        self.run = ""
        self._path = path
        self._file = StateFile(path, Checkpoint)
        self._found: Checkpoint | None = None

    def open(self) -> None:
        """
        Read the checkpoint of the previous process. An unreadable checkpoint is logged, and its run is treated as
        interrupted. Blocking.
        """
        self._found = self._file.load()
        self.run = self._found.run if self._found else ""

    async def save(self, checkpoint: Checkpoint) -> None:
        """
        Save a run for the next process. It survives a power cut after this returns.

        Raises:
            FileError: The checkpoint cannot be written.
        """
        await asyncio.to_thread(self._file.write, checkpoint)

    async def take(self, run: str) -> Checkpoint | None:
        """
        Return the checkpoint of a run and remove it, so it is returned only once; None if it is for another run.

        Raises:
            FileError: The file cannot be removed, so the run might continue twice.
        """
        found = self._found
        if found is None or found.run != run:
            return None
        await asyncio.to_thread(self.drop)
        return found

    def drop(self) -> None:
        """
        Remove the checkpoint, because its run has been resumed or has ended. Blocking.

        Raises:
            FileError: The file cannot be removed.
        """
        self._found, self.run = None, ""
        try:
            self._path.unlink()
            sync_folder(self._path.parent)
        except FileNotFoundError:
            return
        except OSError as err:
            raise FileError(f"{self._path}: cannot be removed: {err.strerror}") from err
