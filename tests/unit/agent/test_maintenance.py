"""A disabled node: what stands on disk, when it is over, and who is told."""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.agent.runs.admission import FILE, Maintenance, disable, enable, read_disabled
from ccm_agent.model.errors import FileError
from ccm_agent.model.wire import Disabled
from tests.support.agent import WAIT_S, FakeClock, until

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
FOUR_HOURS = Disabled(since=NOON, until=NOON + timedelta(hours=4), why="the disk is replaced", by="maria")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
def blockbuster() -> None:
    """Tests play the operator, who has a process of his own: they may write files."""


def opened(folder: Path, clock: Any) -> Maintenance:
    one = Maintenance(folder, clock)
    one.open()
    return one


def test_node_is_enabled_by_default(tmp_path: Path, clock: FakeClock) -> None:
    one = opened(tmp_path, clock)

    assert (one.current, one.is_disabled(), one.refusal("apply")) == (None, False, None)


def test_disabled_state_survives_a_restart_and_only_its_owner_can_read_it(
    tmp_path: Path, clock: FakeClock
) -> None:
    disable(tmp_path, FOUR_HOURS)

    assert opened(tmp_path, clock).current == FOUR_HOURS
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_file_written_by_root_can_be_read_by_an_unprivileged_agent(tmp_path: Path) -> None:
    os.chown(tmp_path, 65_534, 65_534)

    disable(tmp_path, FOUR_HOURS)

    found = (tmp_path / FILE).stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (65_534, 65_534, 0o600)


@pytest.mark.parametrize("trap", ["link", "file"])
def test_the_current_one_in_its_way_is_neither_followed_nor_given_away(tmp_path: Path, trap: str) -> None:
    other = tmp_path / "other"
    other.write_text("precious")
    fresh = tmp_path / f"{FILE}.new"
    fresh.symlink_to(other) if trap == "link" else fresh.hardlink_to(other)

    disable(tmp_path, FOUR_HOURS)

    assert other.read_text() == "precious"
    assert read_disabled(tmp_path) == FOUR_HOURS
    assert not fresh.exists()


def test_it_ends_by_itself_when_its_time_has_come(tmp_path: Path, clock: FakeClock) -> None:
    disable(tmp_path, FOUR_HOURS)
    one = opened(tmp_path, clock)

    clock.pass_s(4 * 3600 - 1)
    before = one.is_disabled()
    clock.pass_s(1)

    assert (before, one.is_disabled(), opened(tmp_path, clock).is_disabled()) == (True, False, False)


def test_without_an_end_the_node_stays_disabled_until_it_is_enabled(tmp_path: Path, clock: FakeClock) -> None:
    disable(tmp_path, Disabled(since=NOON, why="x"))
    clock.pass_s(1e8)
    before = opened(tmp_path, clock).is_disabled()

    ended = enable(tmp_path), enable(tmp_path)

    assert (before, ended, opened(tmp_path, clock).is_disabled()) == (True, (True, False), False)


@pytest.mark.parametrize(
    ("action", "code"),
    [("apply", "agent.disabled"), ("ensure", "agent.disabled"), ("plan", ""), ("check", "")],
)
def test_what_changes_something_is_refused_and_the_rest_is_not(
    tmp_path: Path, clock: FakeClock, action: str, code: str
) -> None:
    disable(tmp_path, FOUR_HOURS)

    refusal = opened(tmp_path, clock).refusal(action)

    assert (refusal.code if refusal else "") == code


@pytest.mark.parametrize(
    ("disabled", "said"),
    [
        (FOUR_HOURS, "disabled until 2026-11-21 16:00:00Z by maria: the disk is replaced"),
        (Disabled(since=NOON, why="x", by="maria"), "disabled by maria: x"),
        (Disabled(since=NOON), "disabled: no reason given"),
    ],
    ids=["all is known", "no end", "nothing is known"],
)
def test_sentence_has_end_operator_and_reason(disabled: Disabled, said: str) -> None:
    assert disabled.sentence == said


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"since":"2026-11-21T12:00:00Z","until":"2026-11-21T16:00:00"}'],
    ids=["empty", "half", "no mapping", "a time without a zone"],
)
def test_a_file_that_cannot_be_read_disables_and_looks_the_same_each_time(
    tmp_path: Path, clock: FakeClock, text: str
) -> None:
    (tmp_path / FILE).write_text(text)

    found = opened(tmp_path, clock).current

    assert found is not None
    assert "cannot be read" in found.why
    assert "`ccm agent enable` removes it" in found.why
    assert read_disabled(tmp_path) == found
    assert enable(tmp_path)


def test_a_state_folder_that_is_missing_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="the state folder does not exist"):
        disable(tmp_path / "none", FOUR_HOURS)

    assert not (tmp_path / "none").exists()


async def test_each_change_is_reported_once_to_each_listener(tmp_path: Path, clock: FakeClock) -> None:
    one = opened(tmp_path, clock)
    told: list[Disabled | None] = []
    one.on_change(told.append)
    task = asyncio.create_task(one.run())

    disable(tmp_path, FOUR_HOURS)
    one.request_read()
    await until(lambda: told == [FOUR_HOURS])
    await one.read_now()
    clock.pass_s(5 * 3600)
    one.request_read()
    await until(lambda: told == [FOUR_HOURS, None])

    task.cancel()
    assert told == [FOUR_HOURS, None]


async def test_file_written_without_a_notification_is_found(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm_agent.agent.runs.admission.LOOK_S", 0.01)
    one = opened(tmp_path, clock)
    known = asyncio.Event()
    one.on_change(lambda _: known.set())
    task = asyncio.create_task(one.run())

    disable(tmp_path, FOUR_HOURS)

    async with asyncio.timeout(WAIT_S):
        await known.wait()
    task.cancel()
    assert one.current == FOUR_HOURS
