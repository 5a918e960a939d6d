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
"""More files than this are not kept, except for those with a pending refresh."""


def refresh_folder() -> Path:
    """Where the pending refreshes of `ccm apply` are."""
    return Path(state_directory(), "refresh")


def creations_folder() -> Path:
    """Where `ccm apply` records what it creates; see `creation_ledger`."""
    return Path(state_directory(), "creations")


SCOPE = "assignment "
"""Before its name: what is stored about the resources of an assignment, and its pending refreshes, have this prefix."""


class ScopeRefreshes(Struct, frozen=True, kw_only=True):
    """
    What is pending of one manifest, source or assignment.

    Attributes:
        scope: Whose it is: "manifest …", "source …", "assignment …", "request …"; "" when its file cannot be read.
        pending: Each pair of subscriber and trigger.
        trouble: Why it is not known in full; "" when it is.
    """

    scope: str
    pending: list[PendingRefresh]
    trouble: str = ""


class RefreshStore:
    """
    The pending refreshes of one program. All methods block.

    Args:
        folder: Where the files are; made when something is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def log(self, scope: str) -> RefreshLog:
        """The file of a scope, which may not exist."""
        return RefreshLog(self._path(scope), scope, self._make_room)

    def read(self) -> list[ScopeRefreshes]:
        """All that is pending. Files that cannot be read are reported, and never raise."""
        found = []
        for path in self._files():
            one = RefreshLog(path, "").load()
            if one.changes or one.trouble:
                found.append(ScopeRefreshes(scope=one.scope, pending=one.pending, trouble=one.trouble))
        return found

    def pending(self, scope: str) -> list[PendingRefresh]:
        """What is pending of one scope."""
        return self.log(scope).load().pending

    def forget(self, scope: str) -> None:
        """A scope does not exist any more: nothing of it is pending."""
        try:
            self.log(scope).forget()
        except FileError as err:
            log.warning("pending refreshes cannot be removed", extra={"scope": scope, "reason": str(err)})

    def forget_others(self, kind: str, scopes: Collection[str]) -> None:
        """Remove what is pending of scopes that begin with a text, except for these."""
        for one in self.read():
            if one.scope.startswith(kind) and one.scope not in scopes:
                self.forget(one.scope)

    def _make_room(self) -> None:
        """
        Keep the number of files bounded before another one is made. The caller has the lock of the folder.

        The oldest go first. A file with a pending refresh stays, unless its manifest is a file that does not exist any more.
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
