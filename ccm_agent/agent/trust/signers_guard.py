"""
The age of this node's signers list: when an administrator last confirmed that there is no newer one.

The newest timestamp is stored on disk. From then on, the node refuses lists older than the one in the timestamp. So a broker that
was restored from a backup cannot return a node to a list that still contains a revoked operator.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from ccm_agent.bus.signatures.timestamp import TIMESTAMP_SUBJECT, Timestamp
from ccm_agent.bus.signatures.trust import SignersList
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.formats.moments import format_moment
from ccm_agent.storage.state_file import StateFile

READ_AGAIN = 4
"""
A timestamp is read after a notification. Otherwise, it is read when this fraction (1/n) of the list's maximum age has passed.
"""


class _StoredTimestamp(Struct, frozen=True, kw_only=True):
    """The newest verified timestamp, and the root key of its fleet."""

    root: str
    timestamp: Timestamp


class SignersGuard:
    """
    The age of one node's signers list.

    Attributes:
        newest: The newest timestamp; its times are 0 if there was none.
    """

    def __init__(self, path: Path, root: str) -> None:
        """
        Args:
            path: The file of the newest timestamp.
            root: The root's public key.
        """
        self.newest = Timestamp(issued=0, signers=0)
        self._root = root
        self._file = StateFile(path, _StoredTimestamp)
        self._is_notified = True

    def open(self) -> None:
        """Read the timestamp that an earlier process verified. Blocking."""
        kept = self._file.load()
        if kept is not None and kept.root == self._root:
            self.newest = kept.timestamp

    async def take(self, found: Timestamp) -> bool:
        """
        Store a verified timestamp if it is newer, and return whether it was newer.

        Raises:
            ProtocolError: The timestamp has no snapshot, but the previous one has.
        """
        self._is_notified = False
        if found.issued <= self.newest.issued or found.signers < self.newest.signers:
            return False
        if self.newest.pieces and not found.pieces:
            raise ProtocolError(
                f"{TIMESTAMP_SUBJECT}: the timestamp has no snapshot, but the previous one has; run `ccmctl signers renew`"
            )
        self.newest = found
        await self._file.save(_StoredTimestamp(root=self._root, timestamp=found))
        return True

    def notified(self) -> None:
        """Record that a timestamp was written."""
        self._is_notified = True

    def is_due(self, signers: SignersList, now_ms: int) -> bool:
        """Whether a timestamp should be read now."""
        age_ms = now_ms - self._confirmed(signers)
        return bool(signers.max_age_s) and (
            self._is_notified or age_ms > signers.max_age_s * 1000 // READ_AGAIN
        )

    def problem(self, signers: SignersList, now_ms: int) -> str:
        """
        Return why the node must not rely on its signers list now; "" if it may.

        The sentence does not change while the problem remains the same.
        """
        if not signers.max_age_s:
            return ""
        if self.newest.signers > signers.number:
            return (
                f"signers list {self.newest.signers} exists, but the broker has not delivered it; "
                f"this node has {signers.number}"
            )
        confirmed = self._confirmed(signers)
        if now_ms <= confirmed + signers.max_age_s * 1000:
            return ""
        moment = datetime.fromtimestamp(confirmed / 1000, UTC)
        return (
            f"no administrator has confirmed signers list {signers.number} since {format_moment(moment)}; the limit is "
            f"{format_duration(signers.max_age_s)}"
        )

    def lack(self, signers: SignersList, now_ms: int) -> str:
        """Return why there is no timestamp within the maximum age of the list; "" if there is one."""
        if not self.newest.issued:
            return "no timestamp of the signers list was read yet, so outdated documents cannot be detected"
        if now_ms <= self.newest.issued + signers.max_age_s * 1000:
            return ""
        moment = datetime.fromtimestamp(self.newest.issued / 1000, UTC)
        return (
            f"the newest timestamp of the signers list is from {format_moment(moment)}; the limit is "
            f"{format_duration(signers.max_age_s)}"
        )

    def _confirmed(self, signers: SignersList) -> int:
        """Return when the list was last confirmed as the newest, by the root's signature or by a timestamp."""
        is_of_list = self.newest.signers == signers.number
        return max(signers.issued, self.newest.issued if is_of_list else 0)
