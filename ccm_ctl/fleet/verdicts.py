"""What can be said about events and about the nodes that they are from; `fleet/authenticity.py` says when."""

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


class Missing(Struct, frozen=True, kw_only=True):
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
        reasons: Why events are gaps or forged, each once, with a count.
    """

    node: str
    events: int = 0
    counts: dict[Verdict, int] = {}
    verified_to: int = 0
    chain: str = ""
    missing: list[Missing] = []
    missing_count: int = 0
    given_up: int = 0
    changed: list[int] = []
    copies: int = 0
    reordered: int = 0
    reasons: dict[str, int] = {}

    @property
    def is_bad(self) -> bool:
        """Events are missing, changed, out of order or made up."""
        return bool(self.missing_count or self.reordered or any(self.counts.get(one) for one in BAD))
