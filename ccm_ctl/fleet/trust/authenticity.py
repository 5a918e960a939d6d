"""
Decide which events of a node are genuine. This module does no I/O: its input is the events of one node in the order of the
stream.

An event is verified if a valid signature covers it: its own, or that of a later event whose links lead back to it (see
`ccm_agent.bus.chain`). The links are followed backward from each signed event. Events that are not reached wait, and are judged
at the end by the information about their places:

    verified      A signature covers it, made with a key that the root certified for this node.
    provisional   No signature covers it, but nothing contradicts it: the newest events of a run in progress, events that the
                  node forgot in a power failure, or events before a gap that the node admits.
    unsigned      It has no place in a chain, or its node does not sign: an older agent, or one without a certificate.
    gap           A later event is missing or was changed, or this event was changed.
    forged        Its signature is not from the node, its place is taken by a verified event, or its chain is unknown.

Only verified events prove anything. An attacker who controls the broker can remove and add events. The attacker cannot create a
verified event, or change the verdict on a verified event.

The number of waiting events and of chains per node is limited, because they can be sent without the node's key. Exceeding the
limits affects only the verdicts on that node.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from ccm_agent.bus.chain import ChainPosition, link_of, parse_place, read_anchor
from ccm_agent.bus.subjects import parse_event
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.outcome import SESSION_SUMMARY
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.records.verdicts import MISSING_LIMIT, MissingEvents, NodeReport, Verdict
from ccm_agent.model.wire import AGENT_LOST_EVENTS, PROTOCOL, AgentEvent
from ccm_ctl.fleet.events.places import Places
from ccm_ctl.fleet.trust.authors import Authors, SignatureStatus

WAITING_LIMIT = 20_000
"""The maximum number of events that wait for a signature in one chain, or in all chains without verified events together."""

CHAINS_LIMIT = 1000
"""The maximum number of chains stored per node, separately for verified and unverified ones."""

RECENT_LIMIT = 4096
"""The number of links to verified events that are stored per chain, to recognize repeated events."""

TAKEN = "its place is taken by another event"

_ADMITTED = re.compile(r"([1-9][0-9]{0,14})(?:-([1-9][0-9]{0,14}))?")


class _Waiting(Struct):
    """
    An event that no signature covers yet. `at` is its position among the node's events. `lacks_signature`: it has no signature,
    although agents with a key sign events of this kind.
    """

    at: int
    number: int
    previous: str
    problem: str = ""
    lacks_signature: bool = False


class _Chain:
    """The state of one chain."""

    def __init__(self, identity: str) -> None:
        self.id = identity
        self.verified = Places()
        self.waiting: dict[str, _Waiting] = {}
        self.wanted: dict[str, int] = {}
        self.recent: dict[str, tuple[int, int]] = {}
        self.admitted = Places()
        self.admitted_count = 0
        self.first_at = 0

    def remember(self, link: str, number: int, at: int) -> None:
        """Record that the event with a link is verified."""
        self.verified.add(number)
        self.recent[link] = number, at
        if len(self.recent) > RECENT_LIMIT:
            del self.recent[next(iter(self.recent))]


class NodeEvents:
    """
    Judges the events of one node.

    Args:
        node: Its name. All given events must be from this node.
        authors: The keys of the fleet. Certificates in the events are added.
        on_verdict: Called for each event except copies, with its position (from 0) and the reason for a bad verdict.
    """

    def __init__(
        self,
        node: str,
        authors: Authors,
        on_verdict: Callable[[int, Verdict, str], None] = lambda *_: None,
    ) -> None:
        self._authors = authors
        self._on_verdict = on_verdict
        self._report = NodeReport(node=node)
        self._proven: dict[str, _Chain] = {}
        self._others: dict[str, _Chain] = {}
        self._waiting = 0
        self._first_proven_at: float = math.inf

    def take(self, event: StoredEvent) -> None:
        """Process the next event of the node, in the order of the stream."""
        at = self._report.events
        self._report.events += 1
        self._authors.learn_from(event)
        if not event.chain:
            self._take_without_place(at, event)
            return
        try:
            place = parse_place(event.chain)
        except ProtocolError:
            self._judge(at, Verdict.FORGED, "its place in the chain is malformed")
            return
        link = link_of(event.subject, event.chain, event.body)
        chain = self._get_chain(place.chain, at)
        if link in chain.recent or link in chain.waiting:
            self._report.copies += 1  # as after a lost acknowledgment
            return
        self._take_placed(at, event, place, link, chain)

    def finish(self) -> NodeReport:
        """Judge the waiting events and return the report. No further events are accepted."""
        chains = sorted([*self._proven.values(), *self._others.values()], key=lambda one: one.first_at)
        earliest = next((one.id for one in chains if one.verified), "")
        for chain in chains:
            if chain.verified:
                self._finish_proven(chain, is_earliest=chain.id == earliest)
            else:
                self._finish_other(chain)
        newest = next((one for one in reversed(chains) if one.verified), None)
        if newest is not None:
            self._report.chain, self._report.verified_to = newest.id, newest.verified.highest
        return self._report

    def _take_without_place(self, at: int, event: StoredEvent) -> None:
        if event.signature:
            self._judge(at, Verdict.FORGED, "it is signed but has no place in the chain")
        elif self._proven and not self._authors.accepts_unsigned:
            # the spool of an older agent is sent before the first event of a newer agent
            self._judge(at, Verdict.FORGED, "it has no place in the chain, and the node signs its events")
        else:
            self._judge(at, Verdict.UNSIGNED)

    def _take_placed(
        self, at: int, event: StoredEvent, place: ChainPosition, link: str, chain: _Chain
    ) -> None:
        checked = self._authors.check(self._report.node, event)
        signature = checked.signature
        one = _Waiting(
            at=at,
            number=place.number,
            previous=place.previous,
            problem="" if self._is_allowed(signature) else checked.reason,
            lacks_signature=signature is SignatureStatus.MISSING and _is_signable(event),
        )
        is_wanted = chain.wanted.pop(link, None) is not None
        self._report.reordered += is_wanted
        if place.number in chain.verified and not is_wanted:
            if signature is SignatureStatus.VALID:
                chain.remember(link, place.number, at)
                self._report.doubled += 1
                self._judge(at, Verdict.GAP, "the node signed two events for one place")
            else:
                self._judge(at, Verdict.FORGED, TAKEN)
            return
        if signature is not SignatureStatus.VALID and not is_wanted:
            self._wait(chain, link, one)
            return
        if signature is SignatureStatus.VALID:
            self._admit(event)
        self._prove(chain, link, one)

    def _is_allowed(self, signature: SignatureStatus) -> bool:
        """
        Whether a signature with an uncertified key is accepted like a missing signature. It is not if the node has a certified
        key.
        """
        is_uncertified = signature is SignatureStatus.UNKNOWN_KEY and self._authors.accepts_unsigned
        return is_uncertified and not self._authors.certified(self._report.node)

    def _prove(self, chain: _Chain, link: str, one: _Waiting) -> None:
        """Mark an event as genuine, as well as all events to which its links lead back, including those in earlier chains."""
        self._verify(chain, link, one)
        while True:
            anchor = read_anchor(one.previous)
            if anchor is not None:
                chain, link, number = self._get_chain(anchor.chain, one.at), anchor.link, anchor.number
            else:
                link, number = one.previous, one.number - 1
            if number == 0 or number in chain.verified:
                self._report.reordered += chain.recent.get(link, (0, 0))[1] > one.at
                return
            before = chain.waiting.pop(link, None)
            if before is None:
                chain.wanted[link] = number
                _bound(chain.wanted)
                return
            self._waiting -= chain.id in self._others
            self._report.reordered += before.at > one.at
            one = before
            self._verify(chain, link, one)

    def _verify(self, chain: _Chain, link: str, one: _Waiting) -> None:
        if chain.id in self._others:
            self._proven[chain.id] = self._others.pop(chain.id)
            self._first_proven_at = min(self._first_proven_at, chain.first_at)
            self._waiting -= len(chain.waiting)
            if len(self._proven) > CHAINS_LIMIT:
                del self._proven[next(iter(self._proven))]
        chain.remember(link, one.number, one.at)
        self._judge(one.at, Verdict.VERIFIED)

    def _wait(self, chain: _Chain, link: str, one: _Waiting) -> None:
        chain.waiting[link] = one
        if chain.id in self._others:
            self._waiting += 1
            while self._waiting > WAITING_LIMIT or len(self._others) > CHAINS_LIMIT:
                self._drop_other()
        elif len(chain.waiting) > WAITING_LIMIT:
            oldest = chain.waiting.pop(next(iter(chain.waiting)))
            self._judge(oldest.at, Verdict.GAP, f"{WAITING_LIMIT} events after it are not signed either")

    def _drop_other(self) -> None:
        """Drop the oldest chain without verified events."""
        oldest = self._others.pop(next(iter(self._others)))
        self._waiting -= len(oldest.waiting)
        self._finish_other(oldest)

    def _get_chain(self, identity: str, at: int) -> _Chain:
        chain = self._proven.get(identity) or self._others.get(identity)
        if chain is None:
            chain = self._others[identity] = _Chain(identity)
            chain.first_at = at
        return chain

    def _admit(self, event: StoredEvent) -> None:
        """Process a signed event that lists the places that the node gave up."""
        if parse_event(event.subject).protocol != AGENT_LOST_EVENTS:
            return
        try:
            details = decode_foreign(event.body, AgentEvent).details
        except msgspec.MsgspecError:
            return
        places, count = details.get("places"), details.get("events")
        if not isinstance(places, dict) or not isinstance(count, int):
            return
        for identity, words in list(places.items())[:CHAINS_LIMIT]:
            chain = self._proven.get(identity) or self._others.get(identity)
            if chain is not None and isinstance(words, str):
                chain.admitted_count += count
                for found in _ADMITTED.finditer(words):
                    chain.admitted.add(int(found[1]), max(int(found[1]), int(found[2] or found[1])))

    def _finish_proven(self, chain: _Chain, *, is_earliest: bool) -> None:
        """Judge the missing places of a chain with verified events, and its events that no signature covers."""
        here = {one.number for one in chain.waiting.values() if not self._find_problem(one)}
        lowest = min(here | {chain.verified.lowest}) if is_earliest else 1
        named = set(chain.wanted.values())
        highest = max(chain.verified.highest, *named, 0)
        is_excused = self._find_missing(chain, here, lowest, highest)
        tail = _collect_tail(chain)
        for one in chain.waiting.values():
            if one.number in chain.verified:
                self._judge(one.at, Verdict.FORGED, one.problem or TAKEN)
            elif problem := self._find_problem(one):
                self._judge(one.at, Verdict.FORGED, problem)
            elif is_excused(one.number) or (one.number > highest and one.at in tail):
                self._judge(one.at, Verdict.PROVISIONAL)
            elif one.number > highest:
                self._judge(one.at, Verdict.GAP, "it does not follow the newest signed event")
            elif one.number in named or one.number + 1 in chain.verified:
                if len(self._report.changed) < MISSING_LIMIT:
                    self._report.changed.append(one.number)
                self._judge(one.at, Verdict.GAP, "it is not the event that the node wrote at this place")
            else:
                self._judge(one.at, Verdict.GAP, "an event after it is missing or was changed")

    def _find_problem(self, one: _Waiting) -> str:
        """Return why the event cannot be from the node, or ""."""
        signs = self._proven or self._authors.certified(self._report.node)
        if one.lacks_signature and signs and not self._authors.accepts_unsigned:
            return "it is not signed, and the node signs such events"
        return one.problem

    def _find_missing(
        self, chain: _Chain, here: set[int], lowest: int, highest: int
    ) -> Callable[[int], bool]:
        """
        Report missing places. Returns a function that reports whether the node admits the first missing place above a number.
        """
        present = chain.verified.copy()
        for number in here:
            present.add(number)
        firsts: list[int] = []
        admits: list[bool] = []
        for first, last in present.absent(lowest, highest):
            size = last - first + 1
            is_admitted = chain.admitted.covers(first, last) and size <= chain.admitted_count
            firsts.append(first)
            admits.append(is_admitted)
            if is_admitted:
                chain.admitted_count -= size
                self._report.given_up += size
            else:
                self._miss(chain.id, first, last)

        def is_excused(number: int) -> bool:
            above = bisect_right(firsts, number)
            return above < len(firsts) and admits[above] and number + 1 not in chain.verified

        return is_excused

    def _miss(self, chain: str, first: int, last: int) -> None:
        self._report.missing_count += last - first + 1
        if len(self._report.missing) < MISSING_LIMIT:
            self._report.missing.append(MissingEvents(chain=chain, first=first, last=last))

    def _finish_other(self, chain: _Chain) -> None:
        """Judge a chain without verified events."""
        if chain.wanted and self._first_proven_at < chain.first_at:
            self._miss(chain.id, 1, max(chain.wanted.values()))
        follows = self._following_anchor(chain)
        is_first = chain.first_at < self._first_proven_at
        for one in chain.waiting.values():
            if problem := self._find_problem(one):
                self._judge(one.at, Verdict.FORGED, problem)
            elif not self._proven:
                signs = self._authors.certified(self._report.node)
                self._judge(one.at, Verdict.PROVISIONAL if signs else Verdict.UNSIGNED)
            elif one.at in follows or is_first or one.number > max(chain.wanted.values(), default=one.number):
                self._judge(one.at, Verdict.PROVISIONAL)
            else:
                self._judge(one.at, Verdict.FORGED, "it is in a chain that the node never signed")

    def _following_anchor(self, chain: _Chain) -> set[int]:
        """Return the events that follow, link by link, the verified place to which the chain's first event refers."""
        for link, one in chain.waiting.items():
            anchor = read_anchor(one.previous)
            earlier = self._proven.get(anchor.chain) if anchor else None
            if anchor and earlier is not None and earlier.recent.get(anchor.link, (0, 0))[0] == anchor.number:
                return {one.at, *_followers(chain, link)}
        return set()

    def _judge(self, at: int, verdict: Verdict, reason: str = "") -> None:
        counts = self._report.counts
        counts[verdict] = counts.get(verdict, 0) + 1
        reasons = self._report.reasons
        if verdict is Verdict.FORGED and (reason in reasons or len(reasons) < MISSING_LIMIT):
            reasons[reason] = reasons.get(reason, 0) + 1
        self._on_verdict(at, verdict, reason)


def _collect_tail(chain: _Chain) -> set[int]:
    """Return the events that follow, link by link, the highest verified event."""
    highest = chain.verified.highest
    ends = [link for link, (number, _) in chain.recent.items() if number == highest]
    return set(_followers(chain, ends[0])) if ends else set()


def _followers(chain: _Chain, link: str) -> Iterator[int]:
    """
    Yield the positions of the waiting events that continue from a link. If two follow the same event, only the first is yielded.
    """
    following: dict[str, tuple[str, _Waiting]] = {}
    for own, one in chain.waiting.items():
        following.setdefault(one.previous, (own, one))
    while link in following:
        link, one = following[link]
        yield one.at


def _is_signable(event: StoredEvent) -> bool:
    """Whether agents with a key sign events of this kind."""
    protocol = parse_event(event.subject).protocol
    return protocol == SESSION_SUMMARY or protocol.startswith(f"{PROTOCOL}.agent.")


def _bound(links: dict[str, int]) -> None:
    if len(links) > RECENT_LIMIT:
        del links[next(iter(links))]
