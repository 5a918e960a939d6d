"""
The assignments that stand in the bucket for this node: read by direct get, kept on disk for a start without a network.

What cannot be trusted changes nothing: for a copied entry the whole reading is dropped, for an older or foreign document the
last good one of its key stands. A key that is gone is an assignment that is no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from ccm_agent.agent.cache.state_file import load_state, save_state
from ccm_agent.agent.desired.assignment_rules import BUCKET, StoredAssignment, read_assignment
from ccm_agent.agent.requests.authentication import RevisionGuard
from ccm_agent.bus.subjects import subject_matches
from ccm_agent.model.errors import FileError, ProtocolError
from ccm_agent.model.ports import KeyValue, KeyValueEntry

log = logging.getLogger(__name__)


class _Kept(Struct, kw_only=True):
    node: str
    known: list[StoredAssignment] = []


class AssignmentCache:
    """
    What is assigned under the scopes of one node.

    Attributes:
        known: By key, as last read.
        vanished: Keys of those that are known and no longer stored, though nothing says that they were deleted.
        is_dirty: It is not written down yet.
    """

    def __init__(
        self,
        node: str,
        bucket: KeyValue,
        revision_guard: RevisionGuard,
        path: Path,
        on_refused: Callable[[str, str], None],
    ) -> None:
        """
        Nothing is read yet.

        Args:
            node: The node.
            bucket: `CCM_ASSIGNMENTS`.
            stamps: Numbers of documents.
            path: Where the last good assignments are kept.
            on_refused: Told of a document that is not obeyed: which, and why; once until that changes.
        """
        self.known: dict[str, StoredAssignment] = {}
        self.vanished: set[str] = set()
        self._node = node
        self._bucket = bucket
        self._revision_guard = revision_guard
        self._path = path
        self._on_refused = on_refused
        self._told: dict[str, str] = {}
        self.is_dirty = False
        self._lock = asyncio.Lock()

    def open(self) -> None:
        """Take what an earlier process knew. Blocking."""
        kept = load_state(self._path, _Kept)
        if kept is not None and kept.node == self._node:
            self.known = {one.key: one for one in kept.known}

    async def read(self, scopes: list[str], at_least: int = 0) -> bool:
        """
        Read the bucket; `keep` writes it down.

        Args:
            scopes: The node's scopes.
            at_least: A revision that is known to be stored, from a poke.

        Returns:
            Whether anything is other than before.

        Raises:
            BusError: The broker is away, or what it shows is not to be trusted; everything stands as it was.
        """
        found = await self._found([f"{scope}.*" for scope in scopes], at_least)
        self._told.pop("", None)
        return self._adopt(found)

    async def read_one(self, key: str, at_least: int) -> bool:
        """
        Read one assignment, of which is known that it was written; what is known of the others stands. Else as `read`.

        One question and one message in answer: a whole fleet asks at the moment at which it hears of something new.
        """
        found = await self._found([key], at_least)
        others = {name: one for name, one in self.known.items() if name != key}
        return self._adopt(others | {name: one for name, one in found.items() if name == key})

    async def _found(self, patterns: list[str], at_least: int) -> dict[str, StoredAssignment]:
        """What stands in the bucket; where it is not to be trusted, what was known."""
        try:
            entries = await self._bucket.matching(patterns, obeyed=True, at_least=at_least, deletions=True)
        except ProtocolError as err:
            self._tell("", str(err))
            raise
        stored = {entry.key: entry for entry in entries}
        asked = {key for key in self.known if any(subject_matches(pattern, key) for pattern in patterns)}
        found: dict[str, StoredAssignment] = {}
        self.vanished &= self.known.keys()
        for key in sorted(asked | stored.keys()):
            (self.vanished.discard if key in stored else self.vanished.add)(key)
            try:
                known = self._read_or_deleted(key, stored.get(key))
            except ProtocolError as err:
                self._tell(key, str(err))
                known = self.known.get(key)
            if known is not None:
                found[key] = known
        return found

    def _read_or_deleted(self, key: str, entry: KeyValueEntry | None) -> StoredAssignment | None:
        """What a key says; None when it was deleted. ProtocolError when neither can be trusted."""
        if entry is not None and entry.value:
            return self._read(entry)
        self._revision_guard.check_absence(BUCKET, key, entry)
        self._told.pop(key, None)
        return None

    def _adopt(self, found: dict[str, StoredAssignment]) -> bool:
        if found == self.known:
            return False
        self.known = found
        self.is_dirty = True
        return True

    async def keep(self) -> None:
        """Write down what was read, and the numbers that were seen. It is to be done before anything is obeyed."""
        await self._revision_guard.keep()
        async with self._lock:
            if not self.is_dirty:
                return
            self.is_dirty = False
            try:
                await save_state(self._path, _Kept(node=self._node, known=list(self.known.values())))
            except FileError as err:
                log.warning("assignments are not kept on disk", extra={"reason": str(err)})

    def _read(self, entry: KeyValueEntry) -> StoredAssignment:
        known = read_assignment(self._revision_guard, entry)
        self._revision_guard.numbers[f"{BUCKET}/{entry.key}"] = known.number
        self._told.pop(entry.key, None)
        return known

    def _tell(self, key: str, why: str) -> None:
        if self._told.get(key) == why:
            return
        self._told[key] = why
        what = f"{BUCKET}/{key}" if key else BUCKET
        log.error("an assignment is refused", extra={"key": what, "reason": why})
        self._on_refused(what, why)
