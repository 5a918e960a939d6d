"""The folder of the pending refreshes of one program: a file for each manifest, source or assignment."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Collection
from pathlib import Path

from msgspec import Struct

from ccm_agent.model.errors import FileError
from ccm_agent.model.state_directory import state_directory
from ccm_agent.sessions.refresh_log import PendingRefresh, RefreshLog, RefreshRecord

log = logging.getLogger(__name__)

SUFFIX = ".log"
SCOPES_LIMIT = 1000
"""The maximum number of files, apart from those with a pending refresh."""


def refresh_folder() -> Path:
    """Return the folder of the pending refreshes of `ccm apply`."""
    return Path(state_directory(), "refresh")


def creations_folder() -> Path:
    """Return the folder in which `ccm apply` records the resources that it creates; see `creation_ledger`."""
    return Path(state_directory(), "creations")


SCOPE = "assignment "
"""The prefix of an assignment's name in the scope of its stored data and its pending refreshes."""


class ScopeRefreshes(Struct, frozen=True, kw_only=True):
    """
    The pending refreshes of one manifest, source or assignment.

    Attributes:
        scope: The owner: "manifest …", "source …", "assignment …" or "request …"; "" if its file cannot be read.
        pending: Each pair of subscriber and trigger.
        trouble: Why the list is incomplete; "" if it is complete.
    """

    scope: str
    pending: list[PendingRefresh]
    trouble: str = ""


class RefreshStore:
    """
    The pending refreshes of one program. All methods block.

    Args:
        folder: The folder of the files; created at the first write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def log(self, scope: str) -> RefreshLog:
        """Return the file of a scope, which may not exist."""
        return RefreshLog(self._path(scope), scope, self._make_room)

    def read(self) -> list[ScopeRefreshes]:
        """Return all pending refreshes. Unreadable files are reported and do not raise an error."""
        found = []
        for path in self._files():
            one = RefreshLog(path, "").load()
            if one.changes or one.trouble:
                found.append(ScopeRefreshes(scope=one.scope, pending=one.pending, trouble=one.trouble))
        return found

    def pending(self, scope: str) -> list[PendingRefresh]:
        """Return the pending refreshes of one scope."""
        return self.log(scope).load().pending

    def forget(self, scope: str) -> None:
        """Remove the pending refreshes of a deleted scope."""
        try:
            self.log(scope).forget()
        except FileError as err:
            log.warning("pending refreshes cannot be removed", extra={"scope": scope, "reason": str(err)})

    def forget_others(self, kind: str, scopes: Collection[str]) -> None:
        """Remove the pending refreshes of all scopes with this prefix, except for these."""
        for one in self.read():
            if one.scope.startswith(kind) and one.scope not in scopes:
                self.forget(one.scope)

    def _make_room(self) -> None:
        """
        Limit the number of files before another one is created. The caller holds the lock of the folder.

        The oldest files are removed first. A file with a pending refresh is kept, unless its manifest is a file that no longer
        exists.
        """
        files = sorted(self._files(), key=_changed_at)
        extra = len(files) - SCOPES_LIMIT + 1
        for path in files:
            if extra <= 0:
                return
            if _is_outdated(RefreshLog(path, "").load()):
                path.unlink(missing_ok=True)
                extra -= 1
        if extra > 0:
            log.warning("more manifests have pending refreshes than usual", extra={"files": len(files)})

    def _path(self, scope: str) -> Path:
        digest = hashlib.sha256(scope.encode(errors="surrogateescape")).hexdigest()
        return self.folder / f"{digest[:40]}{SUFFIX}"

    def _files(self) -> list[Path]:
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder) if entry.name.endswith(SUFFIX))
        except OSError:
            return []
        return [self.folder / name for name in names]


def _is_outdated(found: RefreshRecord) -> bool:
    """Whether nothing is pending, or the manifest of a local path was removed."""
    kind, _, path = found.scope.partition(" ")
    if found.trouble:
        return False
    return not found.changes or (kind == "manifest" and path.startswith("/") and not Path(path).exists())


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
