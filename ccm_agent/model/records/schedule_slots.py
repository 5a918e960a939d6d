"""
Match the broker's due messages to the times of a schedule.

The broker triggers schedules but must not choose their times. The signature of a schedule covers its times. A
due message is accepted if its time matches one of these times, and only once for each time.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from ccm_agent.model.formats.cron import Cron
from ccm_agent.model.formats.durations import parse_duration

LATE_S = 3600.0
"""
The maximum delay of a due message. A broker that was down at the due time sends the message after its restart.
"""

EARLY_S = 1.0
"""The maximum time by which a due message may precede the second that the schedule specifies."""

_WINDOWS_S = (EARLY_S + 1, 60.0, LATE_S)
"""
Time spans before the due message in which the schedule's time is searched, shortest first. A cron may
include every second of an hour.
"""

_EVERY_SHARE = 0.9
"""
The minimum pause between two accepted messages, as a share of the interval of `@every`. The broker's timer
drifts.
"""


def schedule_slot(when: str, zone: str, due: datetime) -> datetime:
    """
    Return the schedule's own time to which a due message belongs. Blocking: time zones are files.

    Args:
        when, zone: The times of the schedule, in the broker's format.
        due: When the broker stored the message.

    Raises:
        CcmError, ValueError, LookupError, OSError, OverflowError, TypeError: No time matches, or the times cannot be parsed.
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
    """
    Return the minimum pause between two accepted messages. With cron and `@at` each time is accepted once.
    """
    word, _, rest = when.partition(" ")
    return parse_duration(rest) * _EVERY_SHARE if word == "@every" else 0.001
