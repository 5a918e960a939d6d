"""
Which answers about registrations are believed.

A load balancer must not lose its pool because the broker restarted: entries expire while nobody can renew them, and a stream in
memory begins empty. So who was known before and is missing now is believed to be gone only when the broker has been there,
without a break, for as long as nodes need to register again. What tells of a break, and outlives the process that saw it:

    another server process    a server's id is new each time that it starts
    a lost connection         of this process; whoever lost it may not have been the only one
    a question in vain        asked by this process or, the record says, by an earlier one

Nothing is doubted where nobody is missing: a pool that was always empty, or that grew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from msgspec import Struct

from ccm_agent.bus.subjects import subject_matches
from ccm_agent.model.untrusted_json import decode_foreign

SERVERS_LIMIT = 32
"""Servers of one cluster that are remembered; those that were met first are forgotten first."""

KNOWN_LIMIT = 50_000
"""Entries that are remembered; a larger registry is believed as it comes."""


class LastSeen(Struct, kw_only=True):
    """
    What this host knows of one stream of one broker.

    Attributes:
        servers: When each server process was first met, seconds since 1970, by its id.
        steady_since: Since when the broker has been there without a break, as far as one knows; 0: there was none.
        known: Subjects of the entries that were there when an answer was last believed.
    """

    servers: dict[str, float] = {}
    steady_since: float = 0
    known: list[str] = []

    def met(self, server: str, now: float, connected_since: float | None = None) -> None:
        """
        The broker answers.

        Args:
            server: The id of its process.
            now: The time.
            connected_since: When the connection was made that took the place of a lost one; None: it is the first.
        """
        self.steady_since = min(self.steady_since, now)  # a clock that was put back
        if server not in self.servers:
            if self.servers:
                self.steady_since = now
            self.servers[server] = now
            for oldest in sorted(self.servers, key=self.servers.__getitem__)[:-SERVERS_LIMIT]:
                del self.servers[oldest]
        if connected_since is not None:
            self.steady_since = max(self.steady_since, min(connected_since, now))

    def missed(self, now: float) -> None:
        """The broker does not answer."""
        self.steady_since = now

    def missing(self, pattern: str, there: Collection[str], removed: Collection[str]) -> list[str]:
        """
        Who fits a pattern, was known before and is not there now.

        Args:
            pattern: What was asked for.
            there: Subjects of the entries that are there.
            removed: Subjects of those that an operator removed, which is no riddle.
        """
        gone = set(self.known).difference(there, removed)
        return sorted(subject for subject in gone if subject_matches(pattern, subject))

    def believe(self, pattern: str, there: Collection[str]) -> None:
        """From now on the entries that fit a pattern are these."""
        others = [subject for subject in self.known if not subject_matches(pattern, subject)]
        self.known = sorted({*others, *there})[:KNOWN_LIMIT]


def read_sightings(document: bytes | None) -> LastSeen:
    """Sightings as they were kept; none for a document that does not parse."""
    try:
        return decode_foreign(document or b"{}", LastSeen)
    except msgspec.MsgspecError:
        return LastSeen()


def write_sightings(sightings: LastSeen) -> bytes:
    """Sightings, to be kept; the same ones give the same bytes."""
    document: Mapping[str, object] = msgspec.to_builtins(sightings)
    return msgspec.json.encode(document, order="sorted")
