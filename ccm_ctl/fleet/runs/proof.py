"""
Decide which messages of one run are proven. This module does no I/O: its input is received messages and stored events.

A node's part in a run is proven by its summary, which the node signs. The links of `Ccm-Chain` lead from the summary back through
the run's events (`before`), and only events on that path are valid. Until the summary arrives, events are provisional: they are
shown, but they do not affect the result. A final answer (refused, superseded, expired, or an end that the node remembers) is
valid if it is signed. Messages that report acceptance or progress need no proof, because their only effect is that the controller
waits for the node.

An attacker who controls the broker can withhold messages, which makes a node look lost, but cannot make a node look
successful or failed.

While the signers list allows unsigned messages, messages without a signature are also valid, except for a node with a
certificate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.chain import LINK_LENGTH, NONE, link_of, parse_place
from ccm_agent.bus.signatures.node_key import FINAL_ANSWERS
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.records.verdicts import PartReport, Verdict
from ccm_agent.model.wire import Answer
from ccm_ctl.fleet.events.messages import decode_agent_message
from ccm_ctl.fleet.runs.node_run import NOTHING
from ccm_ctl.fleet.trust.authors import SignatureStatus, find_certificates, read_authors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ccm_agent.model.ports import StoredEvent
    from ccm_ctl.fleet.events.messages import AgentMessage, Payload
    from ccm_ctl.fleet.nodes.nodes import TargetSet
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.trust.authors import Authors

CANDIDATES_LIMIT = 20_000
"""The maximum number of events kept for one node until its summary shows which are genuine."""

WAITING_LIMIT = 8
"""
The maximum number of messages of one node that wait for the certificate of their key. It also limits the recorded reasons.
"""

LOOKUPS_LIMIT = 5
"""The maximum number of certificate lookups for one node."""

ENDS_LIMIT = 1000
"""The maximum number of summaries and final answers of one node that are verified."""

ROW_BYTES = 64 * LINK_LENGTH
"""The maximum size of the row in which links are searched. A set of a few links needs several times the memory of a row."""

NOT_COVERED = "it is not among the events that the signed summary covers"
MALFORMED_PLACE = "its place in the chain is malformed"


class CountedMessage(Struct, frozen=True):
    """
    A valid message of a run.

    Attributes:
        node: The node.
        said: Its content.
        proves: Whether it is a verified summary. All earlier messages of this node are then withdrawn.
    """

    node: str
    said: Payload
    proves: bool = False


class _Candidate(Struct, frozen=True):
    """An event that the summary may cover: the link to the run's previous event, and the content."""

    before: str
    said: SessionStart | TransactionEvent


class _Part(Struct):
    """
    One node's part in the run. There are thousands of parts, so each field needs little memory while it is empty.

    Attributes:
        candidates: The events that the summary may cover, by link.
        covered: The link of the summary and those of the events that it covers, in a row of at most ROW_BYTES.
        covered_more: The further links.
        wanted: The link of the next event to be covered. NONE: all are.
        ends: Hashes of the summaries and final answers that did not prove the part.
    """

    candidates: dict[str, _Candidate] = NOTHING
    covered: bytearray = msgspec.field(default_factory=bytearray)
    covered_more: set[str] = NOTHING
    wanted: str = ""
    is_proven: bool = False
    is_unsigned: bool = False
    has_answer: bool = False
    ends: tuple[int, ...] = ()
    lookups: int = 0
    waiting: tuple[tuple[StoredEvent, AgentMessage, str], ...] = ()
    forged: dict[str, int] = NOTHING

    def flag(self, reason: str) -> None:
        """Record that a message is not from the node."""
        if reason in self.forged or len(self.forged) < WAITING_LIMIT:
            self.forged = {**self.forged, reason: self.forged.get(reason, 0) + 1}

    def covers(self, link: str) -> bool:
        """Whether the summary proves the message with this link."""
        return link in self.covered_more or link.encode() in self.covered

    def cover(self, link: str) -> None:
        """Record that the summary proves the message with this link."""
        if len(self.covered) < ROW_BYTES:
            self.covered += link.encode()
        else:
            self.covered_more = self.covered_more or set()
            self.covered_more.add(link)


