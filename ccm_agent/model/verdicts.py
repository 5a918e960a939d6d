"""What readers say about events, and about the nodes that they are from; `ccm_ctl/fleet/authenticity.py` says when."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

MISSING_LIMIT = 100
"""Ranges of missing places that are listed; the count has all of them."""


class Verdict(StrEnum):
    """What can be said about an event; see the module."""

    VERIFIED = "verified"
    PROVISIONAL = "provisional"
    UNSIGNED = "unsigned"
    GAP = "gap"
    FORGED = "forged"


BAD = (Verdict.GAP, Verdict.FORGED)
"""Someone changed what the stream holds, or wrote into it."""


class MissingEvents(Struct, frozen=True, kw_only=True):
    """A range of places without events, all inclusive."""

    chain: str
    first: int
    last: int


class NodeReport(Struct, kw_only=True):
    """
    What was found about one node.

    Attributes:
        node: Its name.
        events: How many were read.
        counts: By verdict; verdicts without events are left out.
        verified_to: The highest verified place of the newest verified chain; 0 when nothing is verified.
        chain: The id of that chain.
        missing: Ranges of places without events that the node does not admit; at most MISSING_LIMIT of them.
        missing_count: How many places these are in all.
        given_up: Places without events that the node admits: its spool was full.
        changed: Places whose event is not the one that the node wrote.
        copies: Events that the stream holds a second time; they are in no count.
        reordered: Verified events that the stream holds after later ones.
        doubled: Events that the node signed for a place that it had given to another event: its state was restored from a copy,
            or another host uses its key.
        reasons: Why events are forged, each once, with a count.
    """

    node: str
    events: int = 0
    counts: dict[Verdict, int] = {}
    verified_to: int = 0
    chain: str = ""
    missing: list[MissingEvents] = []
    missing_count: int = 0
    given_up: int = 0
    changed: list[int] = []
    copies: int = 0
    reordered: int = 0
    doubled: int = 0
    reasons: dict[str, int] = {}

    @property
    def verdict(self) -> Verdict:
        """The worst that was found; VERIFIED when at least one event is verified and all others are provisional."""
        if self.counts.get(Verdict.FORGED):
            return Verdict.FORGED
        if self.is_bad:
            return Verdict.GAP
        if self.counts.get(Verdict.VERIFIED):
            return Verdict.VERIFIED
        return Verdict.UNSIGNED if self.counts.get(Verdict.UNSIGNED) else Verdict.PROVISIONAL

    @property
    def is_bad(self) -> bool:
        """Events are missing, changed, out of order or made up."""
        return bool(self.missing_count or self.reordered or any(self.counts.get(one) for one in BAD))


class PartReport(Struct, kw_only=True):
    """
    What was found about one node's part in a run.

    Attributes:
        node: Its name.
        verdict: VERIFIED: a signed summary or answer ended it. GAP: likewise, and events that the summary covers are missing or
            were changed. UNSIGNED: it counts without a signature, which the signers list allows for now. PROVISIONAL: nothing
            proves an end yet. FORGED: what claimed to be the end is not the node's.
        missing: Events that the summary covers and that are missing, were changed, or cannot be proven for that reason.
        unproven: How many of these are there, and only not proven.
        reasons: Why messages were left out, each once, with a count.
    """

    node: str
    verdict: Verdict = Verdict.VERIFIED
    missing: int = 0
    unproven: int = 0
    reasons: dict[str, int] = {}

    @property
    def forged(self) -> int:
        """Messages that were left out."""
        return sum(self.reasons.values())
