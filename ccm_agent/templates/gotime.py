"""
Go's times, durations, months, weekdays and time zones as values of expressions and templates.

A time is stored as seconds and nanoseconds, because Go has years that Python's datetime does not support (an
hour without a date is parsed as a time in year 0). Time zones come from the system's database.

Times are formatted by Go's layouts, which are written as the reference time Mon Jan 2 15:04:05 MST 2006.

Source: the documentation of Go's package time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC as DATETIME_UTC
from datetime import datetime
from typing import TYPE_CHECKING

from ccm_agent.templates.values import INT_MAX, INT_MIN, GoValue, wrap_int

if TYPE_CHECKING:
    import zoneinfo

SECOND = 1_000_000_000
_DAY_S = 86_400
# seconds from year 1, Go's zero time, to 1970
_ZERO_S = -62_135_596_800
# the range of Python's datetime, less one day for any offset
_FIRST_S = _ZERO_S + 2 * _DAY_S
_LAST_S = 253_402_300_799 - 2 * _DAY_S

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

PIECE = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|002|0[1-6]|15|1|2006|2|__2|_2(?!006)|3|4|5|PM|pm"
    r"|[-Z]07(?::00:00|0000|:00|00)?|[.,](?:0+|9+)(?![0-9])"
)


_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_DURATION_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")


class GoDuration(GoValue):
    """A span of time in nanoseconds."""

    __slots__ = ("ns",)
    go_type = "time.Duration"

    def __init__(self, ns: int) -> None:
        self.ns = wrap_int(ns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GoDuration) and self.ns == other.ns

    def __lt__(self, other: object) -> bool:
        return self.ns < other.ns if isinstance(other, GoDuration) else NotImplemented

    def __hash__(self) -> int:
        return hash((GoDuration, self.ns))

    def __repr__(self) -> str:
        return f"Duration({self.go_text()})"

    def go_text(self) -> str:
        """Format the span as `1h30m0s`, `1.5s`, `250ms`."""
        rest = abs(self.ns)
        sign = "-" if self.ns < 0 else ""
        if rest == 0:
            return "0s"
        if rest < SECOND:
            for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
                if rest < size * 1000:
                    return f"{sign}{_fraction(rest, size)}{unit}"
        hours, rest = divmod(rest, 3600 * SECOND)
        minutes, rest = divmod(rest, 60 * SECOND)
        text = f"{_fraction(rest, SECOND)}s"
        if hours or minutes:
            text = f"{minutes}m{text}"
        return f"{sign}{hours}h{text}" if hours else sign + text

    def count(self, unit: int) -> float:
        """Return the duration in units of this many nanoseconds."""
        whole = abs(self.ns) // unit
        part = abs(self.ns) % unit
        value = float(whole) + float(part) / unit
        return -value if self.ns < 0 else value

    def truncated(self, step: GoDuration) -> GoDuration:
        """Round towards zero to a multiple of the step; a step of zero or less changes nothing."""
        if step.ns <= 0:
            return self
        rest = abs(self.ns) % step.ns
        return GoDuration(self.ns - rest if self.ns >= 0 else self.ns + rest)

    def rounded(self, step: GoDuration) -> GoDuration:
        """Round to the nearest multiple of the step, halves away from zero."""
        if step.ns <= 0:
            return self
        whole, rest = divmod(abs(self.ns), step.ns)
        value = (whole + (1 if rest * 2 >= step.ns else 0)) * step.ns
        return GoDuration(max(min(value if self.ns >= 0 else -value, INT_MAX), INT_MIN))


def _fraction(value: int, size: int) -> str:
    whole, part = divmod(value, size)
    if not part:
        return str(whole)
    return f"{whole}.{str(part).rjust(len(str(size)) - 1, '0').rstrip('0')}"


def parse_duration(text: str) -> GoDuration:
    """
    Parse a duration such as `1h30m`, `-1.5s` or `0`.

    Raises:
        ValueError: The text is not a duration, or it does not fit into 64 bits of nanoseconds.
    """
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return GoDuration(0)
    total = 0
    at = 0
    while at < len(body):
        match = _DURATION_PART.match(body, at)
        if match is None or not (match.group(1) or match.group(2)):
            raise ValueError("a duration is numbers with units, such as 1h30m or 250ms")
        size = _UNITS[match.group(3)]
        digits = (match.group(2) or "")[:18]
        total += int(match.group(1) or 0) * size + int(digits or 0) * size // 10 ** len(digits)
        at = match.end()
    negative = text.startswith("-")
    if not body or total > INT_MAX + (1 if negative else 0):
        raise ValueError(
            "a duration fits into 64 bits of nanoseconds: at most 292 years" if body else "it is empty"
        )
    return GoDuration(-total if negative else total)


class _Named(GoValue):
    """A number with a name."""

    __slots__ = ("number",)
    names: tuple[str, ...] = ()
    first = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.number == other.number

    def __hash__(self) -> int:
        return hash((type(self), self.number))

    def __repr__(self) -> str:
        return self.go_text()

    def go_text(self) -> str:
        return self.names[self.number - self.first]


class Month(_Named):
    """A month; January is 1."""

    __slots__ = ()
    go_type = "time.Month"
    names = MONTHS
    first = 1


class Weekday(_Named):
    """A day of the week; Sunday is 0."""

    __slots__ = ()
    go_type = "time.Weekday"
    names = WEEKDAYS


class Location(GoValue):
    """
    A time zone.

    Attributes:
        name: `UTC`, `Local`, a name of the zone database, or the name in a parsed text.
    """

    __slots__ = ("_offset_at", "name")
    go_type = "*time.Location"

    def __init__(self, name: str, offset_at: Callable[[int], tuple[int, str]]) -> None:
        self.name = name
        self._offset_at = offset_at

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and self.name == other.name

    def __hash__(self) -> int:
        return hash((Location, self.name))

    def __repr__(self) -> str:
        return f"Location({self.name})"

    def go_text(self) -> str:
        return self.name

    def at(self, unix_s: int) -> tuple[int, str]:
        """Return the offset from UTC in seconds (positive is east) and the abbreviation, at this time."""
        return self._offset_at(unix_s)


def fixed_zone(name: str, offset_s: int) -> Location:
    """Return a zone with a fixed offset; without a name it prints as its offset."""
    return Location(name, lambda _unix_s: (offset_s, name))


UTC = fixed_zone("UTC", 0)


def _local_at(unix_s: int) -> tuple[int, str]:
    moment = time.localtime(min(max(unix_s, _FIRST_S), _LAST_S))
    return moment.tm_gmtoff, moment.tm_zone


LOCAL = Location("Local", _local_at)


def load_location(name: str) -> Location:
    """
    Load a zone from the system's database.

    Raises:
        ValueError: There is no zone with that name.
    """
    if name in ("", "UTC"):
        return UTC
    if name == "Local":
        return LOCAL
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        zone: zoneinfo.ZoneInfo = ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        raise ValueError("the zone database has no such time zone") from None

    def offset_at(unix_s: int) -> tuple[int, str]:
        seconds = min(max(unix_s, _FIRST_S), _LAST_S)
        moment = datetime.fromtimestamp(seconds, DATETIME_UTC).astimezone(zone)
        offset = moment.utcoffset()
        return (int(offset.total_seconds()) if offset is not None else 0), moment.tzname() or ""

    return Location(name, offset_at)


def days_of(year: int, month: int, day: int) -> int:
    """Return the days from 1970-01-01 to a Gregorian date of any year; month 13 is January of the next year."""
    year += (month - 1) // 12
    month = (month - 1) % 12 + 1
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * ((month + 9) % 12) + 2) // 5
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468 + day - 1


def date_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day of the date this many days after 1970-01-01."""
    days += 719_468
    era = days // 146_097
    of_era = days - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * 400 + (1 if month <= 2 else 0), month, day


