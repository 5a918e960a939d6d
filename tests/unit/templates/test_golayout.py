"""Times written and read after Go's example."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.templates.golayout import DATE_LAYOUTS, parse_time
from ccm_agent.templates.gotime import fixed_zone, format_time

MOMENT = parse_time("2006-01-02T15:04:05.999Z07:00", "2009-02-04T05:06:07.0123+01:00").moved(
    fixed_zone("CET", 3600)
)


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("2006-01-02 15:04:05", "2009-02-04 05:06:07"),
        ("06/1/2 3:4:5 pm Mon Jan", "09/2/4 5:6:7 am Wed Feb"),
        ("Monday, January _2 2006", "Wednesday, February  4 2009"),
        ("002 __2", "035  35"),
        ("03:04PM", "05:06AM"),
        (".000 .999999 ,00", ".012 .0123 ,01"),
        ("-0700 -07:00 -07 Z0700 Z07:00 MST", "+0100 +01:00 +01 +0100 +01:00 CET"),
        ("-070000 -07:00:00", "+010000 +01:00:00"),
        ("Janet Monk _2006", "Janet Monk _2009"),
        ("", ""),
    ],
)
def test_layouts_are_written(layout: str, text: str) -> None:
    assert format_time(MOMENT, layout) == text


@pytest.mark.parametrize(
    ("layout", "text", "moment"),
    [
        ("2006-01-02", "2023-08-14", "2023-08-14 00:00:00 +0000 UTC"),
        ("15:04:05", "15:04:05", "0000-01-01 15:04:05 +0000 UTC"),
        ("3:04PM", "12:04AM", "0000-01-01 00:04:00 +0000 UTC"),
        ("Jan 2, 2006 at 3:04pm", "aug 14, 2023 at 3:04pm", "2023-08-14 15:04:00 +0000 UTC"),
        ("2006-002", "2024-366", "2024-12-31 00:00:00 +0000 UTC"),
        ("15:04:05", "15:04:05.25", "0000-01-01 15:04:05.25 +0000 UTC"),
        (
            "Mon, 02 Jan 2006 15:04:05 -0700",
            "Tue, 14 Aug 2023 10:20:30 +0200",
            "2023-08-14 10:20:30 +0200 +0200",
        ),
        ("02 Jan 06 15:04 MST", "14 Aug 23 10:20 GMT+3", "2023-08-14 10:20:00 +0300 GMT+3"),
        ("02 Jan 06 15:04 MST", "14 Aug 23 10:20 PST", "2023-08-14 10:20:00 +0000 PST"),
        ("06", "68", "2068-01-01 00:00:00 +0000 UTC"),
        ("06", "69", "1969-01-01 00:00:00 +0000 UTC"),
        ("a 2006", "a   2023", "2023-01-01 00:00:00 +0000 UTC"),
    ],
)
def test_layouts_are_read(layout: str, text: str, moment: str) -> None:
    assert parse_time(layout, text).go_text() == moment


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("2006-01-02", "2023-13-01"),
        ("2006-01-02", "2023-02-29"),
        ("2006-01-02", "2023-08-00"),
        ("2006-01-02", "2023-8-14"),
        ("2006-01-02", "2023-08-14x"),
        ("2006-002", "2023-366"),
        ("15:04", "24:00"),
        ("3:04PM", "3:04pm"),
        ("Jan", "Foo"),
        (".000", ".1"),
        ("-0700", "0700"),
        ("-0700", "+2500"),
        ("MST", "cet"),
    ],
)
def test_values_in_another_format_are_refused(layout: str, text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(layout, text)


@given(st.text(alphabet="0123456789 :-.,+JanFeMoPAMZ_T", max_size=25), st.sampled_from(DATE_LAYOUTS))
def test_any_text_is_a_time_or_refused(text: str, layout: str) -> None:
    try:
        moment = parse_time(layout, text)
    except ValueError:
        return
    assert parse_time("2006-01-02 15:04:05.999999999 -0700 MST", moment.go_text()) == moment


@given(st.text(alphabet="0123456789 :-.,+JanMoPMZ_T", max_size=25))
def test_any_layout_can_be_written(layout: str) -> None:
    assert isinstance(format_time(MOMENT, layout), str)
