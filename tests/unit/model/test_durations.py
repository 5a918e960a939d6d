import pytest

from ccm_agent.model.errors import DocumentError
from ccm_agent.model.formats.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("30s", 30, id="seconds"),
        pytest.param("1h30m", 5400, id="parts are added"),
        pytest.param("1.5s", 1.5, id="a fraction"),
        pytest.param("250ms", 0.25, id="milliseconds are not minutes and seconds"),
        pytest.param("2d", 172_800, id="days, which Go does not know"),
        pytest.param("1w", 604_800, id="weeks"),
        pytest.param("1M", 2_592_000, id="a month is 30 days and not a minute"),
        pytest.param("1y1d", 31_622_400, id="years and days"),
        pytest.param("-10m", -600, id="negative"),
        pytest.param("0", 0, id="nought needs no unit"),
        pytest.param(" 5m ", 300, id="white space around it"),
        pytest.param("1h 30m", 5400, id="white space between parts"),
    ],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "5m x", "1h-5m", "five minutes"])
def test_an_invalid_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_duration(text)

    assert caught.value.message == (
        f"`{text}` is not a duration: write a number and a unit, such as 30s, 5m or 1h30m"
    )


def test_an_unknown_unit_is_named() -> None:
    with pytest.raises(DocumentError) as caught:
        parse_duration("5fortnights")

    assert caught.value.message == (
        "`5fortnights`: unknown unit `fortnights`; use ns, us, ms, s, m, h, d, w, M or y"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(300, "5m"), (90, "90s"), (0.25, "250ms"), (86_400, "1d"), (0, "0s"), (-60, "-1m")],
)
def test_a_duration_is_written_in_the_largest_whole_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