class RunProof:
    """
    Decides which messages of a run are valid.

    Attributes:
        authors: The keys of the fleet.
    """

    def __init__(self, authors: Authors) -> None:
        """Start without any messages."""
        self.authors = authors
        self._parts: dict[str, _Part] = {}
        self._waiting: set[str] = set()

    @property
    def wanted_keys(self) -> set[tuple[str, str]]:
        """
        Return the nodes and keys whose certificates are needed before `retry`. The key is "" if any certificate is sufficient.
        """
        return {(node, key) for node in self._waiting for _, _, key in self._parts[node].waiting}

    def take(self, message: StoredEvent, heard: AgentMessage) -> list[CountedMessage]:
        """Process a message of a node and return the messages that are now valid, in order. Each message is returned once."""
        said, part = heard.said, self._parts.setdefault(heard.node, _Part())
        if isinstance(said, SessionStart | TransactionEvent):
            return self._take_event(part, message, heard, said)
        if isinstance(said, SessionSummary) or (isinstance(said, Answer) and said.state in FINAL_ANSWERS):
            return self._take_end(part, message, heard, is_last=False)
        return [CountedMessage(heard.node, said)]

    def retry(self) -> list[CountedMessage]:
        """Judge the waiting messages again. Messages without a certificate are now treated as forged."""
        found: list[CountedMessage] = []
        nodes, self._waiting = sorted(self._waiting), set()
        for part in map(self._parts.__getitem__, nodes):
            waiting, part.waiting = part.waiting, ()
            part.lookups += 1
            for message, heard, _ in waiting:
                found += self._take_end(part, message, heard, is_last=True)
        return found

    def of_message(self, message: StoredEvent, heard: AgentMessage) -> Verdict:
        """Return the verdict on one message, after all messages of the run have been processed."""
        part = self._parts.get(heard.node, _Part())
        if not part.is_proven:
            is_left_out = isinstance(heard.said, SessionSummary) and not part.is_unsigned
            return Verdict.FORGED if is_left_out else self.of_events(heard.node)
        if part.covers(link_of(message.subject, message.chain, message.body)):
            return Verdict.VERIFIED
        return Verdict.FORGED if part.wanted == NONE else Verdict.GAP

    def of_events(self, node: str) -> Verdict:
        """Return the verdict on the valid events of a node."""
        part = self._parts.get(node, _Part())
        if part.is_proven:
            return Verdict.VERIFIED
        return Verdict.UNSIGNED if part.is_unsigned else Verdict.PROVISIONAL

    def report(self, node: str, missing: int = 0) -> PartReport:
        """
        Return the verdict on one node's part.

        Args:
            node: Its name.
            missing: The number of the node's events that exist but were not found or are not proven.
        """
        part = self._parts.get(node, _Part())
        report = PartReport(node=node, reasons=dict(part.forged))
        leftover = len(part.candidates)
        if not part.is_proven:
            report.verdict = _unproven(part)
            return report
        if part.wanted == NONE:
            if leftover:
                report.reasons[NOT_COVERED] = leftover
            return report
        # the path ends at a missing or changed event, so earlier events cannot be judged
        report.missing = missing
        report.unproven = min(leftover, missing)
        if leftover > missing:
            report.reasons[NOT_COVERED] = leftover - missing
        report.verdict = Verdict.GAP
        return report

    # -- judging one message

    def _take_event(
        self, part: _Part, message: StoredEvent, heard: AgentMessage, said: SessionStart | TransactionEvent
    ) -> list[CountedMessage]:
        if part.is_unsigned:
            return [CountedMessage(heard.node, said)]
        try:
            place = parse_place(message.chain)
        except ProtocolError:
            if message.chain:
                part.flag(MALFORMED_PLACE)
            return [] if part.is_proven else [CountedMessage(heard.node, said)]
        link = link_of(message.subject, message.chain, message.body)
        if link in part.candidates or part.covers(link):
            return []
        count = len(part.candidates) + len(part.covered) // LINK_LENGTH + len(part.covered_more)
        if count >= CANDIDATES_LIMIT and link != part.wanted:
            part.flag(f"more than {CANDIDATES_LIMIT} events")
            return []
        part.candidates = part.candidates or {}
        part.candidates[link] = _Candidate(place.before, said)
        if part.is_proven:
            return self._follow_path(part, heard.node)
        return [CountedMessage(heard.node, said)]

    def _take_end(
        self, part: _Part, message: StoredEvent, heard: AgentMessage, *, is_last: bool
    ) -> list[CountedMessage]:
        """Process a summary or a final answer."""
        if not is_last:
            known = _hash(message)
            is_proof = part.is_proven and part.covers(link_of(message.subject, message.chain, message.body))
            if is_proof or known in part.ends:
                return []  # this message was received directly and also read from the stream
            if len(part.ends) >= ENDS_LIMIT:
                part.flag("more results than one node can have")
                return []
            part.ends = (*part.ends, known)
        checked = self.authors.check(heard.node, message)
        signature, reason = checked.signature, checked.reason or "it is not signed"
        if signature is SignatureStatus.VALID:
            return self._prove(part, message, heard)
        if part.is_unsigned:
            return [CountedMessage(heard.node, heard.said)]
        # An agent with credentials of the old one-account layout signs with an uncertified key.
        proves_nothing = signature in (SignatureStatus.MISSING, SignatureStatus.UNKNOWN_KEY)
        if proves_nothing and self.authors.accepts_unsigned:
            if is_last and not self.authors.certified(heard.node) and not part.is_proven:
                part.is_unsigned = True
                return [CountedMessage(heard.node, heard.said)]
            reason = checked.reason or "it is not signed, and the node has a certificate"
        is_open = signature in (SignatureStatus.UNKNOWN_KEY, SignatureStatus.EXPIRED) or (
            signature is SignatureStatus.MISSING and self.authors.accepts_unsigned
        )
        if is_open and not is_last and part.lookups < LOOKUPS_LIMIT and len(part.waiting) < WAITING_LIMIT:
            part.waiting = (*part.waiting, (message, heard, checked.key))
            self._waiting.add(heard.node)
            return []
        what = "summary" if isinstance(heard.said, SessionSummary) else "answer"
        part.flag(f"{what}: {reason}")
        return []

    def _prove(self, part: _Part, message: StoredEvent, heard: AgentMessage) -> list[CountedMessage]:
        if isinstance(heard.said, Answer):
            part.has_answer = True
            return [CountedMessage(heard.node, heard.said)]
        if part.is_proven or not message.chain:
            return []
        try:
            wanted = parse_place(message.chain).before
        except ProtocolError:  # the key of the node is stolen, or its agent is defective
            part.flag(MALFORMED_PLACE)
            return []
        part.is_proven, part.is_unsigned, part.wanted = True, False, wanted
        part.cover(link_of(message.subject, message.chain, message.body))
        part.ends = tuple(one for one in part.ends if one != _hash(message))
        return [CountedMessage(heard.node, heard.said, proves=True), *self._follow_path(part, heard.node)]

    @staticmethod
    def _follow_path(part: _Part, node: str) -> list[CountedMessage]:
        """Follow the links of the run through the events that have arrived."""
        found = []
        while part.wanted in part.candidates:
            candidate = part.candidates.pop(part.wanted)
            part.cover(part.wanted)
            part.wanted = candidate.before
            found.append(CountedMessage(node, candidate.said))
        part.candidates = part.candidates or NOTHING
        return found


async def read_proof(fleet: Fleet, resolved: TargetSet | None = None) -> RunProof | None:
    """Return an object that verifies the messages of one run, or None if these credentials cannot verify them."""
    authors = await read_authors(fleet, resolved)
    return RunProof(authors) if authors is not None else None


async def judge_run(fleet: Fleet, authors: Authors, messages: Iterable[StoredEvent]) -> dict[int, Verdict]:
    """Return the verdicts on the stored events of one run, by sequence."""
    proof, taken = RunProof(authors), []
    for message in messages:
        try:
            taken.append((message, decode_agent_message(message)))
        except ProtocolError:
            continue
        proof.take(*taken[-1])
    if wanted := proof.wanted_keys:
        await find_certificates(fleet, authors, wanted)
        proof.retry()
    return {message.sequence: proof.of_message(message, heard) for message, heard in taken}


def _unproven(part: _Part) -> Verdict:
    if part.is_unsigned:
        return Verdict.UNSIGNED
    if part.has_answer:
        return Verdict.VERIFIED
    return Verdict.FORGED if part.forged else Verdict.PROVISIONAL


def _hash(message: StoredEvent) -> int:
    return hash((message.subject, message.body, message.chain, message.signature))
