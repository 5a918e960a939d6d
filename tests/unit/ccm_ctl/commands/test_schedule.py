"""`ccmctl schedule`: what is refused before the broker is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ccm_agent.model.errors import BusSetupError, UsageError
from ccm_agent.model.moments import parse_moment
from ccm_ctl.commands.schedule import choose_deadline_s, format_when, parse_when
from ccm_ctl.fleet.schedules import Schedules
from tests.support.controller import NOW, Desk

Said = tuple[str, str, int | None, str | None]
"""--cron, --tz, --every and --at."""


def when(said: Said) -> tuple[str, str]:
    cron, zone, every, at = said
    return parse_when(cron, zone, every, parse_moment(at) if at else None, NOW)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (("0 0 2 * * *", "Europe/Berlin", None, None), ("0 0 2 * * *", "Europe/Berlin")),
        (("", "", 3600, None), ("@every 3600s", "")),
        (("", "", None, "2126-12-01T02:00+01:00"), ("@at 2126-12-01T01:00:00Z", "")),
        (("", "", None, "2h"), ("@at 2026-11-21T14:00:00Z", "")),
    ],
)
def test_the_broker_is_told_when(said: Said, told: tuple[str, str]) -> None:
    assert when(said) == told


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (("@every 604800s", ""), "every 7d"),
        (("@every 5400s", ""), "every 90m"),
        (("@every 1h0m0s", ""), "every 1h"),
        (("@at 2126-12-01T01:00:00Z", ""), "at 2126-12-01T01:00:00Z"),
        (("0 0 2 * * *", "Europe/Berlin"), "0 2 * * * Europe/Berlin"),
        (("", ""), ""),
    ],
)
def test_people_are_reported_when_in_their_words(told: tuple[str, str], words: str) -> None:
    assert format_when(*told) == words


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (("", "", None, None), "use exactly one of --cron, --every and --at"),
        (("0 0 2 * * *", "", 5, None), "use exactly one of --cron, --every and --at"),
        (("", "UTC", 5, None), "--tz belongs to --cron"),
        (("0 0 2 * * *", "Mars/Base", None, None), "--tz Mars/Base: no time zone; write one such as Europe/Berlin"),
        (("0 0 2 * * *", "../etc", None, None), "--tz ../etc: no time zone; write one such as Europe/Berlin"),
        (("", "", None, "2020-01-01T00:00Z"), "--at 2020-01-01T00:00Z: this time has passed, and the broker would "
         "send it at once"),
    ],
)  # fmt: skip
def test_an_invalid_time_is_refused(said: Said, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        when(said)

    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("given", "catch_up", "deadline_s"),
    [(None, False, 3600), (None, True, 0), (600, False, 600), (600, True, 600)],
    ids=["an hour", "however late", "as said", "as said for who catches up"],
)
def test_nodes_may_begin_an_hour_late_and_however_late_where_they_catch_up(
    given: int | None, catch_up: bool, deadline_s: float
) -> None:
    assert choose_deadline_s(given, catch_up=catch_up) == deadline_s


def test_a_name_that_would_be_several_tokens_is_refused() -> None:
    said = Desk().ccmctl("schedule", "add", "a.b", "site/", "--every", "1h", "--all")

    assert said.err == "ccmctl: 'a.b': no name of a schedule; use letters, digits, `-` and `_`\n"


def test_an_older_server_is_reported_by_its_version() -> None:
    old = cast("Any", SimpleNamespace(server=SimpleNamespace(version=(2, 12, 3))))

    with pytest.raises(BusSetupError) as caught:
        Schedules(old)

    assert str(caught.value) == "nats-server 2.12.3: has no schedules of this kind; they need 2.14.0 or newer"
