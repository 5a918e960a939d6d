"""
The newest signers lists, timestamps and snapshots that this operator has seen on this machine.

With this information, a controller detects earlier ones from a broker that was restored from a backup.
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
    The stored information about one fleet's list.

    Attributes:
        signers: The highest list number seen.
        looked: When the timestamp was last checked, in seconds since 1970.
        newest: The list with the highest number whose text was seen. The root's signature is checked again at each use.
        timestamp: The number of the newest verified timestamp, or 0.
        timestamp_digest: Its SHA-256 (hex). With it, the timestamp can be recognized after the key of its signer was removed from
            the list.
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
        timestamp: The number of its timestamp, or 0.
        numbers: The numbers of documents, by `bucket/key`.
    """

    timestamp: int = 0
    numbers: dict[str, int] = {}


class SeenSigners:
    """
    The stored information, by root key. Blocking: it is in one small file, and the numbers of snapshots are in a second one.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Store the path of the file. None: the file in the user's state directory."""
        self._path = path or Path(state_directory()) / "seen-signers.json"
        self._numbers_path = self._path.with_name("seen-numbers.json")

    def of(self, root: str) -> KnownList:
        """Return the information about a fleet. An unreadable file is treated as empty."""
        return self._all().get(root, KnownList())

    def note(self, root: str, signers: int, looked: float) -> None:
        """Store the number of a list and the time of the check. Errors when writing the file are ignored."""
        known = self.of(root)
        self._keep(root, replace(known, signers=max(signers, known.signers), looked=looked))

    def note_list(self, root: str, signers: int, newest: SignedText) -> None:
        """Store a verified list, unless one with a higher number was seen."""
        known = self.of(root)
        if signers >= known.signers and newest != known.newest:
            self._keep(root, replace(known, signers=signers, newest=newest))

    def note_timestamp(self, root: str, issued: int, digest: str) -> None:
        """Store a verified timestamp, unless a newer one was seen."""
        known = self.of(root)
        if issued > known.timestamp:
            self._keep(root, replace(known, timestamp=issued, timestamp_digest=digest))

    def snapshot(self, root: str) -> KnownSnapshot:
        """Return the newest snapshot that was signed here, or an empty one."""
        return self._all_snapshots().get(root, KnownSnapshot())

    def note_snapshot(self, root: str, snapshot: KnownSnapshot) -> None:
        """Store a snapshot in place of the previous one."""
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
