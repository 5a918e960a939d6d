"""
The join service. It checks and answers the requests of nodes to join, to renew their credentials or to leave.

The content of a request is untrusted until its signatures are verified. A request has a size limit, each sender has a limited
number of answers, and the queue is bounded. Requests over these limits are dropped without an answer, and the node repeats its
request.

The audit trail gets one entry for each join, renewal and leave. For refusals of one sender for the same reason, it gets at most
one entry per minute with their number.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import logging
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.bus.layout import FACTS
from ccm_agent.bus.signatures.join import WRONG_CLOCK, JoinError, read_request, verify_request
from ccm_agent.bus.signatures.signing import SKEW_MS, SignatureError, SignatureTimeError, check_times
from ccm_agent.bus.signatures.trust import read_certificate
from ccm_agent.bus.subjects import ALL, is_node
from ccm_agent.model.errors import BusDeniedError, CcmError, InputError, ProtocolError
from ccm_agent.model.records.join import (
    ANSWER_S,
    JOIN_ANSWER,
    JOIN_LEAVE,
    JOIN_RENEWAL,
    JOIN_REQUEST,
    REQUEST_LIMIT_BYTES,
    JoinAnswer,
    JoinRequest,
    JoinState,
)
from ccm_ctl.fleet.data.documents import Documents, numbers_for
from ccm_ctl.fleet.data.fact_edits import with_facts
from ccm_ctl.fleet.keys.join_limits import ReportLimit, SenderLimit
from ccm_ctl.fleet.keys.join_outcomes import JoinOutcome, digest_of, outcome_of, refusal_of
from ccm_ctl.fleet.keys.join_records import BriefNode, JoinedNode, JoinRecords, name_taken
from ccm_ctl.fleet.keys.leaving import key_of_record, leave_fleet
from ccm_ctl.fleet.keys.signers import published
from ccm_ctl.fleet.trust.newest_signers import find_newest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping

    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.connection.messages import Message
    from ccm_agent.bus.signatures.trust import SignedText, SignersList
    from ccm_ctl.fleet.keys.join_keys import Issuer
    from ccm_ctl.fleet.keys.join_records import KnownToken
    from ccm_ctl.fleet.ports import Fleet

log = logging.getLogger(__name__)

VALID_S = 90 * 86_400
"""The validity, in seconds, of the credentials of a joined node."""

REFRESH_MS = 5_000
"""The interval, in milliseconds, at which the service reads the signers list and the document numbers again."""

ANSWERS_A_MINUTE = 40
"""The maximum number of answers per minute to one key. A node that waits to be accepted sends a request every five seconds."""
REFUSALS_A_MINUTE = 60
"""The maximum number of refusals per minute to the holders of one token."""

QUEUE_LIMIT = 5_000
"""The maximum number of waiting requests. A node repeats its request if it is dropped."""
WORKERS = 8
"""The number of requests that are processed at the same time."""


class _Trusted(Struct, frozen=True, kw_only=True):
    """The data that the service has read from the fleet at one time."""

    read_ms: int
    records: JoinRecords
    facts: Documents
    signers: SignersList | None
    text: SignedText
    floors: dict[str, int]


class JoinService:
    """
    Answers the requests of nodes.

    Args:
        fleet: The bus, with the credentials of an operator with `--join`.
        issuer: The keys.
        on_outcome: Called with each outcome that must be reported.
        read_added: Returns the nodes that were added with `ccmctl node add`. Blocking.
        valid_s: The validity of credentials, in seconds.
    """

    def __init__(
        self,
        fleet: Fleet,
        issuer: Issuer,
        on_outcome: Callable[[JoinOutcome], None],
        read_added: Callable[[], Collection[str]],
        *,
        valid_s: int = VALID_S,
    ) -> None:
        self._fleet = fleet
        self._issuer = issuer
        self._on_outcome = on_outcome
        self._read_added = read_added
        self._valid_s = valid_s
        self._answers = SenderLimit(ANSWERS_A_MINUTE)
        self._refusals = SenderLimit(REFUSALS_A_MINUTE)
        self._reported = ReportLimit()
        self._trusted: _Trusted | None = None
        self._reading = asyncio.Lock()
        self._counting = asyncio.Lock()

    async def answer(
        self, subject: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[bytes, dict[str, str]] | None:
        """
        Return the answer to a request, or None for a request that is dropped.

        Raises:
            BusError: The broker cannot be reached. The node repeats its request.
            RevisionError: Other join services keep writing the same document. The node repeats its request.
        """
        now_ms = self._now_ms()
        if len(body) > REQUEST_LIMIT_BYTES or self._refusals.is_spent(subject, now_ms):
            self._refusals.count(subject, now_ms)
            dropped = JoinError(
                "the request is too large, or its sender was refused too often", code="join.dropped"
            )
            self._report_refusal(outcome_of(subject, body, None, dropped))
            return None
        request: JoinRequest | None = None
        try:
            request = read_request(subject, body)
            if self._answers.is_spent(request.key, now_ms):
                return None
            self._answers.count(request.key, now_ms)
            answer = await self._decide_or_fail(request, subject, body, headers)
        except JoinError as err:
            self._refusals.count(subject, now_ms)
            outcome = outcome_of(subject, body, request, err)
            self._report_refusal(outcome)
            answer = refusal_of(outcome)
        return self._issuer.seal(subject, answer, self._now_ms())

    async def _decide_or_fail(
        self, request: JoinRequest, subject: str, body: bytes, headers: Mapping[str, str]
    ) -> JoinAnswer:
        try:
            return await self._decide(request, subject, body, headers)
        except (ProtocolError, BusDeniedError, InputError) as err:
            raise JoinError(f"the join service failed: {err.message}", code="join.service") from err

    async def _decide(
        self, request: JoinRequest, subject: str, body: bytes, headers: Mapping[str, str]
    ) -> JoinAnswer:
        trusted = await self._read_trusted()
        if not is_node(request.name):
            raise JoinError(
                f"{request.name[:60]!r}: not a valid node name; use lowercase letters, digits, `.`, `_` and `-`",
                code="join.bad_name",
            )
        token = await self._find_token(trusted, request) if request.token else None
        self._verify(request, subject, body, headers, token.record.key if token else "")
        if token is None:
            self._check_certificate(trusted, request)
        if request.protocol == JOIN_LEAVE:
            return await self._leave(trusted, request, subject, body)
        if await trusted.records.has_left(request.key):
            raise JoinError(
                f"{request.name}: this node has left the fleet; run `ccm leave` there, then join with a new token",
                code="join.left",
            )
        await self._check_name(trusted, request)
        floors = trusted.floors
        if token is not None and not await self._admit(trusted, token, request):
            self._report(request, subject, body, JoinState.WAITING)
            return JoinAnswer(
                protocol=JOIN_ANSWER,
                state=JoinState.WAITING,
                request=digest_of(body),
                code="join.waiting",
                message="an operator must accept this node",
            )
        if token is not None and token.record.role:
            floors = floors | await self._assign_role(trusted, token, request.name)
        jwt, certificate, expires = self._issuer.issue(
            request.name, request.key, self._now_ms(), self._valid_s
        )
        self._report(request, subject, body, JoinState.JOINED)
        return JoinAnswer(
            protocol=JOIN_ANSWER,
            state=JoinState.JOINED,
            request=digest_of(body),
            jwt=jwt,
            certificate=certificate,
            signers=trusted.text.body,
            signature=trusted.text.signature,
            floors=floors,
            expires=expires,
        )

    async def _find_token(self, trusted: _Trusted, request: JoinRequest) -> KnownToken:
        token = await trusted.records.find_token(request.token)
        if token is None or token.proof is None:
            reason = f": {token.reason}" if token is not None else ""
            raise JoinError(
                f"the fleet does not know this token{reason}; create another one with `ccmctl token create`",
                code="join.unknown_token",
            )
        return token

    def _verify(
        self, request: JoinRequest, subject: str, body: bytes, headers: Mapping[str, str], token_key: str
    ) -> None:
        now_ms = self._now_ms()
        try:
            verify_request(request, subject, body, headers, token_key, now_ms=now_ms)
        except SignatureTimeError as err:
            seconds = abs(now_ms - request.time) // 1000
            raise JoinError(
                f"the clock of this host differs by {seconds} s; correct it, then repeat the command",
                code=WRONG_CLOCK,
            ) from err
        except SignatureError as err:
            raise JoinError("the signature of the request is not valid", code="join.signature") from err

    async def _leave(self, trusted: _Trusted, request: JoinRequest, subject: str, body: bytes) -> JoinAnswer:
        """Remove the stored data of a node whose request was verified. A repeated request has the same result."""
        await leave_fleet(self._fleet, trusted.records, request.name, request.key)
        self._report(request, subject, body, JoinState.LEFT)
        return JoinAnswer(protocol=JOIN_ANSWER, state=JoinState.LEFT, request=digest_of(body))

    def _check_certificate(self, trusted: _Trusted, request: JoinRequest) -> None:
        """Check that the fleet has certified the key and has not revoked it."""
        revoked = trusted.signers.revoked_nodes if trusted.signers is not None else ()
        try:
            claims = read_certificate(request.certificate, request.name, request.key, self._issuer.root)
            check_times(claims, request.name, now_ms=self._now_ms(), late_ms=SKEW_MS)
        except ProtocolError as err:
            raise JoinError(
                f"the certificate of this node is not valid: {err.message}; join again with a new token",
                code="join.certificate",
            ) from err
        if {claims.key, request.key} & set(revoked):
            raise JoinError(
                f"the credentials of {request.name} were revoked; join again with a new token",
                code="join.revoked",
            )

    async def _check_name(self, trusted: _Trusted, request: JoinRequest) -> None:
        """Check that the name does not belong to another key."""
        joined = await trusted.records.find_node(request.name)
        if joined is not None and not joined.revoked:
            if joined.key != request.key:
                raise name_taken(request.name)
            return
        if not request.token:
            return
        revoked = trusted.signers.revoked_nodes if trusted.signers is not None else ()
        if request.key in revoked:
            raise JoinError(
                f"the key of {request.name} was revoked; remove its credentials file, then join again",
                code="join.revoked",
            )
        added = await asyncio.to_thread(self._read_added)
        if request.name in added or await self._has_record(trusted, request, revoked):
            raise name_taken(request.name)

    async def _has_record(self, trusted: _Trusted, request: JoinRequest, revoked: tuple[str, ...]) -> bool:
        """Whether a record under this name is from a node with another valid key."""
        key = await key_of_record(self._fleet, request.name)
        if key is None or key == request.key or key in revoked:
            return False
        return not await trusted.records.has_left(key)

    async def _admit(self, trusted: _Trusted, token: KnownToken, request: JoinRequest) -> bool:
        """
        Apply the limits of a token, and assign the name to the key. Returns False if an operator must accept the node first.

        A repeated request has the same result, regardless of the step that an earlier attempt reached.
        """
        record, now_s = token.record, self._now_ms() // 1000
        if record.revoked:
            raise JoinError(
                "the token was revoked; create another one with `ccmctl token create`",
                code="join.revoked_token",
            )
        if record.expires <= now_s:
            raise JoinError(
                "the token has expired; create another one with `ccmctl token create`",
                code="join.expired_token",
            )
        if not fnmatch.fnmatchcase(request.name, record.name):
            raise JoinError(
                f"{request.name}: the token requires a name like {record.name}; use `ccm join --name`",
                code="join.name",
            )
        assert token.proof is not None
        author = trusted.signers.by_key(token.proof.key, self._now_ms()) if trusted.signers else None
        if record.role and author is not None and not author.facts:
            raise JoinError(
                f"the token assigns a role, but its author {token.author} may not assign facts",
                code="join.token_rights",
            )
        # without it, concurrent workers would have to repeat their writes of the same document
        async with self._counting:
            await trusted.records.count_use(token, request.key)
        node = JoinedNode(name=request.name, key=request.key, token=token.id, time=now_s)
        if record.approve and not await trusted.records.is_accepted(request.name, request.key):
            await trusted.records.wait(node, [token.proof])
            return False
        await trusted.records.claim(node, [token.proof])
        if record.ephemeral_s:
            brief = BriefNode(name=request.name, key=request.key, ephemeral_s=record.ephemeral_s)
            await trusted.records.add_brief(brief, [token.proof])
        return True

    async def _assign_role(self, trusted: _Trusted, token: KnownToken, name: str) -> dict[str, int]:
        """Assign the role of a token. Returns the document's number, which is the lowest number that the node will accept."""
        assert token.proof is not None
        role = token.record.role
        stored = await trusted.facts.read(name)
        base = [token.proof] if stored.body is None else []
        _, new = await trusted.facts.change(name, lambda old: with_facts(old, {"role": role}), base=base)
        return {f"{FACTS}/{name}": new.number}

    async def _read_trusted(self) -> _Trusted:
        async with self._reading:
            now_ms = self._now_ms()
            if self._trusted is None or not 0 <= now_ms - self._trusted.read_ms < REFRESH_MS:
                self._trusted = await self._read(now_ms)
            return self._trusted

    async def _read(self, now_ms: int) -> _Trusted:
        newest = await find_newest(self._fleet)
        if newest.doubt:
            raise JoinError(
                f"the join service cannot rely on its signers list: {newest.doubt}", code="join.stale_signers"
            )
        stored = await published(self._fleet.signers) if self._fleet.signers is not None else None
        trust = self._fleet.trust
        text = stored or (trust.signers if trust is not None else None)
        if text is None:
            raise JoinError(
                "the fleet has no signers list; run `ccmctl signers publish`", code="join.no_signers"
            )
        # no node can have the name `all`
        floors = await numbers_for(self._fleet, ALL)
        return _Trusted(
            read_ms=now_ms,
            records=JoinRecords(self._fleet),
            facts=Documents(self._fleet, self._fleet.facts, FACTS),
            signers=newest.signers,
            text=text,
            floors=floors,
        )

    def _report(self, request: JoinRequest, subject: str, body: bytes, state: JoinState) -> None:
        is_waiting = state is JoinState.WAITING
        if is_waiting and self._reported.count(request.key, "join.waiting", self._now_ms()) is None:
            return
        self._on_outcome(outcome_of(subject, body, request, None, state))

    def _report_refusal(self, outcome: JoinOutcome) -> None:
        repeated = self._reported.count(outcome.subject, outcome.code, self._now_ms())
        if repeated is not None:
            self._on_outcome(msgspec.structs.replace(outcome, repeated=repeated))

    def _now_ms(self) -> int:
        return int(self._fleet.clock.now().timestamp() * 1000)


