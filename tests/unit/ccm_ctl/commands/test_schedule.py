"""`ccmctl schedule`: what is refused before the broker is asked."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from ccm_agent.bus.subjects import rollout_schedule_subject, rollout_start_subject, starts_key
from ccm_agent.model.errors import BusSetupError, UsageError
from ccm_agent.model.formats.moments import parse_moment
from ccm_agent.model.records.rollout_records import ScheduledStart, ScheduleStarts
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.commands.schedules.schedule import choose_deadline_s, format_when, parse_when
from ccm_ctl.fleet.rollout.plan import RolloutDefinition, RolloutFile, RolloutOptions, WaveSpec
from ccm_ctl.fleet.rollout.scheduled import ScheduledRollout
from ccm_ctl.fleet.schedules.schedules import Schedules
from ccm_ctl.fleet.schedules.stored_schedule import Schedule
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
        (("", "UTC", 5, None), "--tz requires --cron"),
        (("0 0 2 * * *", "Mars/Base", None, None), "--tz Mars/Base: unknown time zone; use a name such as Europe/Berlin"),
        (("0 0 2 * * *", "../etc", None, None), "--tz ../etc: unknown time zone; use a name such as Europe/Berlin"),
        (("", "", None, "2020-01-01T00:00Z"), "--at 2020-01-01T00:00Z: this time has passed; the broker would "
         "send the request immediately"),
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

    assert said.err == "ccmctl: 'a.b': not a valid name for a schedule; use letters, digits, `-` and `_`\n"


def test_an_older_server_is_reported_by_its_version() -> None:
    old = cast("Any", SimpleNamespace(server=SimpleNamespace(version=(2, 12, 3))))

    with pytest.raises(BusSetupError) as caught:
        Schedules(old)

    assert (
        str(caught.value)
        == "nats-server 2.12.3: does not support schedules of this kind; 2.14.0 or newer is required"
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--start-within", "5m"), "--start-within requires a rollout; add --batch, --canary or --rollout"),
        (("--batch", "1", "--catch-up"), "--catch-up cannot be combined with a rollout, which includes nodes that return "
         "while it is in progress"),
        (("--batches", "1"), "unknown option `--batches`, did you mean `--batch`?"),
        (("--batch", "1", "--start-witin", "5m"), "unknown option `--start-witin`, did you mean `--start-within`?"),
        (("--batch", "1", "--detach"), "unknown option `--detach`, did you mean `--data`?"),
    ],
)  # fmt: skip
def test_options_that_contradict_a_rollout_are_refused(options: tuple[str, ...], sentence: str) -> None:
    said = Desk().ccmctl("schedule", "add", "nightly", "site/", "--every", "1h", "--all", *options)

    assert (said.code, said.err.splitlines()[0]) == (1, f"ccmctl: {sentence}")


ROLLOUT = ScheduledRollout(
    request=ManifestRequest(protocol=MANIFEST_APPLY, targets=["role=web"], name="site"),
    scope="fact.role.web",
    definition=RolloutDefinition(options=RolloutOptions(canary=1, batch="10%", gate="failed == 0")),
)
SCHEDULE = Schedule(
    name="patch",
    subject=rollout_schedule_subject("patch"),
    protocol=MANIFEST_APPLY,
    scope="fact.role.web",
    target=rollout_start_subject("patch"),
    when="@every 3600s",
    stored=NOW - timedelta(days=1),
    last=NOW - timedelta(minutes=5),
    request=ROLLOUT.request,
    rollout=ROLLOUT,
)


def test_the_starts_of_a_rollout_are_shown_with_what_waits_for_a_server() -> None:
    desk = Desk()
    desk.schedules = [SCHEDULE]

    async def put(broker: MemoryBroker) -> None:
        starts = ScheduleStarts(
            name="patch",
            starts=(
                ScheduledStart(due=NOW - timedelta(hours=1), reason="no node matches", by="server@host"),
            ),
        )
        await (
            MemoryBus(broker, "server")
            .bucket("CCM_RUNS")
            .put(starts_key("patch"), msgspec.json.encode(starts))
        )

    desk.hooks.append(put)
    said = desk.ccmctl("schedule", "status", "patch")
    told = desk.ccmctl("schedule", "status", "patch", "--json")

    assert (said.code, said.err) == (
        1,
        "ccmctl: warning: the start of 2026-11-21 11:55:00Z waits for a rollout server; run `ccmctl rollout serve`\n",
    )
    assert said.out == (
        "patch: rollout with --canary 1 --batch 10% --gate 'failed == 0'\n"
        "DUE                   RESULT                    SERVER\n"
        "2026-11-21 11:00:00Z  skipped: no node matches  server@host\n"
    )
    assert told.records == [
        {
            "record": "scheduled_start",
            "name": "patch",
            "due": "2026-11-21T11:00:00Z",
            "reason": "no node matches",
            "by": "server@host",
        }
    ]


FILE = RolloutFile(waves=[WaveSpec(name="canary"), WaveSpec()])
LONG_FILE = RolloutFile(waves=[WaveSpec()] * 7)


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        (
            RolloutDefinition(options=RolloutOptions(batch="1,10%", bake_s=600.0, failed="5%")),
            "--bake 10m --batch 1,10% --max-failures 5%",
        ),
        (RolloutDefinition(file=FILE), "2 waves of a file: canary, wave 2"),
        (
            RolloutDefinition(file=LONG_FILE),
            "7 waves of a file: wave 1, wave 2, wave 3, wave 4, wave 5 and 2 more",
        ),
    ],
)
def test_a_rollout_is_shown_as_it_was_written(definition: RolloutDefinition, words: str) -> None:
    assert str(definition) == words
