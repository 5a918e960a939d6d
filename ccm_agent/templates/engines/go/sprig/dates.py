"""
Sprig's functions on times.

Source: masterminds.github.io/sprig, "Date Functions"; layouts are those of Go's package time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.gotypes import Int64
from ccm_agent.templates.engines.literals import parse_integer
from ccm_agent.templates.golayout import parse_time
from ccm_agent.templates.gotime import (
    LOCAL,
    SECOND,
    UTC,
    GoDuration,
    Location,
    Time,
    load_location,
    now,
    parse_duration,
)

_ZERO_TIME = Time(-62_135_596_800, 0, UTC)
# the range of seconds for which Go and this package print the same year
_SECONDS_MAX = 1 << 40

_SPANS = (
    ("y", 365 * 24 * 3600 * SECOND),
    ("mo", 30 * 24 * 3600 * SECOND),
    ("d", 24 * 3600 * SECOND),
    ("h", 3600 * SECOND),
    ("m", 60 * SECOND),
    ("s", SECOND),
)


def _moment(value: Any) -> Time:
    """
    Convert to a time: a time is returned unchanged, a number is seconds since 1970, and anything else means
    now.
    """
    if isinstance(value, Time):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > _SECONDS_MAX:
            raise TemplateError(f"{value} seconds since 1970 is not a time that can be printed")
        return Time(int(value), 0, LOCAL)
    return now()


def _zone(name: str) -> Location:
    try:
        return load_location(name)
    except ValueError:
        return UTC


def _now() -> Time:
    return now()


def _date(layout: str, value: Any) -> str:
    return _moment(value).moved(LOCAL).format(layout)


def _date_in_zone(layout: str, value: Any, zone: str) -> str:
    return _moment(value).moved(_zone(zone)).format(layout)


def _html_date(value: Any) -> str:
    return _date("2006-01-02", value)


def _html_date_in_zone(value: Any, zone: str) -> str:
    return _date_in_zone("2006-01-02", value, zone)


def _to_date(layout: str, text: str) -> Time:
    """Parse a time; return Go's zero time if the text does not match the layout."""
    try:
        return _must_to_date(layout, text)
    except TemplateError:
        return _ZERO_TIME


def _must_to_date(layout: str, text: str) -> Time:
    try:
        return parse_time(layout, text, LOCAL)
    except ValueError as err:
        raise TemplateError(f"text is not a time: {err}") from None


def _date_modify(span: str, moment: Time) -> Time:
    """Add a duration to a time; an invalid duration changes nothing."""
    try:
        return _must_date_modify(span, moment)
    except TemplateError:
        return moment


def _must_date_modify(span: str, moment: Time) -> Time:
    try:
        return moment.plus(parse_duration(span))
    except ValueError as err:
        raise TemplateError(f"text is not a duration: {err}") from None


def _unix_epoch(moment: Time) -> str:
    return str(moment.unix_s)


def _ago(value: Any) -> str:
    return now().minus(_moment(value)).rounded(GoDuration(SECOND)).go_text()


def _duration(value: Any) -> str:
    """Format seconds as a duration: `1m1s`. Accepts text and int64; any other value is treated as zero."""
    seconds = 0
    if isinstance(value, str):
        seconds = parse_integer(value, 10) or 0
    elif isinstance(value, Int64):
        seconds = int(value)
    return GoDuration(seconds * SECOND).go_text()


def _duration_round(value: Any) -> str:
    """Format a duration in its largest whole unit: `3h`, `2mo`."""
    size = abs(_span_ns(value))
    for unit, length in _SPANS:
        if size > length:
            return f"{size // length}{unit}"
    return "0s"


def _span_ns(value: Any) -> int:
    if isinstance(value, str):
        try:
            return parse_duration(value).ns
        except ValueError:
            return 0
    if isinstance(value, Int64):
        return int(value)
    return now().minus(value).ns if isinstance(value, Time) else 0


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ago": _ago,
    "date": _date,
    "dateInZone": _date_in_zone,
    "dateModify": _date_modify,
    "date_in_zone": _date_in_zone,
    "date_modify": _date_modify,
    "duration": _duration,
    "durationRound": _duration_round,
    "htmlDate": _html_date,
    "htmlDateInZone": _html_date_in_zone,
    "mustDateModify": _must_date_modify,
    "mustToDate": _must_to_date,
    "must_date_modify": _must_date_modify,
    "now": _now,
    "toDate": _to_date,
    "unixEpoch": _unix_epoch,
}
