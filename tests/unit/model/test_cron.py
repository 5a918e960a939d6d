"""When a cron of six fields is due next."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from ccm_agent.model.errors import UsageError
from ccm_agent.model.formats.cron import Cron, shown_fields, six_fields

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)  # a Saturday


@pytest.mark.parametrize(
    ("fields", "zone", "after", "due"),
    [
        ("0 0 2 * * *", "UTC", NOW, "2026-11-22T02:00:00"),
        ("0 0 2 * * *", "Europe/Berlin", NOW, "2026-11-22T01:00:00"),
        ("*/20 * * * * *", "UTC", NOW, "2026-11-21T12:00:20"),
        ("0 0,30 12-13 * * *", "UTC", NOW, "2026-11-21T12:30:00"),
        ("0 15/15 * * * *", "UTC", NOW, "2026-11-21T12:15:00"),
        ("0 0 0 1 JAN ?", "UTC", NOW, "2027-01-01T00:00:00"),
        ("0 0 0 * * MON-FRI", "UTC", NOW, "2026-11-23T00:00:00"),
        ("0 0 0 29 2 *", "UTC", NOW, "2028-02-29T00:00:00"),
        ("0 0 0 13 * FRI", "UTC", NOW, "2026-11-27T00:00:00"),
        ("0 0 0 30 2 *", "UTC", NOW, None),
        # 02:30 does not exist on 28 March 2027 in Berlin
        ("0 30 2 * * *", "Europe/Berlin", datetime(2027, 3, 27, 12, tzinfo=UTC), "2027-03-29T00:30:00"),
    ],
)
def test_the_next_time_is_the_first_after_now(
    fields: str, zone: str, after: datetime, due: str | None
) -> None:
    found = Cron(fields).next_after(after, ZoneInfo(zone))

    assert found == (datetime.fromisoformat(due).replace(tzinfo=UTC) if due else None)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("0 2 * * *", "expected six fields (second minute hour day month weekday), found 5"),
        ("0 60 2 * * *", "'60' is not a valid minute, which goes from 0 to 59"),
        ("0 0 2 * * XYZ", "'XYZ' is not a valid weekday"),
        ("0 0 2-1 * * *", "'2-1' is not a valid hour, which goes from 0 to 23"),
        ("*/0 0 2 * * *", "'*/0' is not a valid second, which goes from 0 to 59"),
    ],
)
def test_an_invalid_cron_is_refused(fields: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Cron(fields)

    assert str(caught.value) == f"--cron {fields!r}: {said}"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("0 0 2 * * *", "0 0 2 * * *"),
        ("  */5  2 * * MON ", "0 */5 2 * * MON"),
        ("0 2 * * 7", "0 0 2 * * 0"),
        ("0 2 * * 5-7", "0 0 2 * * 0,5,6"),
        ("0 2 * * fri-sun", "0 0 2 * * 0,5,6"),
        ("0 2 * * mon,SAT-SUN", "0 0 2 * * 0,1,6"),
        ("0 2 * * Mon-Fri", "0 0 2 * * Mon-Fri"),
        ("0 2 * jan,JUL *", "0 0 2 * jan,JUL *"),
        ("@hourly", "0 0 * * * *"),
        ("@midnight", "0 0 0 * * *"),
        ("@monthly", "0 0 0 1 * *"),
        ("@yearly", "0 0 0 1 1 *"),
        ("@annually", "0 0 0 1 1 *"),
        ("@daily", "0 0 0 * * *"),
        ("@Weekly", "0 0 0 * * 0"),
    ],
)
def test_crontab_fields_and_nicknames_become_six_fields(text: str, fields: str) -> None:
    assert six_fields(text) == fields
    assert Cron(fields).next_after(NOW, ZoneInfo("UTC")) is not None


@pytest.mark.parametrize("text", ["", "* *", "@noon", "0 0 0 0 0 0 0", "61 2 * * *", "0 0 2 * * 7"])
def test_invalid_cron_expression_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--cron"):
        six_fields(text)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [("0 0 2 * * *", "0 2 * * *"), ("30 0 2 * * *", "30 0 2 * * *"), ("*/20 * * * * *", "*/20 * * * * *")],
)
def test_cron_is_shown_as_in_a_crontab_unless_it_has_seconds(fields: str, shown: str) -> None:
    assert shown_fields(fields) == shown
    assert six_fields(shown) == fields
