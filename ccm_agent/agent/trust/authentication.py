"""
Decides which requests and documents this node accepts, by checking their signatures against the signers list.

If a node's credentials or configuration contain a root key or signers, the node accepts only signed requests and documents. The
list can be updated over the broker. Each new list must be signed by the root and have a higher number. The list with the highest
number is stored on disk, so an older list cannot take effect after a restart or from an old copy. A node without a root key is in
unsigned operation, and logs a warning. If no administrator has confirmed a node's list for too long, the node accepts only plans
(`signers_guard`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from ccm_agent.agent.trust.schedule_times import ScheduleTimes, scheduled_run_id
from ccm_agent.agent.trust.signers_guard import SignersGuard
from ccm_agent.bus.signatures.node_state import StateReader
from ccm_agent.bus.signatures.signing import (
    MAX_TIME_MS,
    SIGNATURE_HEADER,
    SKEW_MS,
    Claims,
    SignatureError,
    SignatureKind,
    SignatureTimeError,
    check_times,
    verify_content,
)
from ccm_agent.bus.signatures.timestamp import TIMESTAMP_KEY, read_timestamp
from ccm_agent.bus.signatures.trust import (
    SIGNERS_KEY,
    SignedText,
    Signer,
    SignersList,
    Trust,
    read_signers,
)
from ccm_agent.bus.signatures.verified import DAY_MS
from ccm_agent.bus.subjects import ALL, key_subject
from ccm_agent.model.errors import CcmError, InputError, ProtocolError
from ccm_agent.model.formats.moments import format_moment
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import Clock, IncomingRequest, KeyReader, KeyValueEntry
from ccm_agent.model.records.policy import Principal
from ccm_agent.model.wire import (
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    NODE_FACTS,
    NODE_PING,
    NODE_STATUS,
    RESOURCE_EXEC,
    RUN_STOP,
)
from ccm_agent.storage.state_file import StateFile

log = logging.getLogger(__name__)


class NotAuthorizedError(CcmError):
    """A signature is valid, but its signer lacks the permission."""

    code = "request.not_authorized"


class EarlierRequestError(NotAuthorizedError):
    """A request was signed before the node's state began, so the node cannot tell whether it has executed the request."""

    code = "request.before_state"


class WrongClockError(NotAuthorizedError):
    """A listed operator signed the request, but it is not valid at the time of this node's clock."""

    code = "request.clock"


BEFORE_STATE_MS = 10_000
"""A request may be signed this long before the node's state began, because clocks differ."""

QUESTIONS = (NODE_PING, NODE_FACTS, NODE_STATUS)
"""Requests that may be executed twice."""


class StaleSignersError(NotAuthorizedError):
    """The node's signers list is too old to be reliable, so the node accepts only plans."""

    code = "request.stale_signers"


WHILE_STALE = (*QUESTIONS, MANIFEST_PLAN, MANIFEST_CHECK, RUN_STOP)
"""Requests that a node accepts regardless of the age of its signers list: they change nothing, or end a change."""


class _StoredSigners(Struct, kw_only=True):
    """The newest signers list, with the root's signature."""

    root: str
    signers: SignedText


