"""What a node keeps to undo its runs: the journal, its bounds, and what a kill or a full disk leaves."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ccm_agent.model.errors import FileError, UndoError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_SUMMARY, SessionSummary
from ccm_agent.model.records.undo import UndoEntry
from ccm_agent.storage import undo_store
from ccm_agent.storage.journal import Journal
from ccm_agent.storage.undo_store import UNKNOWN_END, UndoLine, UndoStore, fold
from ccm_agent.testing.clock import FakeClock

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
RUN = new_id(NOON)
OLD = {"ensure": "present", "content": "a" * 64}
NEW = {"ensure": "present", "content": "b" * 64}


def entry(name: str = "/etc/motd", content: str = "", **fields: object) -> UndoEntry:
    return UndoEntry(type="file", name=name, properties={"ensure": "absent"}, content=content, **fields)  # type: ignore[arg-type]


async def opened(folder: Path, clock: FakeClock | None = None, **limits: float) -> UndoStore:
    given = {"keep_s": 86_400, "limit_bytes": 1000} | limits
    store = UndoStore(
        folder, clock or FakeClock(NOON), keep_s=given["keep_s"], limit_bytes=int(given["limit_bytes"])
    )
    await asyncio.to_thread(store.open)
    return store


async def change(store: UndoStore, run: str, one: UndoEntry) -> None:
    """A run that changes one resource."""
    await store.before(run, one)
    one.left = dict(NEW)
    await store.after(run, one, has_changed=True)


def contents(store: UndoStore) -> list[str]:
    """Names of the contents that are kept."""
    return sorted(path.name for path in Path(store.folder).iterdir())


def runs_of(folder: Path) -> list[str]:
    """The runs on record."""
    return sorted(path.stem for path in (folder / "undo" / "runs").iterdir())


def modes_in(folder: Path) -> dict[str, int]:
    return {path.relative_to(folder).as_posix(): path.stat().st_mode & 0o777 for path in folder.rglob("*")}


def keep(store: UndoStore, digest: str, size_bytes: int) -> None:
    """A content as the engine puts it there."""
    (Path(store.folder) / digest).write_bytes(b"x" * size_bytes)


async def test_a_run_is_found_with_what_it_changed_last_first(tmp_path: Path) -> None:
    store = await opened(tmp_path / "undo")
    await change(store, RUN, entry("/a"))
    await change(store, RUN, entry("/b"))
    await store.close(RUN)

    found = await (await opened(tmp_path / "undo")).find(RUN)

    assert [one.name for one in found.entries] == ["/b", "/a"]
    assert found.entries[0].left == NEW
    assert found.folder == str(tmp_path / "undo" / "content")


async def test_files_are_for_the_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = await opened(tmp_path / "undo")
        await change(store, RUN, entry())
        await store.close(RUN)
    finally:
        os.umask(before)

    assert modes_in(tmp_path) == {
        "undo": 0o700,
        "undo/content": 0o700,
        "undo/runs": 0o700,
        f"undo/runs/{RUN}.log": 0o600,
    }


def test_the_state_before_the_first_and_after_the_last_change_count() -> None:
    lines = [
        UndoLine(before=entry(content="a" * 64)),
        UndoLine(type="file", name="/etc/motd", left=OLD),
        UndoLine(before=entry(content="c" * 64)),
        UndoLine(type="file", name="/etc/motd", left=NEW),
    ]

    assert fold(lines) == [entry(content="a" * 64, left=NEW)]


def test_a_resource_that_turned_out_not_to_change_is_left_out() -> None:
    lines = [UndoLine(before=entry()), UndoLine(type="file", name="/etc/motd", left=OLD, has_changed=False)]

    assert fold(lines) == []


def test_a_change_that_did_not_end_cannot_be_undone() -> None:
    assert fold([UndoLine(before=entry())]) == [entry(why_not=UNKNOWN_END)]


async def test_a_kill_at_any_byte_leaves_a_record_that_can_be_used(tmp_path: Path) -> None:
    store = await opened(tmp_path / "undo")
    await change(store, RUN, entry("/a"))
    await change(store, RUN, entry("/b"))
    await store.close(RUN)
    path = tmp_path / "undo" / "runs" / f"{RUN}.log"
    whole = path.read_bytes()
    seen = set[tuple[tuple[str, str], ...]]()

    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        try:
            found = await (await opened(tmp_path / "undo")).find(RUN)
        except UndoError:
            continue
        seen.add(tuple((one.name, one.why_not) for one in found.entries))

    assert seen == {
        (),
        (("/a", UNKNOWN_END),),
        (("/a", ""),),
        (("/b", UNKNOWN_END), ("/a", "")),
        (("/b", ""), ("/a", "")),
    }


async def test_a_run_that_another_process_continues_is_one_record(tmp_path: Path) -> None:
    first = await opened(tmp_path / "undo")
    await change(first, RUN, entry("/a"))
    await first.close(RUN)
    second = await opened(tmp_path / "undo")
    await change(second, RUN, entry("/b"))
    await second.close(RUN)

    assert [one.name for one in (await second.find(RUN)).entries] == ["/b", "/a"]


async def test_a_damaged_record_is_not_used(tmp_path: Path) -> None:
    store = await opened(tmp_path / "undo")
    await change(store, RUN, entry("/a"))
    await store.close(RUN)
    path = tmp_path / "undo" / "runs" / f"{RUN}.log"
    content = bytearray(path.read_bytes())
    content[content.index(b'"before"')] ^= 0xFF
    path.write_bytes(bytes(content))

    with pytest.raises(UndoError, match="is damaged, so nothing was undone"):
        await store.find(RUN)


async def test_an_unknown_run_is_refused_with_how_long_records_are_kept(tmp_path: Path) -> None:
    store = await opened(tmp_path / "undo")

    with pytest.raises(UndoError) as caught:
        await store.find(RUN)
    with pytest.raises(UndoError):
        await store.find("../../etc/passwd")

    assert str(caught.value) == (
        f"this node has no record of the run {RUN}: it changed nothing here, or its record was removed (`undo_keep` is "
        "1d, `undo_max_mib` is 0)"
    )


async def test_records_and_their_contents_end_after_their_time(tmp_path: Path) -> None:
    clock = FakeClock(NOON)
    store = await opened(tmp_path / "undo", clock)
    keep(store, "a" * 64, 10)
    await change(store, RUN, entry(content="a" * 64))
    await store.close(RUN)
    await clock.advance(86_400)

    with pytest.raises(UndoError):
        await store.find(RUN)
    await opened(tmp_path / "undo", clock)

    assert list((tmp_path / "undo").glob("*/*")) == []


async def test_the_oldest_runs_make_room_and_the_current_one_does_not(tmp_path: Path) -> None:
    store = await opened(tmp_path / "undo", limit_bytes=100)
    runs = [new_id(NOON + timedelta(seconds=number)) for number in range(3)]
    for number, run in enumerate(runs[:2]):
        assert await store.make_room(run, 40) == ""
        keep(store, str(number) * 64, 40)
        await change(store, run, entry(content=str(number) * 64))
        await store.close(run)

    assert await store.make_room(runs[2], 40) == ""
    keep(store, "2" * 64, 40)
    await change(store, runs[2], entry(content="2" * 64))
    too_much = await store.make_room(runs[2], 70)
    await store.close(runs[2])

    assert too_much == "this run would need more than 0 MiB (`undo_max_mib`)"
    assert runs_of(tmp_path) == [runs[2]]
    assert contents(store) == ["2" * 64]


async def test_the_run_that_is_undone_does_not_make_room(tmp_path: Path) -> None:
    store = await opened(tmp_path / "undo", limit_bytes=100)
    undo = new_id(NOON + timedelta(seconds=1))
    keep(store, "a" * 64, 60)
    await change(store, RUN, entry(content="a" * 64))
    await store.close(RUN)
    store = await opened(tmp_path / "undo", limit_bytes=100)

    too_much = await store.make_room(undo, 60, undone=RUN)

    assert too_much == "this run and the one that it undoes would need more than 0 MiB (`undo_max_mib`)"
    assert [one.content for one in (await store.find(RUN)).entries] == ["a" * 64]
    assert contents(store) == ["a" * 64]


async def test_what_cannot_be_removed_takes_its_place_and_raises_nothing(tmp_path: Path) -> None:
    store = await opened(tmp_path / "undo", limit_bytes=100)
    (Path(store.folder) / "folder").mkdir()

    too_much = await store.make_room(RUN, 200)

    assert too_much.startswith("older runs cannot be removed: ")


async def test_a_content_that_two_runs_share_stays_until_the_last_one_goes(tmp_path: Path) -> None:
    clock = FakeClock(NOON)
    store = await opened(tmp_path / "undo", clock)
    keep(store, "a" * 64, 10)
    await change(store, RUN, entry(content="a" * 64))
    await store.close(RUN)
    await clock.advance(50_000)
    later = new_id(clock.now())
    await change(store, later, entry(content="a" * 64))
    await clock.advance(50_000)
    await store.close(later)

    assert runs_of(tmp_path) == [later]
    assert contents(store) == ["a" * 64]


async def test_the_number_of_runs_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo_store, "RUNS_LIMIT", 2)
    store = await opened(tmp_path / "undo")
    runs = [new_id(NOON + timedelta(seconds=number)) for number in range(4)]
    for run in runs:
        await change(store, run, entry())
        await store.close(run)

    assert runs_of(tmp_path) == runs[2:]


async def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    store = await opened(tmp_path / "undo")
    keep(store, ".ccm-0123456789abcdef.part", 10)
    keep(store, "a" * 64, 10)

    store = await opened(tmp_path / "undo")

    assert contents(store) == []


@pytest.mark.parametrize("limits", [{"keep_s": 0}, {"limit_bytes": 0}])
async def test_nothing_is_kept_where_the_configuration_says_so(
    tmp_path: Path, limits: dict[str, float]
) -> None:
    store = await opened(tmp_path / "undo")
    await change(store, RUN, entry())
    await store.close(RUN)

    store = await opened(tmp_path / "undo", **limits)

    await change(store, new_id(NOON), entry())
    assert not store.is_on
    assert (limits.get("limit_bytes") == 0) or list((tmp_path / "undo").glob("*/*")) == []
    with pytest.raises(UndoError, match="this node does not record changes: see `undo_keep`"):
        await store.find(new_id(NOON))


@contextlib.contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No journal can be written within the block."""

    def full(journal: Journal, payload: bytes) -> int:
        raise FileError("no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", full)
        yield


