"""When a rule matches."""

from __future__ import annotations

from datetime import datetime

import pytest

from ccm_agent.model.errors import PropertyError
from ccm_agent.policy.hours import parse_hours

# 2026-11-23 is a Monday


@pytest.mark.parametrize(
    ("written", "moment", "expected"),
    [
        pytest.param("Mon-Fri 08:00-18:00", "2026-11-23 08:00", True, id="the first minute"),
        pytest.param("Mon-Fri 08:00-18:00", "2026-11-23 17:59", True, id="the last minute"),
        pytest.param("Mon-Fri 08:00-18:00", "2026-11-23 18:00", False, id="the end is not in it"),
        pytest.param("Mon-Fri 08:00-18:00", "2026-11-22 12:00", False, id="another day"),
        pytest.param("Sat,Sun", "2026-11-22 00:00", True, id="days without times are whole"),
        pytest.param("sat,sun", "2026-11-23 00:00", False, id="case does not count"),
        pytest.param("Mon-Wed,Fri 08:00-12:00", "2026-11-26 09:00", False, id="a list with a gap"),
        pytest.param("Fri-Mon", "2026-11-22 09:00", True, id="days across the week's end"),
        pytest.param("Fri-Mon", "2026-11-24 09:00", False, id="days across the week's end, outside"),
        pytest.param("22:00-06:00", "2026-11-23 23:00", True, id="across midnight, before it"),
        pytest.param("22:00-06:00", "2026-11-23 05:59", True, id="across midnight, after it"),
        pytest.param("22:00-06:00", "2026-11-23 06:00", False, id="across midnight, over"),
        pytest.param(
            "Fri 22:00-06:00", "2026-11-28 05:00", True, id="the night belongs to the day it begins on"
        ),
        pytest.param("Fri 22:00-06:00", "2026-11-27 05:00", False, id="not to the day it ends on"),
        pytest.param("Sun 22:00-06:00", "2026-11-23 05:00", True, id="nor does the week's end matter"),
        pytest.param("00:00-24:00", "2026-11-23 23:59", True, id="the whole day"),
    ],
)
def test_hours_contain(written: str, moment: str, expected: bool) -> None:
    assert parse_hours(written).contains(datetime.fromisoformat(moment)) is expected


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "are not valid hours"),
        ("Mon-Fri 8-18", "not a valid time range"),
        ("Mon-Fri 08:00 - 18:00", "are not valid hours"),
        ("Moon 08:00-18:00", "did you mean `Mon`?"),
        ("Mon-Fri 25:00-26:00", "from 00:00 to 24:00"),
        ("Mon 08:61-09:00", "from 00:00 to 24:00"),
        ("08:00-08:00", "is empty"),
        ("08:00-18:00 Mon", "days come before"),
    ],
)
def test_hours_that_cannot_be_read_say_why(written: str, said: str) -> None:
    with pytest.raises(PropertyError) as caught:
        parse_hours(written)

    assert said in str(caught.value)
