"""
The chain of one node's events in the spool (`bus.chain`).

Each event has a position in the chain. A position is never reused, because the broker may already have stored an event with it.
Therefore a chain continues after a restart only if its last event is certain to be on disk. The node begins another chain after a
power loss, or if events remained in memory because the disk was full. The first event of the new chain contains the last known
position of the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from msgspec import Struct

from ccm_agent.bus.chain import NONE, ChainPosition, anchor_text, link_of, new_chain_id, parse_place
from ccm_agent.storage.spool_segment import Entry, Found, Head, Kind, Position, Spooled

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""The file with an ID that changes with each boot of the host; see random(4)."""


class Chain:
    """
    The chain of one node.

    Attributes:
        last: The last used position, which the next event follows.
        tails: The chain link of the last event of each unfinished run.
        is_on_disk: Whether the last position is on disk. If so, the next process continues the chain after it.
        boot: The ID of the host's current boot (`boot_id`).
    """

    def __init__(self) -> None:
        """Start a chain without events."""
        self.last = Position(new_chain_id())
        self.tails: dict[str, str] = {}
        self.is_on_disk = False
        self.boot = ""

    def resume(self, last: Position, tails: dict[str, str]) -> None:
        """Continue the chain of an earlier process."""
        self.last, self.tails = last, tails
        self.is_on_disk = True

    def begin(self, after: Position | None, tails: dict[str, str]) -> None:
        """Begin another chain. Its first event contains the last known position of the old one."""
        anchor = NONE
        if after is not None:
            anchor = anchor_text(after.chain, after.number, after.link) if after.number else after.link
        self.last, self.tails = Position(new_chain_id(), 0, anchor), tails
        self.is_on_disk = False

    def take(self, event: Spooled) -> ChainPosition:
        """Assign the next position to an event."""
        last, run = self.last, event.run
        before = self.tails.get(run, NONE) if run else NONE
        place = ChainPosition(chain=last.chain, number=last.number + 1, previous=last.link, before=before)
        event.chain = place.header
        link = link_of(event.subject, event.chain, event.body)
        self.last = Position(last.chain, place.number, link)
        if event.kind is Kind.SUMMARY:
            self.tails.pop(run, None)
        elif run:
            self.tails[run] = link
        return place

    def retake(self, event: Spooled) -> ChainPosition:
        """
        Move the newest event to the beginning of another chain, because it could not be written to disk.

        If the process is killed, the event is lost although the broker may have stored it. In the old chain, the next process
        would then reuse its position.
        """
        self.begin(*self._before(event))
        return self.take(event)

    def head(self, seq: int) -> Head:
        """Return the current head. `seq` is the number of the last event in the spool."""
        return Head(seq=seq, last=self.last, tails=self.tails, boot=self.boot)

    def head_before(self, event: Spooled) -> Head:
        """Return the head as it was before the event's position was assigned."""
        last, tails = self._before(event)
        return Head(seq=event.seq - 1, last=last, tails=tails, boot=self.boot, is_followed=event.is_followed)

    def _before(self, event: Spooled) -> tuple[Position, dict[str, str]]:
        place = parse_place(event.chain)
        tails = {run: link for run, link in self.tails.items() if run != event.run}
        if event.run and place.before != NONE:
            tails[event.run] = place.before
        return Position(place.chain, place.number - 1, place.previous), tails


def boot_id(path: Path | None = None) -> str:
    """Return an ID that changes with each boot of the host; "" if the host has none. Blocking."""
    try:
        return (path or BOOT_ID).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class Resumed(Struct, frozen=True, kw_only=True):
    """
    The known state of the chain of earlier processes.

    Attributes:
        last: The last event of the chain on disk; None if there is no chain.
        is_safe: Whether it is certain that no later event was sent. If so, the chain continues after `last`.
        is_stopped: Whether this is certain because the earlier process stopped properly. After the current process has sent an
            event, a power loss must not restore this mark.
        tails: The chain link of the last event of each unfinished run.
    """

    last: Position | None
    is_safe: bool
    is_stopped: bool
    tails: dict[str, str]


def judge_files(found: Found, runs: Collection[str], load: Callable[[Entry], Spooled], boot: str) -> Resumed:
    """
    Determine from the files whether and how the chain continues. Blocking.

    Args:
        found: The content of the files.
        runs: The unfinished runs.
        load: Reads an event from disk.
        boot: The ID of the host's current boot. In a reboot, events that were not flushed may be lost.
    """
    head, newest = found.head, found.newest
    tails = dict(head.tails) if head else {}
    for run in runs:
        last = found.find_newest(run)
        if last is not None and (head is None or last.seq > head.seq):
            tails[run] = _link(load(last))
    if newest is not None:
        event = load(newest)
        position, is_safe = Position(newest.chain, newest.place, _link(event)), not event.is_followed
    elif head is not None:
        position, is_safe = head.last, not head.is_followed
    else:
        return Resumed(last=None, is_safe=False, is_stopped=False, tails=tails)
    is_same_boot = head is not None and head.boot == boot
    is_stopped = head is not None and head.is_stopped and newest is None
    is_safe = is_safe and found.is_whole and (is_same_boot or is_stopped)
    return Resumed(last=position, is_safe=is_safe, is_stopped=is_stopped, tails=tails)


def _link(event: Spooled) -> str:
    return link_of(event.subject, event.chain, event.body)