async def test_a_run_whose_record_cannot_be_written_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path / "undo")
    await change(store, RUN, entry("/a"))

    with full_disk(monkeypatch):
        await store.before(RUN, entry("/b"))
    await change(store, RUN, entry("/c"))
    await store.close(RUN)

    with pytest.raises(UndoError, match="has no record"):
        await store.find(RUN)


async def test_a_run_whose_record_was_removed_has_none_after_a_restart_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path / "undo")
    await change(store, RUN, entry("/a"))

    with full_disk(monkeypatch):
        await store.before(RUN, entry("/b"))

    store = await opened(tmp_path / "undo")
    await change(store, RUN, entry("/c"))
    await store.close(RUN)

    with pytest.raises(UndoError, match="has no record"):
        await store.find(RUN)


async def test_a_folder_that_cannot_be_made_turns_it_off(tmp_path: Path) -> None:
    (tmp_path / "undo").write_text("in the way")

    store = await opened(tmp_path / "undo")

    assert not store.is_on


def summary(reason: str) -> SessionSummary:
    return SessionSummary(protocol=SESSION_SUMMARY, event_id="1", timestamp=NOON, reason=reason)


async def test_a_run_is_incomplete_until_an_undo_of_it_has_come_to_its_end(tmp_path: Path) -> None:
    store = await opened(tmp_path / "undo")

    async def undo(reason: str = "") -> SessionSummary:
        assert store.incomplete == [RUN], "while the undo runs"
        return summary(reason)

    async def die() -> SessionSummary:
        raise asyncio.CancelledError

    await store.follow(RUN, undo())
    whole = await opened(tmp_path / "undo")
    with pytest.raises(asyncio.CancelledError):
        await store.follow(RUN, die())
    killed = await opened(tmp_path / "undo")
    await store.follow(RUN, undo(reason="stopped"))
    stopped = await opened(tmp_path / "undo")
    await store.follow(RUN, undo())
    completed = await opened(tmp_path / "undo")

    assert (whole.incomplete, completed.incomplete, store.incomplete) == ([], [], [])
    assert (killed.incomplete, stopped.incomplete) == ([RUN], [RUN])


async def test_incomplete_undos_are_reported_as_long_as_their_records_are_kept(tmp_path: Path) -> None:
    store = await opened(tmp_path / "undo")
    runs = [new_id(NOON) for _ in range(undo_store.INCOMPLETE_LIMIT + 1)]

    async def stopped() -> SessionSummary:
        return summary("stopped")

    for run in runs:
        await store.follow(run, stopped())
    for mark in (tmp_path / "undo" / "runs").iterdir():
        os.utime(mark, (NOON.timestamp(), NOON.timestamp()))
    kept = await opened(tmp_path / "undo", FakeClock(NOON + timedelta(seconds=86_399)))
    gone = await opened(tmp_path / "undo", FakeClock(NOON + timedelta(seconds=86_400)))

    assert store.incomplete == runs[:0:-1]
    assert (len(kept.incomplete), gone.incomplete) == (undo_store.INCOMPLETE_LIMIT, [])
