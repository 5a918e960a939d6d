"""The clock difference of a node, and the limits for it."""

from __future__ import annotations

from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.wire import NodeRecord, Presence

HEARTBEAT_TTL_S = 180
"""The lifetime of heartbeats from agents that do not report it. It is three times the usual interval of one minute."""

CLOCK_WARNING_S, CLOCK_PROBLEM_S = 60, 300
"""
Clock differences, in seconds, from which a warning or a problem is reported. Nodes accept signed requests from clocks that are up
to five minutes ahead.
"""


def clock_off_s(presence: Presence, entry: KeyValueEntry) -> float | None:
    """
    Return the seconds by which a node's clock was ahead of the broker's when the broker stored this heartbeat. None: unknown.

    A heartbeat that was copied from a site may be as old as its lifetime, for example if the line was cut. So a clock that seems
    to be behind by less than its lifetime is not reported here. The broker of the site reports it.
    """
    if presence.time is None:
        return None
    off_s = (presence.time - entry.created).total_seconds()
    is_delay = entry.copied_from and -(presence.ttl_s or HEARTBEAT_TTL_S) <= off_s < 0
    return None if is_delay else off_s


def find_wrong_clock(record: NodeRecord | None, off_s: float, *, is_mistimed: bool) -> str:
    """
    Return why the clock of a node is wrong, or "" if it seems to be right.

    Args:
        record: Its record. Without signatures, the clock does not matter.
        off_s: The seconds by which the clock is ahead of the broker's.
        is_mistimed: Whether the node's presence has a valid signature for a time other than now.
    """
    if record is not None and record.wrong_clock:
        return record.wrong_clock
    is_signed = record is not None and record.signatures
    if not is_mistimed and not (abs(off_s) >= CLOCK_PROBLEM_S and is_signed):
        return ""
    if abs(off_s) < CLOCK_WARNING_S:
        return "the clock differs from the clock of this machine"
    word = "ahead of" if off_s > 0 else "behind"
    return f"the clock is {format_duration(round(abs(off_s), -1))} {word} the broker's"
