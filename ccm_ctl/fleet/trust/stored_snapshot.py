"""
The stored snapshot. It contains the number of each document at the time when an administrator last confirmed the signers list.

The broker can withhold the snapshot or return an earlier one. Therefore it is compared with the data that this operator has seen
on this machine, and its parts are compared with the digests in the timestamp. If an interrupted renewal replaced a part without a
new timestamp, the old part is found in the history of its key. The snapshot makes it possible to detect a truncated history.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from ccm_agent.bus.signatures.snapshot import digest_of, piece_key, place_of, read_piece
from ccm_agent.bus.signatures.timestamp import TIMESTAMP_KEY, Timestamp, read_timestamp
from ccm_agent.bus.signatures.trust import SignedText
from ccm_agent.bus.signatures.verified import Unverified, Verified
from ccm_agent.model.errors import BusDeniedError, BusSetupError, NotFoundError, ProtocolError
from ccm_agent.model.formats.moments import format_moment
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_ctl.fleet.trust.seen_signers import KnownList, KnownSnapshot
from ccm_ctl.fleet.trust.verified_reader import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ccm_agent.bus.signatures.trust import SignersList
    from ccm_agent.model.ports import KeyValueEntry
    from ccm_ctl.fleet.ports import DocumentBucket, Fleet
    from ccm_ctl.fleet.trust.verified_reader import Judged, VerifiedReader

WAY_OUT = (
    "was the broker restored from a backup? Compare the stored documents with your own files, then accept them with "
    "`ccmctl signers renew --force`"
)
"""The advice if the broker's data are older than data seen before."""

_NOT_THERE = (BusDeniedError, BusSetupError, NotFoundError)


async def find_timestamp(fleet: Fleet, signers: SignersList) -> Timestamp | None:
    """
    Return the newest timestamp by a signer in a list. None: there is none, and none was seen before.

    A timestamp that this operator has verified before stays valid even if its signer was removed from the list.

    Raises:
        ProtocolError: The broker has only timestamps that are older than one seen before.
    """
    assert fleet.trust is not None
    assert fleet.signers is not None
    root, now_ms = fleet.trust.root, int(fleet.clock.now().timestamp() * 1000)
    known = await asyncio.to_thread(fleet.seen.of, root) if fleet.seen is not None else KnownList()
    newest = await _newest_timestamp(fleet.signers, signers, known, now_ms)
    found, entry = newest or (None, None)
    if found is None or found.issued < known.timestamp:
        if not known.timestamp:
            return None
        there = f"the timestamp of {_moment(found.issued)}" if found is not None else "no timestamp"
        raise ProtocolError(
            f"the broker has {there}, but a newer one, of {_moment(known.timestamp)}, was seen before; {WAY_OUT}"
        )
    if fleet.seen is not None and entry is not None and found.issued > known.timestamp:
        await asyncio.to_thread(fleet.seen.note_timestamp, root, found.issued, digest_of(entry.value))
    return found


async def read_pieces(
    bucket: DocumentBucket, digests: Sequence[str], places: Iterable[int]
) -> dict[str, int]:
    """
    Return the numbers in parts of the snapshot, by `bucket/key`.

    Raises:
        ProtocolError: The broker no longer has a part that is listed in the timestamp.
    """
    numbers: dict[str, int] = {}
    for place in places:
        numbers |= read_piece(await _find_piece(bucket, digests[place], place), digests, place)
    return numbers


async def signed_here(fleet: Fleet, before: Timestamp | None) -> KnownSnapshot:
    """Return the newest snapshot that was signed on this machine. Empty if an administrator has started a new one since then."""
    if fleet.seen is None or fleet.trust is None:
        return KnownSnapshot()
    known = await asyncio.to_thread(fleet.seen.snapshot, fleet.trust.root)
    is_over = before is not None and before.restarted > known.timestamp
    return KnownSnapshot() if is_over else known


