"""How far the clock of a node is off, and when that is a problem."""

from __future__ import annotations

from datetime import datetime

from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.wire import NodeRecord, Presence

CLOCK_WARNING_S, CLOCK_PROBLEM_S = 60, 300
"""A clock that is off by more is reported; nodes accept signed requests from clocks that are ahead by up to five minutes."""


def clock_off_s(presence: Presence, created: datetime) -> float | None:
    """By how much a node's clock was ahead of the broker's, which stored this sign of life; None if it is not known."""
    return (presence.time - created).total_seconds() if presence.time is not None else None


def find_wrong_clock(record: NodeRecord | None, off_s: float, *, is_mistimed: bool) -> str:
    """
    Why the clock of a node is wrong; "" if nothing shows that.

    Args:
        record: Its record. Without signatures nothing depends on the clock.
        off_s: By how much the clock is ahead of the broker's.
        is_mistimed: The node signed its presence for another time than now.
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
