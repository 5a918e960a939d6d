"""
Parse times by Go's layouts, which are written as the reference time Mon Jan 2 15:04:05 MST 2006. `gotime` formats them.

Source: the documentation of Go's package time.
"""

from __future__ import annotations

import re

from ccm_agent.templates.gotime import (
    LOCAL,
    MONTHS,
    PIECE,
    UTC,
    WEEKDAYS,
    Location,
    Time,
    days_of,
    fixed_zone,
    time_at,
)

# the layouts that are tried in this order if no layout is given
DATE_LAYOUTS = (
    "2006-01-02",
    "15:04:05",
    "2006-01-02 15:04:05",
    "2006-01-02T15:04:05Z07:00",
    "02 Jan 06 15:04 MST",
    "Monday, 02-Jan-06 15:04:05 MST",
    "Mon, 02 Jan 2006 15:04:05 MST",
)


class _Reading:
    """The state of parsing one time."""

    def __init__(self, value: str, layout: str) -> None:
        self.value = value
        self.layout = layout
        self.year = 0
        self.month = 0
        self.day: int | None = None
        self.year_day = 0
        self.hour = 0
        self.minute = 0
        self.second = 0
        self.nanosecond = 0
        self.afternoon: bool | None = None
        self.zone: Location | None = None
        self.offset: int | None = None
        self.abbreviation = ""

    def fail(self) -> ValueError:
        return ValueError(f"the text does not match the layout {self.layout}")

    def literal(self, text: str) -> None:
        """Skip a literal part; a run of spaces matches any number of spaces."""
        while text:
            if text[0] == " ":
                if self.value and self.value[0] != " ":
                    raise self.fail()
                text, self.value = text.lstrip(" "), self.value.lstrip(" ")
                continue
            if not self.value or self.value[0] != text[0]:
                raise self.fail()
            text, self.value = text[1:], self.value[1:]

    def number(self, least: int, most: int, low: int, high: int) -> int:
        match = re.match(rf"[0-9]{{{least},{most}}}", self.value)
        if match is None:
            raise self.fail()
        self.value = self.value[match.end() :]
        number = int(match.group())
        if not low <= number <= high:
            raise ValueError(f"{number} is out of range where the layout is {self.layout}")
        return number

    def name(self, names: tuple[str, ...], length: int | None) -> int:
        for index, name in enumerate(names):
            short = name[:length]
            if self.value[: len(short)].lower() == short.lower():
                self.value = self.value[len(short) :]
                return index
        raise self.fail()

    def fraction(self, digits: int) -> None:
        self.nanosecond = int(self.value[1 : digits + 1][:9].ljust(9, "0"))
        self.value = self.value[digits + 1 :]


def parse_time(layout: str, value: str, location: Location | None = None) -> Time:
    """
    Parse a time.

    Args:
        layout: The layout of the text.
        value: The text.
        location: The zone of a text without a zone; None for UTC.

    Raises:
        ValueError: The text does not match the layout, or the date does not exist.
    """
    reading = _Reading(value, layout)
    at = 0
    pieces = list(PIECE.finditer(layout))
    for index, piece in enumerate(pieces):
        reading.literal(layout[at : piece.start()])
        at = piece.end()
        has_fraction = index + 1 < len(pieces) and pieces[index + 1].start() == at
        has_fraction = has_fraction and pieces[index + 1].group()[0] in ".,"
        _read(reading, piece.group(), has_fraction)
    reading.literal(layout[at:])
    if reading.value:
        raise ValueError(f"there is more text than the layout {layout} has")
    return _assembled(reading, location)


def _read(reading: _Reading, piece: str, has_fraction: bool) -> None:
    if piece in ("2006", "06"):
        year = reading.number(4, 4, 0, 9999) if piece == "2006" else reading.number(2, 2, 0, 99)
        reading.year = year if piece == "2006" else year + (1900 if year >= 69 else 2000)
    elif piece in ("January", "Jan"):
        reading.month = 1 + reading.name(MONTHS, 3 if piece == "Jan" else None)
    elif piece in ("Monday", "Mon"):
        reading.name(WEEKDAYS, 3 if piece == "Mon" else None)
    elif piece in ("1", "01"):
        reading.month = reading.number(len(piece), 2, 1, 12)
    elif piece in ("2", "_2", "02"):
        if piece == "_2" and reading.value.startswith(" "):
            reading.value = reading.value[1:]
        reading.day = reading.number(2 if piece == "02" else 1, 2, 0, 99)
    elif piece in ("002", "__2"):
        if piece == "__2":
            reading.value = reading.value[len(re.match(" {0,2}", reading.value).group()) :]  # type: ignore[union-attr]
        reading.year_day = reading.number(3 if piece == "002" else 1, 3, 1, 366)
    elif piece in ("PM", "pm"):
        mark = reading.value[:2]
        if mark not in (("PM", "AM") if piece == "PM" else ("pm", "am")):
            raise reading.fail()
        reading.afternoon = mark.lower() == "pm"
        reading.value = reading.value[2:]
    elif piece == "MST":
        _read_abbreviation(reading)
    elif piece[0] in "-Z":
        _read_offset(reading, piece)
    elif piece[0] in ".,":
        _read_fraction(reading, piece)
    else:
        _read_clock(reading, piece, has_fraction)


