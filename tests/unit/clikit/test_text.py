"""Small pieces of text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ccm_agent.clikit.text import (
    ago,
    clock,
    counted,
    ended,
    fold_names,
    lasting,
    one_line,
    plural,
    safe,
    short_ids,
    shortened,
    size,
    span,
)


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        pytest.param(["web1", "web2", "web3"], "web[1-3]", id="a run of numbers"),
        pytest.param(["web1", "web3", "web10"], "web[1,3,10]", id="numbers apart"),
        pytest.param(["db", "web2", "web1", "web2"], "db, web[1-2]", id="names without a number, and one twice"),
        pytest.param(["web2.a.org", "web1.a.org", "web1.b.org"], "web1.b.org, web[1-2].a.org", id="the host's number"),
        pytest.param(["web08", "web09", "web10", "web1"], "web1, web[08-10]", id="leading zeros are kept"),
        pytest.param(["10-0-0-1", "10-0-0-2"], "10-0-0-[1-2]", id="the last number"),
        pytest.param(["a", "b", "c"], "a, b and 1 more", id="many groups are counted"),
        pytest.param([], "", id="nobody"),
    ],
)  # fmt: skip
def test_names_are_folded(names: list[str], folded: str) -> None:
    assert fold_names(names, 2 if names == ["a", "b", "c"] else 8) == folded


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        pytest.param(
            {"changed": 2, "failed": 0, "stable": 1}, "2 changed, 1 stable", id="only what there is"
        ),
        pytest.param({"stable": 1, "changed": 2}, "1 stable, 2 changed", id="in the order given"),
        pytest.param({"failed": 0}, "", id="nothing"),
    ],
)
def test_existing_metrics_are_counted(numbers: dict[str, int], words: str) -> None:
    assert counted(numbers) == words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("plain é ✓\ttab\nline", "plain é ✓\ttab\nline", id="text"),
        pytest.param("\x1b[2J\x07", "\\x1b[2J\\x07", id="what a terminal would obey"),
        pytest.param("a\rb", "a\\x0db", id="a line that would be written over"),
        pytest.param("a\r\nb", "a\nb", id="line ends of another system"),
        pytest.param("\x9b31m", "\\x9b31m", id="the other control characters"),
        pytest.param("abc\u202edef", "abc\\u202edef", id="writing turned around"),
        pytest.param("\udc80", "\\udc80", id="half a character"),
    ],
)
def test_text_from_a_node_is_safe_to_print(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_one_line_is_one_line() -> None:
    assert one_line("a\n  b\tc\x1b") == "a b c\\x1b"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"), (0.0004, "0ms"), (0.04, "40ms"), (0.9994, "999ms"), (0.9996, "1.0s"),
        (9.94, "9.9s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m"), (61, "1m1s"),
        (3599.6, "1h"), (7500, "2h5m"), (90000, "1d1h"), (-3, "0ms"),
    ],
)  # fmt: skip
def test_spans_are_short(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_times_are_reported() -> None:
    now = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

    assert (ago(now - timedelta(minutes=5), now), ago(None, now)) == ("5m ago", "")
    assert (ago(now, now), ago(now + timedelta(minutes=1), now)) == ("just now", "just now")
    assert ago(now + timedelta(hours=2), now) == "2h in the future"
    assert (clock(now), clock(None)) == ("2026-11-21 12:00:00Z", "")


def test_counts_and_sizes_are_reported() -> None:
    assert [plural(count, "node") for count in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
    assert [size(count) for count in (0, 1023, 1024, 1 << 30)] == ["0 B", "1023 B", "1.0 KiB", "1.0 GiB"]


def test_no_text_reverses_or_breaks_its_line() -> None:
    assert safe("a\u061cb\u2028c\u2029d") == "a\\u061cb\\u2028c\\u2029d"


@pytest.mark.parametrize(
    ("text", "limit", "short"),
    [
        ("all of it", 9, "all of it"),
        ("all of it", 8, "all of …"),
        ("a list, and more", 10, "a list …"),
        ("onelongword", 5, "onel…"),
        ("", 5, ""),
    ],
)
def test_a_long_text_ends_after_a_whole_word(text: str, limit: int, short: str) -> None:
    assert shortened(text, limit) == short


@pytest.mark.parametrize(
    ("text", "sentence"), [("it is", "it is."), ("it is.", "it is."), ("it was cut …", "it was cut …")]
)
def test_a_sentence_ends_with_one_period_or_with_its_ellipsis(text: str, sentence: str) -> None:
    assert ended(text) == sentence


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, ""), (0, ""), (0.4, ""), (1, " for 1.0s"), (720, " for 12m")]
)
def test_duration_since_a_time_in_words(seconds: float | None, words: str) -> None:
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)

    assert lasting(None if seconds is None else now - timedelta(seconds=seconds), now) == words


def test_ids_are_short_unless_others_begin_alike() -> None:
    alike = ["3MTEJlnZb5Ri8Bf7W1UTTZkdHcW", "3MTEJlnZb5Ri8Bf7W1UTTZkdHcP"]

    assert short_ids([*alike, "3MTEP5PUIVMOZEpSMeQ2wGoTWXg"]) == {
        **{run: run for run in alike},
        "3MTEP5PUIVMOZEpSMeQ2wGoTWXg": "3MTEP5PU",
    }
    assert short_ids([]) == {}
