"""Go's times and durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.templates.golayout import parse_time
from ccm_agent.templates.gotime import (
    SECOND,
    UTC,
    GoDuration,
    Month,
    Time,
    Weekday,
    date_of,
    days_of,
    fixed_zone,
    load_location,
    parse_duration,
)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("1h30m15s", "1h30m15s"),
        ("90m", "1h30m0s"),
        ("-90s", "-1m30s"),
        ("1.5s", "1.5s"),
        (".5s", "500ms"),
        ("1500us", "1.5ms"),
        ("1500ns", "1.5µs"),
        ("7ns", "7ns"),
        ("0", "0s"),
        ("+1h", "1h0m0s"),
        ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
    ],
)
def test_durations_are_read_and_printed(text: str, printed: str) -> None:
    assert parse_duration(text).go_text() == printed


@pytest.mark.parametrize("text", ["", "5", "h", "1x", "1h ", "--1h", ".s", "2562048h", "1h-1m"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


def test_durations_count_and_round() -> None:
    duration = parse_duration("1h31m")

    assert duration.count(3600 * SECOND) == 91 / 60
    assert duration.rounded(parse_duration("1h")).go_text() == "2h0m0s"
    assert duration.truncated(parse_duration("1h")).go_text() == "1h0m0s"
    assert duration.rounded(GoDuration(0)) == duration
    assert GoDuration(2**63) == GoDuration(-(2**63))


@given(st.integers(-(2**62), 2**62))
def test_a_printed_duration_is_read_again(ns: int) -> None:
    assert parse_duration(GoDuration(ns).go_text()) == GoDuration(ns)


@given(st.integers(-4_000_000, 4_000_000))
def test_days_and_dates_belong_together(days: int) -> None:
    assert days_of(*date_of(days)) == days


def test_the_calendar() -> None:
    moment = parse_time("2006-01-02 15:04:05", "2024-02-29 10:20:30")

    assert (moment.date(), moment.clock()) == ((2024, 2, 29), (10, 20, 30))
    assert (moment.weekday(), moment.year_day()) == (Weekday(4), 60)
    assert (Month(2).go_text(), Weekday(4).go_text()) == ("February", "Thursday")
    assert moment.add_date(1, 0, 0).date() == (2025, 3, 1)
    assert moment.add_date(0, 12 * 2000, -1).date() == (4024, 2, 28)
    assert moment.truncated(parse_duration("1h")).clock() == (10, 0, 0)
    assert moment.rounded(parse_duration("1m")).clock() == (10, 21, 0)
    assert moment.plus(parse_duration("24h")).minus(moment) == parse_duration("24h")
    assert Time(-62_135_596_800, 0, UTC).is_zero()


def test_zones_know_their_summer() -> None:
    zurich = load_location("Europe/Zurich")
    winter = parse_time("2006-01-02 15:04", "2024-01-14 12:00", zurich)
    summer = parse_time("2006-01-02 15:04", "2024-07-14 12:00", zurich)

    assert winter.go_text() == "2024-01-14 12:00:00 +0100 CET"
    assert summer.go_text() == "2024-07-14 12:00:00 +0200 CEST"
    assert summer.moved(UTC).rfc3339() == "2024-07-14T10:00:00Z"
    assert summer == summer.moved(UTC)
    assert summer.moved(fixed_zone("", 3 * 3600 + 17 * 60)).go_text() == "2024-07-14 13:17:00 +0317 +0317"


@pytest.mark.parametrize(
    "name", ["Mars/Base", "../../etc/passwd", "/etc/passwd", "Europe/Zurich\0", "Europe"]
)
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no such time zone"):
        load_location(name)


@given(st.integers(-(2**40), 2**40), st.sampled_from(("Europe/Zurich", "America/New_York", "Asia/Kolkata")))
def test_any_moment_can_be_shown_in_any_zone(unix_s: int, zone: str) -> None:
    moment = Time(unix_s, 0, load_location(zone))

    assert moment.moved(UTC) == moment
    assert moment.go_text().count(":") == 2
