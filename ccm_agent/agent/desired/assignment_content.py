"""The local files of this node's assignments: manifests, and data at the pinned revisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from ccm_agent.agent.cache.bundle_cache import BundleCache
from ccm_agent.agent.cache.document_cache import CachedBuckets
from ccm_agent.agent.desired.assignments import (
    DATA_BUCKET,
    VANISHED,
    AssignmentCache,
    MatchingAssignment,
    StoredAssignment,
)
from ccm_agent.agent.desired.loop import Pause
from ccm_agent.agent.desired.origins import FETCH_S
from ccm_agent.engine.bundle import inner_path
from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import BusUnavailableError, Refusal


class AssignmentContent:
    """
    Fetches the manifests and data of assignments, stores them on disk, and removes old revisions of data.

    Attributes:
        is_settled: Whether this process has decided which assignments apply. Until then, data of an earlier process may be
            out of date.
    """

    def __init__(
        self,
        cache: AssignmentCache,
        bundles: BundleCache,
        documents: CachedBuckets,
        on_refused: Callable[[str, str], None],
        pause: Pause,
    ) -> None:
        """
        Args:
            cache: The assignments as read.
            bundles: Unpacked manifests.
            documents: The data that assignments use.
            on_refused: Called with the key of an assignment that cannot be used, and the reason.
            pause: Waits for a random time, so that the nodes of a fleet do not all write at the same moment.
        """
        self.is_settled = False
        self._cache = cache
        self._bundles = bundles
        self._documents = documents
        self._on_refused = on_refused
        self._pause = pause
        self._pinned: dict[int, set[tuple[str, int]]] = {}
        self._without_data: set[str] = set()

    def open(self, known: Iterable[StoredAssignment]) -> None:
        """Record the revisions of data that these assignments of an earlier process pin."""
        self._pinned = _pinners(known)

    @property
    def is_dirty(self) -> bool:
        """Whether data that was read is not on disk yet, or data on disk is no longer needed."""
        return self._cache.is_dirty or self._documents.has_unused

    async def save(self) -> None:
        """Save the data that was read. This happens before an assignment is applied."""
        await self._cache.save()

    async def save_later(self) -> None:
        """Save the data after a pause, so that the whole fleet does not write at the moment of a notification."""
        await self._pause()
        await self._cache.save()

    async def fetch(self, known: StoredAssignment) -> ManifestSource:
        """
        Return the manifest of an assignment, unpacked; the data that it pins is on disk.

        Raises:
            CcmError: The manifest or its data cannot be fetched, or does not match the assignment.
        """
        assignment = known.assignment
        inner = inner_path(assignment.bundle.manifest, assignment.name)
        folder = await self._bundles.unpacked(assignment.bundle)
        for url in assignment.data:
            await self._documents.fetch_pinned(url, known.pins, assignment.data_numbers)
        return ManifestSource(
            path=f"{folder}/{inner}",
            directory=folder,
            name=assignment.manifest or assignment.name,
            digest=assignment.bundle.digest,
        )

    async def fetch_released(self, known: StoredAssignment) -> ManifestSource:
        """Fetch for the run of a rollout; like `fetch`, but raises BusUnavailableError after FETCH_S."""
        try:
            async with asyncio.timeout(FETCH_S):
                return await self.fetch(known)
        except TimeoutError as err:
            raise BusUnavailableError(f"the assignment could not be fetched in {FETCH_S:g} s") from err

    def report_unusable(self, known: StoredAssignment, reason: str) -> None:
        """Publish that the fetched content cannot be applied."""
        self._on_refused(known.key, reason)

    async def keep_needed(self, best: Mapping[str, MatchingAssignment]) -> None:
        """
        Keep on disk the files that the node needs to start without a network, and remove old revisions of data.

        A revision that only new assignments pin is also removed, and fetched again: after a broker was rebuilt or restored
        from a backup, the same revision has different content.
        """
        current = [one.known for one in best.values()]
        self._bundles.current = frozenset(one.assignment.bundle.digest for one in current)
        pinned, before = _pinners(current), self._pinned
        if pinned != before or not self.is_settled:
            self._pinned = pinned
            used = {revision for revision, who in pinned.items() if self._is_same_past(revision, who, before)}
            await self._documents.forget_pins(DATA_BUCKET, used)

    def _is_same_past(
        self, revision: int, pinners: set[tuple[str, int]], before: Mapping[int, set[tuple[str, int]]]
    ) -> bool:
        """
        Whether a pinned revision is the one on disk.

        True if an assignment that already pinned it still exists. False if the only such assignment has vanished from the
        bucket: then new assignments pin a revision of another broker. The vanished assignment is then refused, because its
        data is lost.
        """
        known, vanished = before.get(revision, set()), self._cache.vanished
        is_other = any(one not in known for one in pinners)
        going_on = {one for one in pinners & known if not (is_other and one[0] in vanished)}
        if not going_on:
            self._without_data |= {key for key, _ in pinners & known}
        return bool(going_on)

    def lost(self, best: Mapping[str, MatchingAssignment]) -> dict[str, Refusal]:
        """
        Return a refusal for each assignment that vanished from the bucket and whose pinned data now belongs to another
        broker.
        """
        self._without_data &= self._cache.vanished
        reason = (
            "the assignment and its pinned data were lost from their buckets without an unassign; "
            "assign it again, or unassign it"
        )
        return {
            name: Refusal(VANISHED, reason)
            for name, one in best.items()
            if one.known.key in self._without_data
        }


def _pinners(known: Iterable[StoredAssignment]) -> dict[int, set[tuple[str, int]]]:
    """Return the pinned revisions of data, with the assignments that pin them."""
    found: dict[int, set[tuple[str, int]]] = {}
    for one in known:
        if one.assignment.data_revision:
            found.setdefault(one.assignment.data_revision, set()).add((one.key, one.number))
    return found
