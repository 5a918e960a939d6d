"""
What this operator has seen on this machine: the newest signers lists, timestamps and snapshots.

A broker that was restored from a backup cannot bring back earlier ones.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.bus.signatures.trust import SignedText
from ccm_agent.model.errors import CcmError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.state_directory import state_directory
from ccm_ctl.fleet.whole_file import write_whole

log = logging.getLogger(__name__)


class KnownList(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    What this operator knows of one fleet's list.

    Attributes:
        signers: The highest number of a list that was seen.
        looked: When the timestamp was looked at last, in seconds since 1970.
        newest: The list with the highest number whose text was seen; the root's signature is checked again when it is used.
        timestamp: The number of the newest timestamp that was verified; 0: none was seen.
        timestamp_digest: Its SHA-256 (hex). It stays known if the key of its signer is removed from the list.
    """

    signers: int = 0
    looked: float = 0
    newest: SignedText | None = None
    timestamp: int = 0
    timestamp_digest: str = ""


class KnownSnapshot(Struct, frozen=True, kw_only=True):
    """
    A snapshot that this operator signed.

    Attributes:
        timestamp: The number of its timestamp; 0: there was none.
        numbers: The numbers of documents, by `bucket/key`.
    """

    timestamp: int = 0
    numbers: dict[str, int] = {}


class SeenSigners:
    """What is known, by root key. Blocking: it is one small file, and beside it one with the numbers of snapshots."""

    def __init__(self, path: Path | None = None) -> None:
        """`path` is the file; None takes the one in the user's state directory."""
        self._path = path or Path(state_directory()) / "seen-signers.json"
        self._numbers_path = self._path.with_name("seen-numbers.json")

    def of(self, root: str) -> KnownList:
        """What is known of a fleet; a file that cannot be read says nothing."""
        return self._all().get(root, KnownList())

    def note(self, root: str, signers: int, looked: float) -> None:
        """Remember the number of a list and the look at it; a file that cannot be written is passed over."""
        known = self.of(root)
        self._keep(root, replace(known, signers=max(signers, known.signers), looked=looked))

    def note_list(self, root: str, signers: int, newest: SignedText) -> None:
        """Remember a list whose signature was verified, unless one with a higher number was seen."""
        known = self.of(root)
        if signers >= known.signers and newest != known.newest:
            self._keep(root, replace(known, signers=signers, newest=newest))

    def note_timestamp(self, root: str, issued: int, digest: str) -> None:
        """Remember a timestamp that was verified, unless a newer one was seen."""
        known = self.of(root)
        if issued > known.timestamp:
            self._keep(root, replace(known, timestamp=issued, timestamp_digest=digest))

    def snapshot(self, root: str) -> KnownSnapshot:
        """The newest snapshot that was signed here; an empty one if there was none."""
        return self._all_snapshots().get(root, KnownSnapshot())

    def note_snapshot(self, root: str, snapshot: KnownSnapshot) -> None:
        """Remember a snapshot in place of the one before."""
        self._write(self._numbers_path, self._all_snapshots() | {root: snapshot})

    def _keep(self, root: str, known: KnownList) -> None:
        self._write(self._path, self._all() | {root: known})

    def _write(self, path: Path, found: Mapping[str, object]) -> None:
        try:
            write_whole(path, msgspec.json.encode(found))
        except CcmError as err:
            log.info("the newest signers list is not remembered", extra={"reason": str(err)})

    def _all_snapshots(self) -> dict[str, KnownSnapshot]:
        try:
            return decode_foreign(self._numbers_path.read_bytes(), dict[str, KnownSnapshot])
        except (OSError, msgspec.DecodeError):
            return {}

    def _all(self) -> dict[str, KnownList]:
        try:
            return decode_foreign(self._path.read_bytes(), dict[str, KnownList])
        except (OSError, msgspec.DecodeError):
            return {}
