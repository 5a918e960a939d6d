"""
How old this node's signers list is: when an administrator last confirmed that no newer one exists.

The newest timestamp is kept on disk. From then on the node takes no list that is older than the one that it names, so a broker
that was put back to a backup cannot return a node to a list in which a revoked operator still is.
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
"""A timestamp is read at notifications, and without one when a list is this part of its maximum age old."""


class _StoredTimestamp(Struct, frozen=True, kw_only=True):
    """The newest timestamp that was verified, and the root key of its fleet."""

    root: str
    timestamp: Timestamp


class SignersGuard:
    """
    What one node knows about the age of its signers list.

    Attributes:
        newest: The newest timestamp; its times are 0 if there was none.
    """

    def __init__(self, path: Path, root: str) -> None:
        """
        Args:
            path: Where the newest timestamp is kept.
            root: The root's public key.
        """
        self.newest = Timestamp(issued=0, signers=0)
        self._root = root
        self._file = StateFile(path, _StoredTimestamp)
        self._is_notified = True

    def open(self) -> None:
        """Take the timestamp that an earlier process verified. Blocking."""
        kept = self._file.load()
        if kept is not None and kept.root == self._root:
            self.newest = kept.timestamp

    async def take(self, found: Timestamp) -> bool:
        """
        Take a timestamp that was verified, if it is newer; whether it was.

        Raises:
            ProtocolError: It has no snapshot, and the one before has.
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
        """A timestamp was written."""
        self._is_notified = True

    def is_due(self, signers: SignersList, now_ms: int) -> bool:
        """A timestamp should be read now."""
        age_ms = now_ms - self._confirmed(signers)
        return bool(signers.max_age_s) and (
            self._is_notified or age_ms > signers.max_age_s * 1000 // READ_AGAIN
        )

    def problem(self, signers: SignersList, now_ms: int) -> str:
        """
        Why the node must not rely on its signers list now; "" when it may.

        The sentence stays the same while the problem does.
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
        """Why there is no timestamp within the maximum age of the list; "" when there is one."""
        if not self.newest.issued:
            return "no timestamp of the signers list was read yet, so outdated documents cannot be detected"
        if now_ms <= self.newest.issued + signers.max_age_s * 1000:
            return ""
        moment = datetime.fromtimestamp(self.newest.issued / 1000, UTC)
        return (
            f"the newest timestamp of the signers list is of {format_moment(moment)}; the limit is "
            f"{format_duration(signers.max_age_s)}"
        )

    def _confirmed(self, signers: SignersList) -> int:
        """When the list was the newest one: a signature of the root says so at its time, and timestamps later."""
        is_of_list = self.newest.signers == signers.number
        return max(signers.issued, self.newest.issued if is_of_list else 0)
