"""
How the node's chain continues after a restart, from what the spool's files say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct

from ccm_agent.agent.events.spool_segment import Entry, Found, Position, Spooled
from ccm_agent.bus.chain import link_of


class Resumed(Struct, frozen=True, kw_only=True):
    """
    What is known of the chain of earlier processes.

    Attributes:
        last: Its last event, as far as the disk holds it; None when there is no chain.
        is_safe: No later event can have been sent, so the chain goes on after it.
        is_stopped: That is so because the earlier process stopped in order. Once this process has sent an event, a power cut must
            not bring that mark back.
        tails: By run, the link of the last event of runs that have not ended.
    """

    last: Position | None
    is_safe: bool
    is_stopped: bool
    tails: dict[str, str]


def resume(found: Found, runs: Collection[str], load: Callable[[Entry], Spooled], boot: str) -> Resumed:
    """
    Judge the files. Blocking.

    Args:
        found: What they say.
        runs: Runs that have not ended.
        load: Reads an event back.
        boot: This start of the host. After another one, the page cache is gone, and with it what was not flushed.
    """
    head, newest = found.head, found.newest
    tails = dict(head.tails) if head else {}
    for run in runs:
        last = found.newest_of(run)
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