async def serve_joins(
    connection: Connection,
    service: JoinService,
    on_ready: Callable[[], None],
    beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """
    Answer requests until cancelled, the newest first. A node repeats a request after ANSWER_S, so older requests are dropped. If
    the oldest requests were answered first, every answer in a burst would be too late. Requests that do not fit into the queue
    are dropped as well.

    Args:
        connection: The connection.
        service: The service.
        on_ready: Called when the service can receive requests.
        beside: A task that runs at the same time.

    Raises:
        BusDeniedError: The operator may not receive requests.
    """
    queue: asyncio.LifoQueue[tuple[float, Message]] = asyncio.LifoQueue(QUEUE_LIMIT)
    now_s = asyncio.get_running_loop().time

    def take(message: Message) -> None:
        with contextlib.suppress(asyncio.QueueFull):
            queue.put_nowait((now_s(), message))

    async def work() -> None:
        while True:
            received_s, message = await queue.get()
            if now_s() - received_s > ANSWER_S:
                continue
            try:
                answer = await service.answer(message.subject, message.body, message.headers)
                if answer is not None and message.reply:
                    await connection.publish(message.reply, *answer)
            except CcmError as err:
                log.warning("a request to join was not answered", extra={"error": str(err)})

    subscriptions = await connection.subscribe([f"{JOIN_REQUEST}.*", f"{JOIN_RENEWAL}.>"], take)
    on_ready()
    try:
        async with asyncio.TaskGroup() as tasks:
            for number in range(WORKERS):
                tasks.create_task(work(), name=f"join:{number}")
            if beside is not None:
                tasks.create_task(beside(), name="join:beside")
    finally:
        await connection.unsubscribe(subscriptions)
