"""
Judge data from the broker using the fleet's newest signers list. The result is `Verified`, or `Unverified` with the reason.

Create a reader for each task, because it stores the list. In unsigned operation, everything is treated as verified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.signatory import schedule_details
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureError, SignatureKind, read_claims
from ccm_agent.bus.signatures.verified import DAY_MS, Unverified, Verified, Verifier
from ccm_agent.bus.subjects import ALL, key_subject, rollout_start_subject
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ports import KeyValueEntry
from ccm_ctl.fleet.trust.newest_signers import find_newest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ccm_agent.bus.signatures.signing import Claims
    from ccm_agent.bus.signatures.trust import Signer, SignersList
    from ccm_agent.bus.streams import Stored
    from ccm_agent.model.ports import Clock
    from ccm_agent.model.wire import ManifestRequest
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.rollout.scheduled import DueRollout
    from ccm_ctl.fleet.schedules.stored_schedule import Schedule

Judged = Verified[KeyValueEntry] | Unverified[KeyValueEntry]
"""An entry of a bucket, with the result of checking its signature."""

AHEAD = "its number is more than a day ahead of the clock"
"""The reason why such a document is not verified. The solution is in `docs/operate/troubleshooting.md`."""


class _Stamp(Struct, frozen=True):
    """The part of a stamp that identifies the document."""

    bucket: str
    key: str
    number: int


class VerifiedReader:
    """
    Judges data that operators signed.

    Attributes:
        verifier: Judges a single signature.
    """

    def __init__(
        self, signers: SignersList | None, clock: Clock, *, is_demanded: bool, doubt: str = ""
    ) -> None:
        """
        Store the signers list.

        Args:
            signers: The newest list, or None.
            clock: The clock.
            is_demanded: Whether the fleet uses signatures.
            doubt: The reason why nothing can be verified. See `NewestSigners`.
        """
        self._clock = clock
        self.verifier = Verifier(signers, self._now_ms, is_demanded=is_demanded, doubt=doubt)

    def document(self, bucket: str, entry: KeyValueEntry) -> Judged:
        """Judge a document or a deletion by its signer, key and number."""

        def refusal(signer: Signer, claims: Claims) -> str:
            if not signer.may_write(bucket, entry.key):
                return f"{signer.name} signed it, but may not write there"
            return self._fault(bucket, entry, claims)

        kind = SignatureKind.DOCUMENT if entry.value else SignatureKind.DELETION
        subject = key_subject(bucket, entry.key)
        return self.verifier.read(entry, kind, subject, entry.value, entry.signature, refusal)

    def history(self, bucket: str, entries: Sequence[KeyValueEntry]) -> list[Judged]:
        """
        Judge the revisions of a key, oldest first.

        A revision is not verified if its number is lower than that of an earlier verified revision. In this case, a program other
        than `ccmctl` has written it again.
        """
        judged: list[Judged] = []
        newest = 0
        for entry in entries:
            one = self.document(bucket, entry)
            number = number_of(entry)
            if isinstance(one, Verified) and self.verifier.is_demanded:
                if number and number < newest:
                    one = Unverified(value=entry, reason="an older revision that was written again")
                else:
                    newest = max(newest, number)
            judged.append(one)
        return judged

    def schedule(
        self, stored: Stored | None, target: str, name: str, times: tuple[str, str] | None
    ) -> Verified[Stored | None] | Unverified[Stored | None]:
        """
        Judge a schedule. Its request, name and times must be signed by a signer who may add schedules.

        Args:
            stored: The message. None: it is unknown, so the schedule is not verified.
            target: The subject of its requests, which the signature covers.
            name: Its name.
            times: Its times and their zone. None: only its due message still exists.
        """

        def refusal(signer: Signer, claims: Claims) -> str:
            if not signer.schedules:
                return f"{signer.name} signed it, but may not add schedules"
            signed = claims.details
            when, zone = times or (signed.get("when", ""), signed.get("zone", ""))
            is_same = signed == schedule_details(name, when, zone)
            return "" if is_same else "its name or its times were changed after signing"

        signature = _header(stored, SIGNATURE_HEADER) if stored is not None else ""
        body = stored.body if stored is not None else b""
        return self.verifier.read(stored, SignatureKind.SCHEDULE, target, body, signature, refusal)

    def judged(self, schedule: Schedule) -> Schedule:
        """Return the schedule with the result of checking its signature."""
        times = (schedule.when, schedule.zone) if schedule.when else None
        proof = self.schedule(schedule.message, schedule.target, schedule.name, times)
        return msgspec.structs.replace(schedule, proof=proof.derive(lambda _: schedule.request))

    def due_rollout(self, due: DueRollout) -> Verified[ManifestRequest] | Unverified[ManifestRequest]:
        """Judge a due start of a scheduled rollout. The caller must check its time, which is in the details."""
        return self.verifier.read(
            due.rollout.request,
            SignatureKind.SCHEDULE,
            rollout_start_subject(due.name),
            due.body,
            due.signature,
            lambda signer, _: (
                "" if signer.schedules else f"{signer.name} signed it, but may not add schedules"
            ),
        )

    def object(self, subject: str, digest: str, signature: str) -> Verified[str] | Unverified[str]:
        """Judge the signature of an object. The signature covers the object's digest (SHA-256, hex)."""
        return self.verifier.read(
            digest,
            SignatureKind.OBJECT,
            subject,
            digest.encode(),
            signature,
            lambda signer, _: "" if signer.may_assign(ALL) else f"{signer.name} may not apply to all nodes",
        )

    def _fault(self, bucket: str, entry: KeyValueEntry, claims: Claims) -> str:
        """Return why the number or the key in a document does not match, or "" if both do."""
        if not entry.value:
            return AHEAD if claims.number > self._now_ms() + DAY_MS else ""
        stamp = _decode_stamp(entry)
        if stamp is None:
            return "it is not a document that `ccmctl` wrote"
        if (stamp.bucket, stamp.key) != (bucket, entry.key):
            return f"it belongs to {stamp.bucket}/{stamp.key} and was copied here"
        return AHEAD if stamp.number > self._now_ms() + DAY_MS else ""

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)


async def open_reader(fleet: Fleet) -> VerifiedReader:
    """Return a reader with the newest signers list of a fleet."""
    newest = await find_newest(fleet)
    is_demanded = fleet.trust is not None or bool(newest.doubt)
    return VerifiedReader(newest.signers, fleet.clock, is_demanded=is_demanded, doubt=newest.doubt)


def number_of(entry: KeyValueEntry) -> int:
    """Return the number of a document or of a signed deletion, or 0."""
    if entry.value:
        stamp = _decode_stamp(entry)
        return stamp.number if stamp is not None else 0
    try:
        return read_claims(entry.signature).number if entry.signature else 0
    except SignatureError:
        return 0


def _decode_stamp(entry: KeyValueEntry) -> _Stamp | None:
    try:
        return decode_foreign(entry.value, _Stamp)
    except msgspec.MsgspecError:
        return None


def _header(stored: Stored, name: str) -> str:
    return next((value for key, value in stored.headers.items() if key.lower() == name.lower()), "")
