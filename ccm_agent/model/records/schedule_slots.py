"""
The times of a schedule that the messages of a broker are for.

The broker keeps time, and may not choose it. The signature of a schedule says when it is due. What is due is taken when its time
fits that, and only once for each of those times.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from ccm_agent.model.formats.cron import Cron
from ccm_agent.model.formats.durations import parse_duration

LATE_S = 3600.0
"""A broker that was down when a schedule was due sends it when it is back; it may be this late."""

EARLY_S = 1.0
"""The broker's time of a due message may be this much before the second that the schedule names."""

_WINDOWS_S = (EARLY_S + 1, 60.0, LATE_S)
"""How far back the schedule's time is looked for, the nearest first: a cron may name each second of an hour."""

_EVERY_SHARE = 0.9
"""Of the interval of `@every`: the least time between two that are taken. The broker's timer drifts."""


def schedule_slot(when: str, zone: str, due: datetime) -> datetime:
    """
    The schedule's own time that a due message is for. Blocking: time zones are files.

    Args:
        when, zone: The times of the schedule, as the broker words them.
        due: When the broker stored the message.

    Raises:
        CcmError, ValueError, LookupError, OSError, OverflowError, TypeError: There is none, or the times cannot be read.
    """
    word, _, rest = when.partition(" ")
    if word == "@every":
        return due
    latest = due + timedelta(seconds=EARLY_S)
    if word == "@at":
        moment = datetime.fromisoformat(rest)
        if not _before(latest, LATE_S) <= moment <= latest:
            raise ValueError("another time was signed")
        return moment
    cron = Cron(when)
    for back_s in _WINDOWS_S:
        found = cron.next_after(_before(latest, back_s), ZoneInfo(zone or "UTC"))
        if found is not None and found <= latest:
            return found
    raise ValueError("another time was signed")


def _before(moment: datetime, seconds: float) -> datetime:
    return moment - timedelta(seconds=seconds)


def least_pause_s(when: str) -> float:
    """The least time between two that are taken; with cron and `@at` each time counts once."""
    word, _, rest = when.partition(" ")
    return parse_duration(rest) * _EVERY_SHARE if word == "@every" else 0.001
