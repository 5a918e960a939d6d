"""The newest signers lists that this operator has seen on this machine: a broker that was put back to a backup is no way back."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.bus.trust import SignedText
from ccm_agent.model.errors import CcmError
from ccm_agent.model.state_directory import state_directory
from ccm_agent.model.untrusted_json import decode_foreign
from ccm_ctl.fleet.whole_file import write_whole

log = logging.getLogger(__name__)


class KnownList(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    What this operator knows of one fleet's list.

    Attributes:
        signers: The highest number of a list that was seen.
        looked: When the timestamp was looked at last, in seconds since 1970.
        newest: The list with the highest number whose text was seen; the root's signature is checked again when it is used.
    """

    signers: int = 0
    looked: float = 0
    newest: SignedText | None = None


class SeenSigners:
    """What is known, by root key. Blocking: it is one small file."""

    def __init__(self, path: Path | None = None) -> None:
        """`path` is the file; None takes the one in the user's state directory."""
        self._path = path or Path(state_directory()) / "seen-signers.json"

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

    def _keep(self, root: str, known: KnownList) -> None:
        try:
            write_whole(self._path, msgspec.json.encode(self._all() | {root: known}))
        except CcmError as err:
            log.info("the newest signers list is not remembered", extra={"reason": str(err)})

    def _all(self) -> dict[str, KnownList]:
        try:
            return decode_foreign(self._path.read_bytes(), dict[str, KnownList])
        except (OSError, msgspec.DecodeError):
            return {}
