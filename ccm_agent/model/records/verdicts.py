"""Verdicts about the authenticity of events and nodes. The rules are in `ccm_ctl/fleet/trust/authenticity.py`."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

MISSING_LIMIT = 100
"""Limit of the listed ranges of missing positions. The total includes all ranges."""


class Verdict(StrEnum):
    """The verdict about an event."""

    VERIFIED = "verified"
    PROVISIONAL = "provisional"
    UNSIGNED = "unsigned"
    GAP = "gap"
    FORGED = "forged"


BAD = (Verdict.GAP, Verdict.FORGED)
"""Verdicts that indicate that an attacker changed the content of the stream."""


class MissingEvents(Struct, frozen=True, kw_only=True):
    """A range of positions without events, both ends inclusive."""

    chain: str
    first: int
    last: int


class NodeReport(Struct, kw_only=True):
    """
    The findings about one node.

    Attributes:
        node: Its name.
        events: Number of events that were read.
        counts: Number of events by verdict; verdicts without events are left out.
        verified_to: The highest verified position of the newest verified chain; 0 if nothing is verified.
        chain: The id of that chain.
        missing: Ranges of positions without events that the node has not reported; at most MISSING_LIMIT of them.
        missing_count: The total number of these positions.
        given_up: Positions without events that the node has reported, because its spool was full.
        changed: Positions with an event that differs from the event that the node wrote.
        copies: Duplicate events in the stream. They are excluded from the other numbers.
        reordered: Verified events that follow later events of the chain in the stream.
        doubled: Events that the node signed for a position that already had another event: its state was
            restored from a copy, or another host uses its key.
        reasons: The distinct reasons for forged events, each with a count.
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
        """Return the worst verdict; VERIFIED if at least one event is verified and all others are provisional."""
        if self.counts.get(Verdict.FORGED):
            return Verdict.FORGED
        if self.is_bad:
            return Verdict.GAP
        if self.counts.get(Verdict.VERIFIED):
            return Verdict.VERIFIED
        return Verdict.UNSIGNED if self.counts.get(Verdict.UNSIGNED) else Verdict.PROVISIONAL

    @property
    def is_bad(self) -> bool:
        """Whether events are missing, changed, out of order or forged."""
        return bool(self.missing_count or self.reordered or any(self.counts.get(one) for one in BAD))


class PartReport(Struct, kw_only=True):
    """
    The findings about one node's part of a run.

    Attributes:
        node: Its name.
        verdict: VERIFIED: a signed summary or answer proves the end. GAP: the end is proven, but events that
            the summary covers are missing or were changed. UNSIGNED: it is accepted without a signature, which
            the signers list currently allows. PROVISIONAL: no end is proven yet. FORGED: the supposed end is
            not from the node.
        missing: The number of events that the summary covers but that are missing, changed or cannot be proven for that reason.
        unproven: The number of these events that exist but cannot be proven.
        reasons: The distinct reasons for ignored messages, each with a count.
    """

    node: str
    verdict: Verdict = Verdict.VERIFIED
    missing: int = 0
    unproven: int = 0
    reasons: dict[str, int] = {}

    @property
    def forged(self) -> int:
        """Return the number of ignored messages."""
        return sum(self.reasons.values())