class StoredSnapshot:
    """Judges histories using the snapshot, which is read once. Create a new object for each task."""

    def __init__(self, fleet: Fleet, reader: VerifiedReader) -> None:
        self._fleet = fleet
        self._reader = reader
        self._timestamp: Timestamp | None = None
        self._known: KnownSnapshot | None = None
        self._pieces: dict[int, dict[str, int]] = {}

    async def judge_history(
        self, bucket: str, key: str, entries: Sequence[KeyValueEntry]
    ) -> tuple[list[Judged], str]:
        """
        Judge the revisions of a key, oldest first, and check whether newer ones are missing.

        The newest verified revision is treated as unverified if the snapshot contains a newer number.

        Returns:
            The revisions, and the reason if newer ones are missing. "": none are missing.
        """
        judged = self._reader.history(bucket, entries)
        gap = await self._find_gap(f"{bucket}/{key}", judged)
        last = next((one for one in reversed(judged) if isinstance(one, Verified)), None)
        if gap and last is not None:
            outdated = Unverified(value=last.value, reason=gap, is_outdated=True)
            judged[judged.index(last)] = outdated
        return judged, gap

    async def _find_gap(self, name: str, judged: list[Judged]) -> str:
        """Return why the newest revisions of a document are missing, or "" if none are missing."""
        verifier = self._reader.verifier
        is_used = verifier.is_demanded and not verifier.accepts_unsigned and self._fleet.trust is not None
        signers = verifier.signers
        if not is_used or signers is None or not signers.max_age_s or self._fleet.signers is None:
            return ""
        try:
            least = await self._least_number(self._fleet.signers, signers, name)
        except ProtocolError as err:
            return err.message
        # the newest revision may be from an operator whose key was removed later; it exists but is not verified
        counted = [one for one in judged if isinstance(one, Verified)] + judged[-1:]
        newest = max((number_of(one.value) for one in counted), default=0)
        if newest >= least:
            return ""
        there = f"number {newest} is the newest stored one" if newest else "no revision is stored"
        return f"the fleet's snapshot lists number {least}, but {there}; the broker withholds or lost newer revisions"

    async def _least_number(self, bucket: DocumentBucket, signers: SignersList, name: str) -> int:
        if self._known is None:
            self._timestamp = await find_timestamp(self._fleet, signers)
            self._known = await signed_here(self._fleet, self._timestamp)
        numbers: dict[str, int] = {}
        if self._timestamp is not None and self._timestamp.pieces:
            pieces = self._timestamp.pieces
            place = place_of(name, len(pieces))
            if place not in self._pieces:
                self._pieces[place] = await read_pieces(bucket, pieces, [place])
            numbers = self._pieces[place]
        return max(numbers.get(name, 0), self._known.numbers.get(name, 0))


async def _newest_timestamp(
    bucket: DocumentBucket, signers: SignersList, known: KnownList, now_ms: int
) -> tuple[Timestamp, KeyValueEntry] | None:
    try:
        there = await bucket.get(TIMESTAMP_KEY)
        newest = _read(there, signers, known, now_ms) if there is not None else None
        if there is not None and newest is not None and newest.issued >= known.timestamp:
            return newest, there
        entries = await bucket.history(TIMESTAMP_KEY)
    except _NOT_THERE:
        return None
    found = [(one, entry) for entry in entries if (one := _read(entry, signers, known, now_ms)) is not None]
    return max(found, key=lambda pair: pair[0].issued, default=None)


def _read(entry: KeyValueEntry, signers: SignersList, known: KnownList, now_ms: int) -> Timestamp | None:
    """Return a timestamp that was verified now or before, or None."""
    signed = SignedText(body=entry.value.decode("utf-8", "replace"), signature=entry.signature)
    try:
        if hashlib.sha256(entry.value).hexdigest() == known.timestamp_digest:
            return decode_foreign(entry.value, Timestamp)
        return read_timestamp(signed, signers, now_ms=now_ms)
    except (ProtocolError, msgspec.MsgspecError):
        return None


async def _find_piece(bucket: DocumentBucket, digest: str, place: int) -> bytes:
    key = piece_key(place)
    entry = await bucket.get(key)
    if entry is not None and digest_of(entry.value) == digest:
        return entry.value
    for entry in reversed(await bucket.history(key)):
        if digest_of(entry.value) == digest:
            return entry.value
    raise ProtocolError(
        f"{key}: the broker no longer has the part of the snapshot that the newest timestamp names; {WAY_OUT}"
    )


def _moment(milliseconds: int) -> str:
    return format_moment(datetime.fromtimestamp(milliseconds / 1000, UTC))