def _read_clock(reading: _Reading, piece: str, has_fraction: bool) -> None:
    if piece == "15":
        reading.hour = reading.number(1, 2, 0, 23)
    elif piece in ("3", "03"):
        reading.hour = reading.number(len(piece), 2, 0, 12)
    elif piece in ("4", "04"):
        reading.minute = reading.number(len(piece), 2, 0, 59)
    else:
        reading.second = reading.number(len(piece), 2, 0, 59)
        # a fraction may follow the seconds even if the layout has none
        match = re.match("[.,][0-9]+", reading.value)
        if match is not None and not has_fraction:
            reading.fraction(len(match.group()) - 1)


def _read_fraction(reading: _Reading, piece: str) -> None:
    match = re.match("[.,]([0-9]+)", reading.value)
    if piece[1] == "9":
        if match is not None:
            reading.fraction(min(len(match.group(1)), 9))
        return
    wanted = len(piece) - 1
    if match is None or len(match.group(1)) < wanted:
        raise reading.fail()
    reading.fraction(wanted)


def _read_offset(reading: _Reading, piece: str) -> None:
    if piece[0] == "Z" and reading.value.startswith("Z"):
        reading.value = reading.value[1:]
        reading.zone = UTC
        return
    separator = ":" if ":" in piece else ""
    length = {"07": 1, "0700": 2, "07:00": 2, "070000": 3, "07:00:00": 3}[piece[1:]]
    match = re.match("([-+])" + separator.join(["([0-9]{2})"] * length), reading.value)
    if match is None:
        raise reading.fail()
    parts = [int(part) for part in match.groups()[1:]] + [0, 0]
    if parts[0] > 24 or parts[1] > 59 or parts[2] > 59:
        raise ValueError("the offset of the time zone is out of range")
    reading.offset = (parts[0] * 60 + parts[1]) * 60 + parts[2]
    if match.group(1) == "-":
        reading.offset = -reading.offset
    reading.value = reading.value[match.end() :]


_ABBREVIATION = re.compile(
    r"UTC|ChST|MeST|GMT(?:[-+][0-9]{1,2})?|[-+][0-9]{2}|(?:[A-Z]{4}T|[A-Z]{3}T|WITA|[A-Z]{3})(?![A-Z])"
)


def _read_abbreviation(reading: _Reading) -> None:
    match = _ABBREVIATION.match(reading.value)
    if match is None:
        raise reading.fail()
    reading.value = reading.value[match.end() :]
    if match.group() == "UTC":
        reading.zone = UTC
    else:
        reading.abbreviation = match.group()


def _assembled(reading: _Reading, location: Location | None) -> Time:
    if reading.afternoon is not None:
        reading.hour = reading.hour % 12 + (12 if reading.afternoon else 0)
    days = _days(reading)
    second = reading.hour * 3600 + reading.minute * 60 + reading.second
    if reading.zone is not None:
        return time_at(days, second, reading.nanosecond, reading.zone)
    utc = time_at(days, second, reading.nanosecond, UTC)
    if reading.offset is not None:
        moment = Time(utc.unix_s - reading.offset, utc.nanosecond, UTC)
        home = location if location is not None else LOCAL
        offset, abbreviation = home.at(moment.unix_s)
        if offset == reading.offset and reading.abbreviation in ("", abbreviation):
            return moment.moved(home)
        return moment.moved(fixed_zone(reading.abbreviation, reading.offset))
    if reading.abbreviation:
        offset, abbreviation = (location or LOCAL).at(utc.unix_s)
        if abbreviation == reading.abbreviation:
            return Time(utc.unix_s - offset, utc.nanosecond, location or LOCAL)
        # the offset of an abbreviation is not known, except for GMT
        offset = (
            int(reading.abbreviation[3:]) * 3600 if reading.abbreviation.startswith(("GMT+", "GMT-")) else 0
        )
        return Time(utc.unix_s - offset, utc.nanosecond, fixed_zone(reading.abbreviation, offset))
    return time_at(days, second, reading.nanosecond, location or UTC)


def _days(reading: _Reading) -> int:
    """Return the parsed date in days since 1970."""
    if reading.year_day:
        length = days_of(reading.year + 1, 1, 1) - days_of(reading.year, 1, 1)
        days = days_of(reading.year, 1, 1) + reading.year_day - 1
        if reading.year_day > length:
            raise ValueError(f"the year {reading.year} has no day {reading.year_day}")
        return days
    month = reading.month or 1
    day = 1 if reading.day is None else reading.day
    if not 1 <= day <= days_of(reading.year, month + 1, 1) - days_of(reading.year, month, 1):
        raise ValueError(f"the month {month} of {reading.year} has no day {day}")
    return days_of(reading.year, month, day)
