"""Fields and methods of versions, times, durations and registrations in Go templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccm_agent.templates.engines.go.semver import Version
from ccm_agent.templates.engines.gotypes import Int64, Uint64
from ccm_agent.templates.gotime import SECOND, UTC, GoDuration, Month, Time, Weekday
from ccm_agent.templates.services import service_method


def method(value: Any, name: str) -> Callable[..., Any] | None:
    """Return the method or field of this name as a callable; None if the value has no such member."""
    for kinds, methods in (
        (Version, VERSION_METHODS),
        (Time, TIME_METHODS),
        (GoDuration, DURATION_METHODS),
        ((Month, Weekday), NAME_METHODS),
    ):
        if isinstance(value, kinds):
            found = methods.get(name)
            return None if found is None else found(value)
    found_here: Callable[..., Any] | None = service_method(value, name)
    return found_here


def _time_format(moment: Time) -> Callable[[str], str]:
    def call(layout: str) -> str:
        return moment.format(layout)

    return call


def _time_add_date(moment: Time) -> Callable[[int, int, int], Time]:
    def call(years: int, months: int, days: int) -> Time:
        return moment.add_date(years, months, days)

    return call


def _version_compare(version: Version) -> Callable[[Any], int]:
    def call(other: Any) -> int:
        return version.compare(other)

    return call


def _constant(read: Callable[[Any], Any]) -> Callable[[Any], Callable[[], Any]]:
    return lambda value: lambda: read(value)


VERSION_METHODS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "Major": _constant(lambda version: Uint64(version.major)),
    "Minor": _constant(lambda version: Uint64(version.minor)),
    "Patch": _constant(lambda version: Uint64(version.patch)),
    "Prerelease": _constant(lambda version: version.prerelease),
    "Metadata": _constant(lambda version: version.metadata),
    "Original": _constant(lambda version: version.original),
    "String": _constant(lambda version: version.go_text()),
    "IncMajor": _constant(lambda version: version.next_major()),
    "IncMinor": _constant(lambda version: version.next_minor()),
    "IncPatch": _constant(lambda version: version.next_patch()),
    "Compare": _version_compare,
    "LessThan": lambda version: lambda other: version.compare(other) < 0,
    "GreaterThan": lambda version: lambda other: version.compare(other) > 0,
    "Equal": lambda version: lambda other: version.compare(other) == 0,
}

TIME_METHODS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "Format": _time_format,
    "AddDate": _time_add_date,
    "Year": _constant(lambda moment: moment.date()[0]),
    "Month": _constant(lambda moment: Month(moment.date()[1])),
    "Day": _constant(lambda moment: moment.date()[2]),
    "Hour": _constant(lambda moment: moment.clock()[0]),
    "Minute": _constant(lambda moment: moment.clock()[1]),
    "Second": _constant(lambda moment: moment.clock()[2]),
    "Nanosecond": _constant(lambda moment: moment.nanosecond),
    "Weekday": _constant(lambda moment: moment.weekday()),
    "YearDay": _constant(lambda moment: moment.year_day()),
    "Unix": _constant(lambda moment: Int64(moment.unix_s)),
    "UnixMilli": _constant(lambda moment: Int64(moment.ns // 1_000_000)),
    "UnixNano": _constant(lambda moment: Int64(moment.ns)),
    "UTC": _constant(lambda moment: moment.moved(UTC)),
    "IsZero": _constant(lambda moment: moment.is_zero()),
    "String": _constant(lambda moment: moment.go_text()),
}

DURATION_METHODS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "Hours": _constant(lambda span: span.count(3600 * SECOND)),
    "Minutes": _constant(lambda span: span.count(60 * SECOND)),
    "Seconds": _constant(lambda span: span.count(SECOND)),
    "String": _constant(lambda span: span.go_text()),
}

NAME_METHODS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "String": _constant(lambda name: name.go_text())
}
