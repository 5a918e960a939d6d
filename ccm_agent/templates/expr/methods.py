"""The methods of times, durations, months, weekdays, time zones and lists of registrations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.static_types import METHODS
from ccm_agent.templates.gotime import LOCAL, SECOND, UTC, GoDuration, Location, Month, Time, Weekday
from ccm_agent.templates.services import Services
from ccm_agent.templates.values import GoValue, wrap_int

_TIME: dict[str, Callable[..., Any]] = {
    "Year": lambda time: time.date()[0],
    "Month": lambda time: Month(time.date()[1]),
    "Day": lambda time: time.date()[2],
    "Hour": lambda time: time.clock()[0],
    "Minute": lambda time: time.clock()[1],
    "Second": lambda time: time.clock()[2],
    "Nanosecond": lambda time: time.nanosecond,
    "YearDay": Time.year_day,
    "Weekday": Time.weekday,
    "ISOWeek": Time.iso_year,  # Go returns year and week, and an expression uses only the first result
    "Zone": lambda time: time.location.at(time.unix_s)[1],
    "Unix": lambda time: time.unix_s,
    "UnixMilli": lambda time: wrap_int(time.ns // 1_000_000),
    "UnixMicro": lambda time: wrap_int(time.ns // 1000),
    "UnixNano": lambda time: wrap_int(time.ns),
    "Format": lambda time, layout: time.format(_short(layout)),
    "String": Time.go_text,
    "Add": Time.plus,
    "Sub": Time.minus,
    "AddDate": Time.add_date,
    "Before": lambda time, other: time.ns < other.ns,
    "After": lambda time, other: time.ns > other.ns,
    "Equal": lambda time, other: time.ns == other.ns,
    "Compare": lambda time, other: (time.ns > other.ns) - (time.ns < other.ns),
    "IsZero": Time.is_zero,
    "UTC": lambda time: time.moved(UTC),
    "Local": lambda time: time.moved(LOCAL),
    "In": Time.moved,
    "Location": lambda time: time.location,
    "Truncate": Time.truncated,
    "Round": Time.rounded,
}
_DURATION: dict[str, Callable[..., Any]] = {
    "Hours": lambda duration: duration.count(3600 * SECOND),
    "Minutes": lambda duration: duration.count(60 * SECOND),
    "Seconds": lambda duration: duration.count(SECOND),
    "Milliseconds": lambda duration: _whole(duration.ns, 1_000_000),
    "Microseconds": lambda duration: _whole(duration.ns, 1000),
    "Nanoseconds": lambda duration: duration.ns,
    "Round": GoDuration.rounded,
    "Truncate": GoDuration.truncated,
    "Abs": lambda duration: GoDuration(min(abs(duration.ns), 2**63 - 1)),
    "String": GoDuration.go_text,
}
_TEXT: dict[str, Callable[..., Any]] = {"String": lambda value: value.go_text()}
_SERVICES: dict[str, Callable[..., Any]] = {"PrometheusFileSD": Services.PrometheusFileSD}
_METHODS: dict[type, dict[str, Callable[..., Any]]] = {
    Time: _TIME,
    GoDuration: _DURATION,
    Month: _TEXT,
    Weekday: _TEXT,
    Location: _TEXT,
    Services: _SERVICES,
}

_PYTHON_TYPES: dict[str, type] = {
    "string": str,
    "int": int,
    "time.Time": Time,
    "time.Duration": GoDuration,
    "*time.Location": Location,
}

_LAYOUT_LIMIT = 1000


def _whole(ns: int, unit: int) -> int:
    count = abs(ns) // unit
    return -count if ns < 0 else count


def _short(layout: str) -> str:
    if len(layout) > _LAYOUT_LIMIT:
        raise EvaluationError(f"a layout has at most {_LAYOUT_LIMIT} characters")
    return layout


class Method:
    """A method that is bound to its value. A call checks the arguments."""

    __slots__ = ("function", "name", "parameters", "receiver")

    def __init__(self, receiver: GoValue | Services, name: str) -> None:
        self.receiver = receiver
        self.name = name
        self.function = _METHODS[type(receiver)][name]
        self.parameters = METHODS[receiver.go_type][name].overloads[0]

    def __call__(self, *arguments: Any) -> Any:
        if len(arguments) != len(self.parameters):
            raise EvaluationError(
                f"{self.name}() takes {len(self.parameters)} arguments, not {len(arguments)}"
            )
        for argument, parameter in zip(arguments, self.parameters, strict=True):
            if type(argument) is not _PYTHON_TYPES[parameter.type]:
                raise EvaluationError(f"{self.name}() takes {parameter} here")
        return self.function(self.receiver, *arguments)


def bound_method(value: GoValue | Services, name: str) -> Method | None:
    """Return a value's method, or None if it has no method with that name."""
    return Method(value, name) if name in _METHODS.get(type(value), {}) else None