class Time(GoValue):
    """
    A point in time with a display zone; equality ignores the zone.

    Attributes:
        unix_s: Seconds since 1970, rounded down.
        nanosecond: Nanoseconds within the second.
    """

    __slots__ = ("location", "nanosecond", "unix_s")
    go_type = "time.Time"

    def __init__(self, unix_s: int, nanosecond: int, location: Location) -> None:
        self.unix_s = unix_s
        self.nanosecond = nanosecond
        self.location = location

    @property
    def ns(self) -> int:
        """Return the nanoseconds since 1970."""
        return self.unix_s * SECOND + self.nanosecond

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Time) and self.ns == other.ns

    def __lt__(self, other: object) -> bool:
        return self.ns < other.ns if isinstance(other, Time) else NotImplemented

    def __hash__(self) -> int:
        return hash((Time, self.ns))

    def __repr__(self) -> str:
        return f"Time({self.go_text()})"

    def go_text(self) -> str:
        return self.format("2006-01-02 15:04:05.999999999 -0700 MST")

    def rfc3339(self) -> str:
        """Format the time as in JSON."""
        return self.format("2006-01-02T15:04:05.999999999Z07:00")

    def format(self, layout: str) -> str:
        """Format the time by a Go layout."""
        return format_time(self, layout)

    def date(self) -> tuple[int, int, int]:
        """Return year, month and day in its zone."""
        return date_of((self.unix_s + self.location.at(self.unix_s)[0]) // _DAY_S)

    def clock(self) -> tuple[int, int, int]:
        """Return hour, minute and second in its zone."""
        second = (self.unix_s + self.location.at(self.unix_s)[0]) % _DAY_S
        return second // 3600, second // 60 % 60, second % 60

    def weekday(self) -> Weekday:
        days = (self.unix_s + self.location.at(self.unix_s)[0]) // _DAY_S
        return Weekday((days + 4) % 7)

    def iso_year(self) -> int:
        """Return the ISO year of its week: the year of the week's Thursday."""
        days = (self.unix_s + self.location.at(self.unix_s)[0]) // _DAY_S
        return date_of(days + 3 - (days + 3) % 7)[0]

    def year_day(self) -> int:
        year, month, day = self.date()
        return days_of(year, month, day) - days_of(year, 1, 1) + 1

    def plus(self, duration: GoDuration) -> Time:
        return self._at(self.ns + duration.ns)

    def minus(self, other: Time) -> GoDuration:
        """Return the duration between two times, clamped to 64 bits."""
        return GoDuration(max(min(self.ns - other.ns, INT_MAX), INT_MIN))

    def moved(self, location: Location) -> Time:
        return Time(self.unix_s, self.nanosecond, location)

    def add_date(self, years: int, months: int, days: int) -> Time:
        """Add years, months and days by the calendar; a day beyond the month's end overflows into the next month."""
        year, month, day = self.date()
        bound = 1 << 40
        steps = [max(min(step, bound), -bound) for step in (years, months, days)]
        civil = days_of(year + steps[0], month + steps[1], 1) + day - 1 + steps[2]
        hour, minute, second = self.clock()
        return time_at(civil, hour * 3600 + minute * 60 + second, self.nanosecond, self.location)

    def truncated(self, step: GoDuration) -> Time:
        if step.ns <= 0:
            return self
        return self._at(self.ns - (self.ns - _ZERO_S * SECOND) % step.ns)

    def rounded(self, step: GoDuration) -> Time:
        if step.ns <= 0:
            return self
        rest = (self.ns - _ZERO_S * SECOND) % step.ns
        return self._at(self.ns - rest + (step.ns if rest * 2 >= step.ns else 0))

    def is_zero(self) -> bool:
        return self.ns == _ZERO_S * SECOND

    def _at(self, ns: int) -> Time:
        return Time(ns // SECOND, ns % SECOND, self.location)


def time_at(days: int, second_of_day: int, nanosecond: int, location: Location) -> Time:
    """Return the point in time of a local date and time in a zone."""
    unix_s = days * _DAY_S + second_of_day
    offset = location.at(unix_s)[0]
    if offset:
        offset = location.at(unix_s - offset)[0]
    return Time(unix_s - offset, nanosecond, location)


def now(location: Location = LOCAL) -> Time:
    """Return the current time."""
    ns = time.time_ns()
    return Time(ns // SECOND, ns % SECOND, location)


def format_time(moment: Time, layout: str) -> str:
    """Format a time by a layout."""
    out: list[str] = []
    at = 0
    for piece in PIECE.finditer(layout):
        out.append(layout[at : piece.start()])
        out.append(_formatted(moment, piece.group()))
        at = piece.end()
    out.append(layout[at:])
    return "".join(out)


_DATES: dict[str, Callable[[int, int, int], str]] = {
    "2006": lambda year, _month, _day: f"{year:04d}" if year >= 0 else f"-{-year:04d}",
    "06": lambda year, _month, _day: f"{abs(year) % 100:02d}",
    "January": lambda _year, month, _day: MONTHS[month - 1],
    "Jan": lambda _year, month, _day: MONTHS[month - 1][:3],
    "1": lambda _year, month, _day: str(month),
    "01": lambda _year, month, _day: f"{month:02d}",
    "2": lambda _year, _month, day: str(day),
    "_2": lambda _year, _month, day: f"{day:2d}",
    "02": lambda _year, _month, day: f"{day:02d}",
}
_CLOCKS: dict[str, Callable[[int, int, int], str]] = {
    "15": lambda hour, _minute, _second: f"{hour:02d}",
    "3": lambda hour, _minute, _second: str(hour % 12 or 12),
    "03": lambda hour, _minute, _second: f"{hour % 12 or 12:02d}",
    "4": lambda _hour, minute, _second: str(minute),
    "04": lambda _hour, minute, _second: f"{minute:02d}",
    "5": lambda _hour, _minute, second: str(second),
    "05": lambda _hour, _minute, second: f"{second:02d}",
    "PM": lambda hour, _minute, _second: "PM" if hour >= 12 else "AM",
    "pm": lambda hour, _minute, _second: "pm" if hour >= 12 else "am",
}


def _formatted(moment: Time, piece: str) -> str:
    if piece in _DATES:
        return _DATES[piece](*moment.date())
    if piece in _CLOCKS:
        return _CLOCKS[piece](*moment.clock())
    if piece in ("Monday", "Mon"):
        return moment.weekday().go_text()[: None if piece == "Monday" else 3]
    if piece in ("002", "__2"):
        return f"{moment.year_day():03d}" if piece == "002" else f"{moment.year_day():3d}"
    offset, abbreviation = moment.location.at(moment.unix_s)
    if piece == "MST":
        return abbreviation or _offset(offset, "-0700")
    if piece[0] in "-Z":
        return "Z" if piece[0] == "Z" and offset == 0 else _offset(offset, piece)
    digits = f"{moment.nanosecond:09d}"[: len(piece) - 1].ljust(len(piece) - 1, "0")
    if piece[1] == "9":
        digits = digits.rstrip("0")
    return piece[0] + digits if digits else ""


def _offset(offset_s: int, piece: str) -> str:
    sign = "-" if offset_s < 0 else "+"
    minutes, seconds = divmod(abs(offset_s), 60)
    parts = [f"{minutes // 60:02d}", f"{minutes % 60:02d}", f"{seconds:02d}"]
    length = {"07": 1, "0700": 2, "07:00": 2, "070000": 3, "07:00:00": 3}[piece[1:]]
    return sign + (":" if ":" in piece else "").join(parts[:length])
