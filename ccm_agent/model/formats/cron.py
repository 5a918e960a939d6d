"""
Compute when a schedule is due next. Only the broker triggers schedules. Operators see this time, and nodes
check signed times against it.

The broker's cron expressions have six fields, and the first field is the second.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from ccm_agent.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS = (
    ("second", 0, 59, ()),
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 6, _DAYS),
)
_LOOK_AHEAD_DAYS = 366 * 5
"""The search limit. Except around some turns of a century, it includes a 29 February."""


_NICKNAMES = {
    "@hourly": "0 0 * * * *",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@weekly": "0 0 0 * * 0",
    "@monthly": "0 0 0 1 * *",
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
}
_CRONTAB_WEEKDAY = ("weekday", 0, 7, _DAYS)
"""In a crontab, Sunday is 0 or 7. The broker accepts only 0."""


def six_fields(text: str) -> str:
    """
    Convert a cron expression to the broker's six fields.

    Args:
        text: Six fields, the five of crontab(5), or a nickname such as `@daily`.

    Raises:
        UsageError: The text has another form, or a field is invalid.
    """
    words = _NICKNAMES.get(text.strip().lower(), text).split()
    if len(words) == len(_FIELDS) - 1:
        weekday = re.sub(r"-sun\b", "-7", words[-1], flags=re.IGNORECASE)
        words = ["0", *words[:-1], _without_seven(text, weekday)]
    if len(words) != len(_FIELDS):
        raise UsageError(
            f"--cron {text!r}: expected five fields (minute hour day month weekday), six (second first), or "
            f"one of {', '.join(_NICKNAMES)}"
        )
    for word, field in zip(words, _FIELDS, strict=True):
        _field(text, word, *field)
    return " ".join(words)


def shown_fields(fields: str) -> str:
    """Format six fields as in a crontab: without the second if it is 0."""
    return fields.removeprefix("0 ") if len(fields.split()) == len(_FIELDS) else fields


def _without_seven(text: str, word: str) -> str:
    if "7" not in word:
        return word
    days = {day % 7 for day in _field(text, word, *_CRONTAB_WEEKDAY)}
    return ",".join(str(day) for day in sorted(days))


class Cron:
    """Six fields: second, minute, hour, day, month, weekday (0 is Sunday)."""

    def __init__(self, text: str) -> None:
        words = text.split()
        if len(words) != len(_FIELDS):
            raise UsageError(
                f"--cron {text!r}: expected six fields (second minute hour day month weekday), found {len(words)}"
            )
        self._sets = [_field(text, word, *field) for word, field in zip(words, _FIELDS, strict=True)]
        self._any_day, self._any_weekday = words[3] in "*?", words[5] in "*?"

    def next_after(self, moment: datetime, zone: ZoneInfo) -> datetime | None:
        """Return the first due time after a given time, in UTC; None if there is none within five years."""
        local = moment.astimezone(zone)
        for ahead in range(_LOOK_AHEAD_DAYS):
            day = local.date() + timedelta(days=ahead)
            if self._is_day(day) and (found := self._on(day, moment, zone)):
                return found
        return None

    def _on(self, day: date, after: datetime, zone: ZoneInfo) -> datetime | None:
        seconds, minutes, hours = (sorted(each) for each in self._sets[:3])
        for hour in hours:
            if datetime(day.year, day.month, day.day, hour, 59, 59, tzinfo=zone).astimezone(UTC) <= after:
                continue
            for minute in minutes:
                for second in seconds:
                    local = datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=zone)
                    moment = local.astimezone(UTC)
                    # Local times that the clocks skip in spring do not exist.
                    is_real = moment.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None)
                    if moment > after and is_real:
                        return moment
        return None

    def _is_day(self, day: date) -> bool:
        days, months, weekdays = self._sets[3:]
        if day.month not in months:
            return False
        on_day, on_weekday = day.day in days, (day.weekday() + 1) % 7 in weekdays
        # as in every cron: if both fields are restricted, one match is sufficient
        return (on_day and on_weekday) if self._any_day or self._any_weekday else (on_day or on_weekday)


def _field(text: str, word: str, name: str, least: int, most: int, names: Sequence[str]) -> set[int]:
    found: set[int] = set()
    for part in word.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        try:
            by = int(step) if slash else 1
            if span in ("*", "?"):
                low, high = least, most
            else:
                low = _number(first, names, least)
                high = _number(last, names, least) if dash else most if slash else low
        except ValueError:
            raise UsageError(f"--cron {text!r}: {part!r} is not a valid {name}") from None
        if not least <= low <= high <= most or by < 1:
            raise UsageError(
                f"--cron {text!r}: {part!r} is not a valid {name}, which goes from {least} to {most}"
            )
        found |= set(range(low, high + 1, by))
    return found


def _number(word: str, names: Sequence[str], least: int) -> int:
    return names.index(word.upper()) + least if word.upper() in names else int(word)
