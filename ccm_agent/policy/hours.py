"""The hours in which a rule matches: `Mon-Fri 08:00-18:00`, `Sat,Sun`, `22:00-06:00`."""

from __future__ import annotations

import re
from datetime import datetime

from msgspec import Struct

from ccm_agent.model.errors import PropertyError
from ccm_agent.model.suggestions import did_you_mean

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""The names of days, in the order of `datetime.weekday`."""

_DAY_MINUTES = 24 * 60
_SPAN = re.compile(r"(\d\d):(\d\d)\s*-\s*(\d\d):(\d\d)")


class Hours(Struct, frozen=True):
    """
    A span of the day on some days of the week.

    Attributes:
        days: Weekdays on which the span begins; 0 is Monday.
        start, end: Minutes since midnight. An end at or before the start is on the next day.
    """

    days: frozenset[int]
    start: int = 0
    end: int = _DAY_MINUTES

    def contains(self, local: datetime) -> bool:
        """Whether a time in the policy's time zone is within the span."""
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self.start < self.end:
            return day in self.days and self.start <= minute < self.end
        began_yesterday = minute < self.end and (day - 1) % 7 in self.days
        return began_yesterday or (minute >= self.start and day in self.days)


def parse_hours(text: str) -> Hours:
    """
    Parse the hours of a rule.

    Raises:
        PropertyError: The text does not have the form `Mon-Fri 08:00-18:00`; days or times may be omitted.
    """
    words = text.split()
    if not words or len(words) > 2:
        raise PropertyError(f"`{text}` are not valid hours; write them like `Mon-Fri 08:00-18:00`")
    if _SPAN.fullmatch(words[0]):
        if len(words) == 2:
            raise PropertyError(f"`{text}`: the days come before the times, as in `Mon-Fri 08:00-18:00`")
        return Hours(frozenset(range(7)), *_span(words[0]))
    days = frozenset(day for part in words[0].split(",") for day in _days(part, text))
    return Hours(days, *(_span(words[1]) if len(words) == 2 else ()))


def _span(text: str) -> tuple[int, int]:
    found = _SPAN.fullmatch(text)
    if found is None:
        raise PropertyError(f"`{text}` is not a valid time range; write it like `08:00-18:00`")
    first_hour, first_minute, last_hour, last_minute = map(int, found.groups())
    start, end = first_hour * 60 + first_minute, last_hour * 60 + last_minute
    if max(first_minute, last_minute) > 59 or start >= _DAY_MINUTES or end > _DAY_MINUTES:
        raise PropertyError(f"`{text}` is not a valid time range: hours must be from 00:00 to 24:00")
    if start == end:
        raise PropertyError(f"`{text}` is empty: write 00:00-24:00 for the whole day")
    return start, end


def _days(part: str, text: str) -> list[int]:
    first, dash, last = part.partition("-")
    begin = _day(first, text)
    end = _day(last, text) if dash else begin
    return [day % 7 for day in range(begin, (end if end >= begin else end + 7) + 1)]


def _day(word: str, text: str) -> int:
    if word.lower() not in DAYS:
        known = [day.title() for day in DAYS]
        raise PropertyError(
            f"`{text}`: unknown day `{word}`{did_you_mean(word, known)}; days are {', '.join(known)}"
        )
    return DAYS.index(word.lower())
