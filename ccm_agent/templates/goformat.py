"""
Format times by Go's layouts, which are written as the reference time Mon Jan 2 15:04:05 MST 2006.

Source: the documentation of Go's package time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ccm_agent.templates.gotime import Time

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
