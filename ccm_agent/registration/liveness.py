"""
Decide which answers about registrations to accept.

A load balancer must not lose its pool because the broker restarted: entries expire while nodes cannot renew them, and a stream
in memory starts empty. So a known entry that is missing is treated as removed only after the broker has been reachable without
interruption for the time that nodes need to register again. The record keeps these signs of an interruption across processes:

    another server process    a server's id is new each time that it starts
    a lost connection         of this process; other nodes may have lost theirs, too
    an unanswered request     by this process or, according to the record, by an earlier one

An answer that contains all known entries is accepted immediately. In that case the pool was always empty, or has grown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from msgspec import Struct

from ccm_agent.bus.subjects import subject_matches
from ccm_agent.model.formats.untrusted_json import decode_foreign

SERVERS_LIMIT = 32
"""The maximum number of servers of one cluster in the record; the oldest are dropped first."""

KNOWN_LIMIT = 50_000
"""The maximum number of entries in the record; the answers of a larger registry are accepted without this check."""


class LastSeen(Struct, kw_only=True):
    """
    The observations of this host about one stream of one broker.

    Attributes:
        servers: When each server process was first seen, in seconds since 1970, by server ID.
        steady_since: The time since which the broker has been reachable without a known interruption; 0: there was no
            interruption.
        known: Subjects of the entries in the last accepted answer.
    """

    servers: dict[str, float] = {}
    steady_since: float = 0
    known: list[str] = []

    def met(self, server: str, now: float, connected_since: float | None = None) -> None:
        """
        Record that the broker has answered.

        Args:
            server: The id of the server's process.
            now: The current time.
            connected_since: When the connection was restored; None for the first connection.
        """
        self.steady_since = min(self.steady_since, now)  # the clock was set back
        if server not in self.servers:
            if self.servers:
                self.steady_since = now
            self.servers[server] = now
            for oldest in sorted(self.servers, key=self.servers.__getitem__)[:-SERVERS_LIMIT]:
                del self.servers[oldest]
        if connected_since is not None:
            self.steady_since = max(self.steady_since, min(connected_since, now))

    def missed(self, now: float) -> None:
        """Record that the broker did not answer."""
        self.steady_since = now

    def missing(self, pattern: str, there: Collection[str], removed: Collection[str]) -> list[str]:
        """
        Return the known entries that match a pattern and are missing now.

        Args:
            pattern: The requested pattern.
            there: Subjects of the entries in the answer.
            removed: Subjects of entries that an operator removed; these are not missing.
        """
        gone = set(self.known).difference(there, removed)
        return sorted(subject for subject in gone if subject_matches(pattern, subject))

    def believe(self, pattern: str, there: Collection[str]) -> None:
        """Accept an answer. Its entries replace the known entries that match the pattern."""
        others = [subject for subject in self.known if not subject_matches(pattern, subject)]
        self.known = sorted({*others, *there})[:KNOWN_LIMIT]


def read_sightings(document: bytes | None) -> LastSeen:
    """Decode the last observations; an empty record if the document is invalid."""
    try:
        return decode_foreign(document or b"{}", LastSeen)
    except msgspec.MsgspecError:
        return LastSeen()


def write_sightings(sightings: LastSeen) -> bytes:
    """Encode the last observations; equal records produce equal bytes."""
    document: Mapping[str, object] = msgspec.to_builtins(sightings)
    return msgspec.json.encode(document, order="sorted")