class Authenticator:
    """
    The trusted keys of one agent.

    Attributes:
        root: The root's public key; "" if there is none.
        signers: The newest signers list.
        freshness: The age of that list.
        began_ms: When the node's state began, in milliseconds since 1970; 0 if unknown.
    """

    def __init__(self, trust: Trust | None, clock: Clock, path: Path, fixed: Sequence[Signer] = ()) -> None:
        """
        Use the keys in the credentials and the configuration; `open` adds those that an earlier process stored.

        Args:
            trust: The trust block of the credentials; None if there is none.
            clock: Returns the current time.
            path: The file of the newest signers list.
            fixed: Signers in the configuration, trusted in addition to the list.
        """
        self.root = trust.root if trust is not None else ""
        self.signers = SignersList(number=0, issued=0)
        self.floors = dict(trust.floors) if trust is not None else {}
        self._trust = trust
        self._clock = clock
        self._file = StateFile(path, _StoredSigners)
        self.began_ms = 0
        self.freshness = SignersGuard(path.with_name("timestamp.json"), self.root)
        self._times = ScheduleTimes(path.with_name("schedule_times.json"))
        self._fixed = {signer.key: signer for signer in fixed}
        self._limited = LimitedLog(log)

    @property
    def is_demanded(self) -> bool:
        """Whether this node accepts only signed requests and documents."""
        return bool(self.root or self._fixed)

    @property
    def takes_unsigned(self) -> bool:
        """
        Whether unsigned requests and documents are accepted now: no keys are known, or the signers list allows it for a time.
        """
        return not self.is_demanded or self.signers.allows_unsigned(self.earliest_ms)

    def check_number(self, name: str, number: int) -> None:
        """
        Check that the number of a document is not far ahead of the clock. Otherwise no later document would have a higher number.

        Raises:
            ProtocolError: The number is far ahead, and signatures are required.
        """
        if self.is_demanded and number > self._now_ms() + DAY_MS:
            raise ProtocolError(
                f"{name}: its number {number} is more than a day ahead of this node's clock; check the clock, or write the "
                "document again with `ccmctl`"
            )

    @property
    def earliest_ms(self) -> int:
        """The current time in milliseconds since 1970; at least the time when the root signed the newest signers list."""
        return max(self._now_ms(), self.signers.issued)

    @property
    def wrong_clock(self) -> str:
        """Return why this node refuses new requests and documents if its clock is known to be slow; otherwise ""."""
        if not self.root or self.signers.issued <= self._now_ms() + SKEW_MS:
            return ""
        signed = datetime.fromtimestamp(self.signers.issued / 1000, UTC)
        return f"the clock is slow: the signers list was signed {format_moment(signed)}"

    @property
    def staleness(self) -> str:
        """Return why this node accepts only plans, because its signers list may be outdated; "" if the list is reliable."""
        return self.freshness.problem(self.signers, self._now_ms()) if self.root else ""

    def make_state_reader(self) -> StateReader | None:
        """Return the verifier of other nodes' entries; None if this node has no root key."""
        return StateReader(self.root, self.signers, self._now_ms) if self.root else None

    @property
    def has_timestamps(self) -> bool:
        """Whether timestamps are renewed in this fleet, because its signers list has a maximum age."""
        return bool(self.root and self.signers.max_age_s)

    @property
    def lacks_timestamp(self) -> str:
        """Return why documents that were never seen cannot be accepted without a recent timestamp; "" if there is one."""
        return self.freshness.lack(self.signers, self._now_ms()) if self.has_timestamps else ""

    def open(self) -> None:
        """
        Read the newest known signers list, from the credentials or from the file of an earlier process. Blocking.

        A list with a future time is also accepted. It shows that the clock is slow (`wrong_clock`), and with an earlier list the
        node would accept requests of an operator who has been revoked since.

        Raises:
            InputError: The list in the credentials is not signed by the root.
        """
        self._times.open()
        self.freshness.open()
        if not self.is_demanded:
            log.warning(
                "unsigned requests are accepted: any client that can publish on the broker can control this agent",
                extra={"fix": "`ccmctl init --security`, then credentials from `ccmctl node add`"},
            )
        if self._trust is not None and self._trust.signers is not None:
            try:
                self.signers = self._read(self._trust.signers, MAX_TIME_MS)
            except ProtocolError as err:
                raise InputError(
                    f"the credentials contain a signers list that cannot be used: {err}"
                ) from err
        kept = self._file.load()
        if kept is None or kept.root != self.root:
            return
        try:
            newest = self._read(kept.signers, MAX_TIME_MS)
        except ProtocolError as err:
            log.warning("the stored signers list is skipped", extra={"reason": str(err)})
            return
        if newest.number > self.signers.number:
            self.signers = newest

    async def read_list(self, bucket: KeyReader, at_least: int = 0) -> bool:
        """
        Read the signers list in the bucket, and use it if it is newer. Returns whether it was newer.

        Raises:
            BusError: The broker is unavailable, or the stored list is not signed by the root or is not the newest.
        """
        if not self.root:
            return False
        entry = await bucket.get(SIGNERS_KEY, at_least)
        if entry is None:
            return False
        signed = SignedText(body=entry.value.decode("utf-8", "replace"), signature=entry.signature)
        newest = self._read(signed, self._now_ms())
        if newest.number <= self.signers.number:
            return False
        if newest.number < self.freshness.newest.signers:
            raise ProtocolError(
                f"signers list {newest.number} is older than {self.freshness.newest.signers}, which a timestamp requires"
            )
        await self._keep(signed)
        self.signers = newest
        log.info(
            "the signers list has changed", extra={"number": newest.number, "signers": len(newest.signers)}
        )
        return True

    async def read_timestamp(self, bucket: KeyReader) -> bool:
        """
        Read the timestamp in the bucket if a read is due, and use it if it is newer. Returns whether it was newer.

        Raises:
            BusError: The broker is unavailable, or the stored timestamp is not signed by a listed signer.
        """
        if not self.freshness.is_due(self.signers, self._now_ms()):
            return False
        entry = await bucket.get(TIMESTAMP_KEY)
        if entry is None:
            return False
        signed = SignedText(body=entry.value.decode("utf-8", "replace"), signature=entry.signature)
        is_new = await self.freshness.take(read_timestamp(signed, self.signers, now_ms=self._now_ms()))
        if self.freshness.newest.signers > self.signers.number:
            # The list may have been published since it was read.
            await self.read_list(bucket)
        return is_new

    async def request(self, incoming: IncomingRequest) -> Principal:
        """
        Return the sender of a request.

        Raises:
            SignatureError: The request is not signed with a trusted key, or the time of a schedule was not signed.
            NotAuthorizedError: The signer may not send this request to this scope; StaleSignersError if the signers list is too
                old; WrongClockError if the request is not valid at the time of this node's clock.
        """
        if not self.is_demanded:
            return Principal()
        kind = SignatureKind.SCHEDULE if incoming.scheduled else SignatureKind.REQUEST
        try:
            found = self._verified(kind, incoming.subject, incoming.body, _find_signature(incoming))
        except SignatureTimeError as err:
            if incoming.scheduled:  # a schedule ends when its signature expires
                raise
            raise self._wrong_clock(err) from err
        if found is None:
            return Principal()
        if why := self.wrong_clock:
            raise WrongClockError(f"{why}, and this node's clock shows {self._read_clock()}; correct it")
        claims, signer = found
        # The right to create schedules includes the right to apply anywhere, as on the broker.
        is_allowed = (
            signer.schedules if incoming.scheduled else signer.may_request(incoming.protocol, incoming.scope)
        )
        if not is_allowed:
            action = "schedule" if incoming.scheduled else ".".join(incoming.protocol.split(".")[-3:-1])
            raise NotAuthorizedError(
                f"{signer.name} may not send {action} requests to {incoming.scope}; to allow it, see `ccmctl operator add --help`"
            )
        why = self.staleness
        if why and (incoming.scheduled or incoming.protocol not in WHILE_STALE):
            raise StaleSignersError(f"only plans are accepted: {why}; see `ccmctl doctor`")
        run, due = scheduled_run_id(incoming) if incoming.scheduled else ("", None)
        if incoming.protocol not in QUESTIONS:
            self._refuse_earlier(incoming, due.timestamp() * 1000 if due is not None else claims.issued)
        if due is not None:
            await self._times.take(claims, due, run)
        # A plan runs the commands of its guards and health checks, so an outdated list does not give that right.
        return _principal(signer, is_plan_only=bool(why) or _is_plan_only(incoming, signer))

    def _wrong_clock(self, err: SignatureTimeError) -> WrongClockError:
        return WrongClockError(f"this node's clock shows {self._read_clock()}: {err.message}")

    def _read_clock(self) -> str:
        return format_moment(self._clock.now())

    def _refuse_earlier(self, incoming: IncomingRequest, signed_ms: float) -> None:
        if signed_ms >= self.began_ms - BEFORE_STATE_MS:
            return
        word = "was due" if incoming.scheduled else "was signed"
        signed, began = (
            format_moment(datetime.fromtimestamp(moment / 1000, UTC)) for moment in (signed_ms, self.began_ms)
        )
        raise EarlierRequestError(
            f"it {word} {signed}, before this node's state was created {began}, so the node may have already executed it; "
            "send a new request, or check the clocks if this one is new"
        )

    def document(self, bucket: str, entry: KeyValueEntry) -> Principal:
        """
        Return the author of a document.

        Raises:
            SignatureError: The document is not signed with a key that is trusted for this bucket and key.
        """
        return self._written(SignatureKind.DOCUMENT, bucket, entry)[0]

    def object(self, subject: str, digest: str, signature: str) -> int:
        """
        Return when a trusted operator signed an object that this node converges on, in milliseconds; 0 in unsigned operation.

        Raises:
            SignatureError: The object is not signed by a signer who may assign to all nodes.
        """
        found = (
            self._verified(SignatureKind.OBJECT, subject, digest.encode(), signature)
            if self.is_demanded
            else None
        )
        if found is None:
            return 0
        claims, signer = found
        self.refuse_new(subject)
        if not signer.may_assign(ALL):
            raise SignatureError(
                f"{subject}: {signer.name} signed it, but may not apply to all nodes, which signed sources require"
            )
        return claims.issued

    def refuse_new(self, name: str) -> None:
        """
        Check that this node may accept a new document.

        Raises:
            ProtocolError: The node's signers list is too old: the signer of the document may have been revoked.
        """
        if why := self.wrong_clock or self.staleness:
            raise ProtocolError(
                f"{name}: new documents are refused: {why}; the last accepted one stays in effect"
            )

    def deletion(self, bucket: str, entry: KeyValueEntry) -> int:
        """
        Return the number of a signed deletion.

        Raises:
            SignatureError: See `document`.
        """
        return self._written(SignatureKind.DELETION, bucket, entry)[1]

    def _written(self, kind: SignatureKind, bucket: str, entry: KeyValueEntry) -> tuple[Principal, int]:
        subject = key_subject(bucket, entry.key)
        found = self._verified(kind, subject, entry.value, entry.signature) if self.is_demanded else None
        if found is None:
            return Principal(), 0
        claims, signer = found
        if not signer.may_write(bucket, entry.key):
            raise SignatureError(f"{bucket}/{entry.key}: {signer.name} signed it, but may not write there")
        return _principal(signer), claims.number

    def _verified(
        self, kind: SignatureKind, subject: str, body: bytes, header: str
    ) -> tuple[Claims, Signer] | None:
        """
        Return the claims of a signature and its signer; None if it is invalid and the signers list allows unsigned content.

        In that case an invalid signature is treated like a missing one, because the sender could have omitted it.

        Raises:
            SignatureError: The signature is missing or invalid; SignatureTimeError if only its times are wrong.
        """
        try:
            claims = verify_content(header, kind, subject, body)
            signer = self._signer(claims, subject)
            check_times(claims, subject, now_ms=self._now_ms())
            return claims, signer
        except SignatureError as err:
            if not self.takes_unsigned:
                raise
            self._limited.warning(
                "accepted for now: it is unsigned, or its signer is not listed", extra={"reason": str(err)}
            )
            return None

    def _signer(self, claims: Claims, subject: str) -> Signer:
        signer = self._fixed.get(claims.key) or self.signers.by_key(claims.key, self.earliest_ms)
        if signer is None:
            raise SignatureError(
                f"{subject}: signed by the key {claims.key}, which is not in signers list {self.signers.number}"
            )
        return signer

    def _read(self, signed: SignedText, now_ms: int) -> SignersList:
        return read_signers(signed.body.encode(), signed.signature, self.root, now_ms=now_ms)

    async def _keep(self, signed: SignedText) -> None:
        await self._file.save(_StoredSigners(root=self.root, signers=signed))

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)


def _find_signature(incoming: IncomingRequest) -> str:
    wanted = SIGNATURE_HEADER.lower()
    return next((value for name, value in incoming.headers.items() if name.lower() == wanted), "")


def _is_plan_only(incoming: IncomingRequest, signer: Signer) -> bool:
    """Whether the signer may plan but not apply in this scope. Running commands there is a separate right."""
    is_change = incoming.scheduled or incoming.protocol == RESOURCE_EXEC
    return not is_change and not signer.may_assign(incoming.scope)


def _principal(signer: Signer, *, is_plan_only: bool = False) -> Principal:
    return Principal(
        name=signer.name, key=signer.key, roles=signer.roles, is_verified=True, is_plan_only=is_plan_only
    )
