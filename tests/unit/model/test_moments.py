"""Times of options: RFC 3339, or a duration that is counted from now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ccm_agent.clikit.text import clock
from ccm_agent.model.errors import DocumentError
from ccm_agent.model.formats.moments import parse_moment

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-12-01T02:00Z", datetime(2026, 12, 1, 2, tzinfo=UTC)),
        ("2026-12-01T02:00+02:00", datetime(2026, 12, 1, tzinfo=UTC)),
        ("2026-12-01 02:00:05.5Z", datetime(2026, 12, 1, 2, 0, 5, 500_000, tzinfo=UTC)),
        ("2026-12-01T02:00", datetime(2026, 12, 1, 2).astimezone()),
    ],
)
def test_time_is_the_same_in_both_directions(text: str, moment: datetime) -> None:
    parsed = parse_moment(text)

    assert (parsed.after(NOW), parsed.before(NOW)) == (moment, moment)


def test_duration_is_counted_from_now() -> None:
    parsed = parse_moment("1h30m")

    assert parsed.after(NOW) == NOW + timedelta(minutes=90)
    assert parsed.before(NOW) == NOW - timedelta(minutes=90)


def test_time_in_output_can_be_given_as_an_option() -> None:
    assert parse_moment(clock(NOW)).after(NOW) == NOW


@pytest.mark.parametrize("text", ["soon", "", "2026-13-01", "12:00", "0001-01-01T00:00+14:00"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(DocumentError, match="is not a time: write a duration such as 30m, or a time such as"):
        parse_moment(text)


def test_duration_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(DocumentError, match="is not a time"):
        parse_moment("99999999y").after(NOW)
