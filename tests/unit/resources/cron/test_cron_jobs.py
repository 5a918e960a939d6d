"""The cron type: its checks, its decision table, its undo, and its provider on files in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ccm_agent.model.errors import FileError, PropertyError
from ccm_agent.model.records.undo import EarlierFile
from ccm_agent.resources.contract import Decision, DecisionContext
from ccm_agent.resources.cron import TYPE
from ccm_agent.resources.cron.crontab import Crontab, parse, render
from ccm_agent.resources.cron.model import CronJob, CronProperties
from ccm_agent.resources.cron.providers.crond import Crond
from ccm_agent.resources.cron.resource import check, decide, reach
from ccm_agent.resources.cron.undo import FOREIGN, earlier, identify
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.files import FakeFiles
from tests.support.resources import manage

PATH = "/etc/cron.d/backup"
TEXT = "# Managed by ccm\nMAILTO=ops@example.com\n30 2 * * * root /usr/bin/backup --all\n"


def wanted(name: str = "backup", **properties: Any) -> CronProperties:
    usual = {
        "ensure": "present",
        "schedule": "30 2 * * *",
        "command": "/usr/bin/backup --all",
        "environment": ["MAILTO=ops@example.com"],
    }
    return CronProperties(name=name, **{**usual, **properties})


class Host:
    """Files in memory, and the provider on them; it is noon on 1 January 2026."""

    def __init__(self, text: str | None = None, *, mode: int = 0o644, uid: int = 0) -> None:
        self.files = FakeFiles()
        self.files.put_directory("/etc/cron.d")
        if text is not None:
            self.files.put(PATH, text, mode=mode, uid=uid)
        self.provider = Crond(self.files, FakeClock(datetime(2026, 1, 1, 12, tzinfo=UTC)))

    @property
    def text(self) -> str | None:
        node = self.files.nodes.get(PATH)
        return node.content.decode() if node else None


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        pytest.param({"name": "backup.daily"}, "name", id="a name with a dot, which cron ignores"),
        pytest.param({"name": "../crontab"}, "name", id="a path upwards"),
        pytest.param({"name": "/etc/passwd"}, "name", id="an absolute path"),
        pytest.param({"name": "-rf"}, "name", id="a name like an option"),
        pytest.param({"name": "a\nb"}, "name", id="a newline in the name"),
        pytest.param({"name": "a\n"}, "name", id="a newline at the end of the name"),
        pytest.param({"name": "a:b"}, "name", id="a colon"),
        pytest.param({"name": "a\0"}, "name", id="a NUL"),
        pytest.param({"name": ""}, "name", id="an empty name"),
        pytest.param({"name": "a" * 101}, "name", id="an overlong name"),
        pytest.param({"schedule": ""}, "schedule", id="no schedule"),
        pytest.param({"schedule": "* * * *"}, "schedule", id="four fields"),
        pytest.param({"schedule": "0 * * * * *"}, "schedule", id="six fields"),
        pytest.param({"schedule": "* * * * *\n* * * * * root x"}, "schedule", id="a second line"),
        pytest.param({"schedule": "60 * * * *"}, "schedule", id="minute 60"),
        pytest.param({"schedule": "* * 0 * *"}, "schedule", id="day 0"),
        pytest.param({"schedule": "5-1 * * * *"}, "schedule", id="a range downwards"),
        pytest.param({"schedule": "5/15 * * * *"}, "schedule", id="a step of a single number"),
        pytest.param({"schedule": "*/0 * * * *"}, "schedule", id="a step of nothing"),
        pytest.param({"schedule": "? * * * *"}, "schedule", id="a question mark"),
        pytest.param({"schedule": "* * L * *"}, "schedule", id="the last day"),
        pytest.param({"schedule": "0~30 * * * *"}, "schedule", id="a random minute, only in cronie"),
        pytest.param({"schedule": "1, * * * *"}, "schedule", id="an empty part"),
        pytest.param({"schedule": "\u0661 * * * *"}, "schedule", id="digits of another script"),
        pytest.param({"schedule": "0 0 30 2 *"}, "schedule", id="30 February"),
        pytest.param({"schedule": "@fortnightly"}, "schedule", id="an unknown nickname"),
        pytest.param({"schedule": "9" * 2000}, "schedule", id="a huge schedule"),
        pytest.param({"user": "root x;"}, "user", id="a command in the user"),
        pytest.param({"user": ""}, "user", id="no user"),
        pytest.param({"user": "-u"}, "user", id="a user like an option"),
        pytest.param({"user": "a" * 33}, "user", id="an overlong user"),
        pytest.param({"command": ""}, "command", id="no command"),
        pytest.param({"command": "x\n* * * * * root y"}, "command", id="a newline in the command"),
        pytest.param({"command": "x\r"}, "command", id="a carriage return"),
        pytest.param({"command": "date +%F"}, "command", id="a percent sign"),
        pytest.param({"command": r"date +\\%F"}, "command", id="a percent sign behind an escaped backslash"),
        pytest.param({"command": "x" * 999}, "command", id="an overlong command"),
        pytest.param({"command": " x"}, "command", id="a space before the command"),
        pytest.param(
            {"environment": ["A=b\n* * * * * root y"]}, "environment[0]", id="a newline in a variable"
        ),
        pytest.param({"environment": ["PATH"]}, "environment[0]", id="no value"),
        pytest.param({"environment": ["A=1", "A=2"]}, "environment[1]", id="a variable twice"),
        pytest.param({"environment": ["1A=b"]}, "environment[0]", id="a name that is none"),
        pytest.param({"environment": ["A=\"'"]}, "environment[0]", id="both quotes"),
        pytest.param({"environment": ["A=" + "x" * 1000]}, "environment[0]", id="a huge value"),
    ],
)
def test_hostile_properties_are_refused(properties: dict[str, Any], place: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted(**properties))

    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{place}"


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted("a.b", schedule="x", command="%"))

    assert [one.place.path for one in caught.value.others if one.place] == ["$.schedule", "$.command"]


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({"command": r"date +\%F > /tmp/x"}, id="an escaped percent sign"),
        pytest.param({"schedule": "*/5,7 8-18/2 1,15 jan-mar mon-fri"}, id="lists, ranges, steps and names"),
        pytest.param({"schedule": "0 0 29 2 *"}, id="29 February"),
        pytest.param({"schedule": "0 0 30 2 mon"}, id="30 February or any Monday"),
        pytest.param({"schedule": "@reboot"}, id="at boot"),
        pytest.param({"environment": ["MAILTO=", "A=b c", 'J={"a": 1}']}, id="values that are quoted"),
        pytest.param({"ensure": "absent", "schedule": "", "command": ""}, id="absent, with a name only"),
    ],
)
def test_usual_properties_are_accepted_and_survive_the_file(properties: dict[str, Any]) -> None:
    job = wanted(**properties)

    check(job)

    if job.ensure == "present":
        expected = CronJob(
            schedule=job.schedule, user="root", command=job.command, environment=tuple(job.environment)
        )
        assert parse(render(expected)) == expected


@pytest.mark.parametrize(
    ("schedule", "times"),
    [
        pytest.param("30 2 * * *", ["2026-01-02 02:30", "2026-01-03 02:30"], id="daily"),
        pytest.param("0 0 * * 7", ["2026-01-04 00:00", "2026-01-11 00:00"], id="Sunday is 7, too"),
        pytest.param("0 0 13 * 5", ["2026-01-02 00:00", "2026-01-09 00:00"], id="either day matches"),
        pytest.param(
            "0 0 */2 * 5", ["2026-01-09 00:00", "2026-01-23 00:00"], id="a step is a star: both match"
        ),
        pytest.param("0 0 29 2 *", ["2028-02-29 00:00"], id="a leap day"),
        pytest.param("@monthly", ["2026-02-01 00:00"], id="a nickname"),
    ],
)
def test_next_times_are_those_of_cron(schedule: str, times: list[str]) -> None:
    zone, moment = ZoneInfo("UTC"), datetime(2026, 1, 1, 12, tzinfo=UTC)
    found = []
    for _ in times:
        after = Crontab(schedule).next_after(moment, zone)
        assert after is not None
        found.append(f"{after:%Y-%m-%d %H:%M}")
        moment = after

    assert found == times


@pytest.mark.parametrize(
    ("text", "properties", "noop"),
    [
        pytest.param(None, {}, ["Would have created the job"], id="no file"),
        pytest.param(TEXT, {}, [], id="stable"),
        pytest.param(TEXT, {"schedule": "@daily"}, ["Would have changed the job"], id="another schedule"),
        pytest.param(TEXT, {"environment": []}, ["Would have changed the job"], id="a variable too many"),
        pytest.param(TEXT, {"sensitive": True}, ["Would have changed the job"], id="readable by all"),
        pytest.param("garbage", {}, ["Would have changed the job"], id="another file"),
        pytest.param(TEXT, {"ensure": "absent"}, ["Would have removed the job"], id="a file too many"),
        pytest.param(None, {"ensure": "absent"}, [], id="absent"),
    ],
)
async def test_steps_follow_from_the_desired_and_the_current_state(
    text: str | None, properties: dict[str, Any], noop: list[str]
) -> None:
    host, job = Host(text), wanted(**properties)

    decision = decide(job, await host.provider.status(job), DecisionContext())

    assert decision.error is None
    assert [step.noop for step in decision.steps] == noop


@pytest.mark.parametrize(("mode", "uid"), [(0o664, 0), (0o4644, 0), (0o644, 1)])
async def test_a_file_that_cron_would_ignore_is_repaired(mode: int, uid: int) -> None:
    host = Host(TEXT, mode=mode, uid=uid)

    event = await manage(TYPE, host.provider, wanted())

    node = host.files.nodes[PATH]
    assert (event.changed, node.mode, node.uid) == (True, 0o644, 0)


async def test_the_next_times_and_the_file_are_in_the_diff() -> None:
    host = Host(TEXT)
    job = wanted(schedule="0 4 * * *")

    decision = decide(job, await host.provider.status(job), DecisionContext())
    assert decision.contents is not None
    (change,) = await decision.contents(host.provider)

    assert [(one.property, one.before, one.after) for one in decision.changes] == [
        ("schedule", "30 2 * * *", "0 4 * * *"),
        ("next_runs", "", "2026-01-02 04:00 UTC, 2026-01-03 04:00 UTC, 2026-01-04 04:00 UTC"),
    ]
    assert (change.before, change.after) == (TEXT.encode(), TEXT.replace("30 2", "0 4").encode())


async def test_a_job_is_written_stable_and_removed() -> None:
    host = Host()

    first = await manage(TYPE, host.provider, wanted())
    second = await manage(TYPE, host.provider, wanted())
    written = host.text
    await manage(TYPE, host.provider, wanted(ensure="absent"))

    assert (first.changed, first.error, second.changed, second.error) == (True, [], False, [])
    assert written == TEXT
    assert host.text is None


async def test_published_states_have_neither_command_nor_variables() -> None:
    event = await manage(TYPE, Host(TEXT).provider, wanted())

    assert "ops@example.com" not in repr(event.status)
    assert "backup --all" not in repr(event.status)


async def test_an_unknown_user_is_an_error_before_any_change() -> None:
    host = Host(TEXT)

    event = await manage(TYPE, host.provider, wanted(user="nosuch"))

    assert event.error == ["there is no user 'nosuch' on this machine"]
    assert host.text == TEXT


async def test_without_cron_the_error_names_its_package_and_a_plan_goes_on() -> None:
    host = Host()
    del host.files.nodes["/etc/cron.d"]
    found = await host.provider.status(wanted())

    real, plan = (decide(wanted(), found, DecisionContext(noop=noop)) for noop in (False, True))

    assert isinstance(real.error, FileError)
    assert "install `cron` (Debian) or `cronie`" in str(real.error)
    assert [step.noop for step in plan.steps] == ["Would have created the job"]


async def test_a_file_that_cannot_be_written_stays_as_it_was() -> None:
    host = Host(TEXT)
    host.files.refuses[PATH] = "No space left on device"

    event = await manage(TYPE, host.provider, wanted(schedule="@daily"))

    assert event.error == [f"{PATH}: No space left on device"]
    assert host.text == TEXT


@pytest.mark.parametrize("kind", ["directory", "fifo"])
async def test_what_is_no_file_is_an_error(kind: str) -> None:
    host = Host()
    if kind == "directory":
        host.files.put_directory(PATH)
    else:
        host.files.put_fifo(PATH)

    event = await manage(TYPE, host.provider, wanted())

    assert event.failed
    assert "is not a regular file" in event.error[0]


async def test_a_symlink_is_replaced_and_its_target_is_kept() -> None:
    host = Host()
    host.files.put("/etc/passwd", "root")
    host.files.put_symlink(PATH, "/etc/passwd")

    event = await manage(TYPE, host.provider, wanted())

    assert (event.changed, host.text) == (True, TEXT)
    assert host.files.nodes["/etc/passwd"].content == b"root"


async def test_a_thousand_jobs_are_one_look() -> None:
    host = Host()
    many = [wanted(f"job{number}") for number in range(1000)]
    for one in many:
        host.files.put(one.path, TEXT)

    found = await host.provider.look_ahead(many)

    assert {one.schedule for one in found} == {"30 2 * * *"}
    assert len(host.files.looked_at) == 1


def test_the_policy_sees_the_file() -> None:
    assert reach(wanted()).paths == (PATH,)


async def keep_nothing(path: str, *, with_content: bool) -> EarlierFile:
    raise AssertionError("no file is kept")


@pytest.mark.parametrize(
    ("text", "change"),
    [
        pytest.param(None, {}, id="there was no file"),
        pytest.param(TEXT, {"schedule": "@daily", "environment": [], "user": "daemon"}, id="another job"),
        pytest.param(TEXT, {"ensure": "absent"}, id="it was removed"),
    ],
)
async def test_an_undo_restores_the_file(text: str | None, change: dict[str, Any]) -> None:
    host, job = Host(text), wanted(**change)
    found = await host.provider.status(job)
    before = identify(found)
    kept = await earlier(job, found, Decision(), keep_nothing)

    await manage(TYPE, host.provider, job)
    changed = identify(await host.provider.status(job))
    back = CronProperties(name="backup", **kept.properties)
    await manage(TYPE, host.provider, back)

    assert changed != before
    assert (host.text, identify(await host.provider.status(back))) == (text, before)


@pytest.mark.parametrize(
    "text", ["# mine\n* * * * * root x\n", "* * * * * root x\n* * * * * root y\n", "* * * * * root 100%\n"]
)
async def test_a_foreign_file_is_not_undone(text: str) -> None:
    kept = await earlier(wanted(), await Host(text).provider.status(wanted()), Decision(), keep_nothing)

    assert kept.why_not == FOREIGN
