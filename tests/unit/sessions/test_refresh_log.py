"""The file of pending refreshes: what survives a kill at any byte, other processes, and hostile neighbors."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

import pytest

from ccm_agent.model.errors import FileError, LockError
from ccm_agent.sessions import folder_lock, refresh_store
from ccm_agent.sessions.refresh_log import PendingRefresh, RefreshLog, StoredResource, TriggerChange
from ccm_agent.sessions.refresh_store import RefreshStore, ScopeRefreshes, refresh_folder

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def change(number: str, *waiting: str, is_open: bool = False) -> TriggerChange:
    return TriggerChange(
        id=number,
        trigger=StoredResource(f"file#{number}", (f"t{number}",)),
        since=NOON,
        waiting=[StoredResource(f"exec#{one}", (one,)) for one in waiting],
        is_open=is_open,
    )


def names(log: RefreshLog) -> list[tuple[str, str]]:
    return [(one.trigger, one.resource) for one in log.load().pending]


@pytest.fixture
def log(tmp_path: Path) -> RefreshLog:
    return RefreshLog(tmp_path / "folder" / "one.log", "manifest:/m.yaml")


def test_file_that_does_not_exist_holds_nothing(log: RefreshLog) -> None:
    assert (log.load().changes, log.load().trouble) == ({}, "")
    assert not log.path.parent.exists()


def test_change_is_pending_for_each_subscriber_until_it_is_refreshed(log: RefreshLog) -> None:
    log.add(change("1", "a", "b"))
    log.add(change("2", "a"))

    log.refreshed(["a"], ["1", "2"])

    assert names(log) == [("file#1", "exec#b")]


def test_open_change_waits_for_all_but_refreshed_subscribers(log: RefreshLog) -> None:
    log.add(change("1", is_open=True))

    log.refreshed(["a"], ["1"])

    (found,) = log.load().changes.values()
    assert (found.waits_for(["a"]), found.waits_for(["b"])) == (False, True)
    assert log.load().pending == [PendingRefresh(resource="", trigger="file#1", since=NOON)]
    assert log.load().pending[0].sentence == "the subscribers of file#1"


def test_change_that_was_not_made_is_dropped(log: RefreshLog) -> None:
    log.add(change("1", "a"))

    log.drop(["1"])

    assert names(log) == []


def test_settling_keeps_records_of_others_and_removes_an_empty_file(log: RefreshLog) -> None:
    log.add(change("mine", "a"))
    log.add(change("theirs", "b"))

    log.settle({"mine": change("mine"), "gone": change("gone", "c")})
    assert names(log) == [("file#theirs", "exec#b")]
    log.settle({"theirs": change("theirs")})

    assert not log.path.exists()


@pytest.mark.parametrize("cut", range(1, 200, 7))
def test_line_that_was_never_finished_does_not_count_and_harms_nothing(log: RefreshLog, cut: int) -> None:
    log.add(change("1", "a"))
    whole = log.path.read_bytes()
    log.add(change("2", "b"))
    longer = log.path.read_bytes()
    log.path.write_bytes(longer[: max(len(whole), len(longer) - cut)])

    log.add(change("3", "c"))

    assert names(log) == [("file#1", "exec#a"), ("file#3", "exec#c")]
    assert log.load().trouble == ""


def test_damaged_lines_are_reported_and_the_file_is_moved_aside(log: RefreshLog) -> None:
    log.add(change("1", "a"))
    log.path.write_bytes(log.path.read_bytes() + b"\x00\xff rubbish\n")

    trouble = log.load().trouble
    log.set_aside()

    assert trouble == "1 of 3 lines cannot be read"
    assert (names(log), log.load().trouble) == ([("file#1", "exec#a")], "")
    assert log.path.with_suffix(".damaged").exists()


def test_file_of_a_newer_version_is_reported(log: RefreshLog) -> None:
    log.add(change("1", "a"))
    log.path.write_text('{"version":99,"scope":"x"}\n{"change":{"id":"1"}}\n')

    assert (log.load().changes, log.load().trouble) == (
        {},
        "it was written by a newer version of this program",
    )


@pytest.mark.parametrize("what", ["link", "folder", "fifo"])
def test_a_file_that_is_not_regular_is_not_read(log: RefreshLog, what: str) -> None:
    log.path.parent.mkdir(mode=0o700)
    if what == "link":
        log.path.symlink_to("/etc/passwd")
    elif what == "folder":
        log.path.mkdir()
    else:
        os.mkfifo(log.path)

    assert log.load().trouble != ""
    if what == "link":
        with pytest.raises(FileError):
            log.add(change("1", "a"))


def test_folder_that_others_can_write_to_is_refused(log: RefreshLog) -> None:
    log.path.parent.mkdir()
    log.path.parent.chmod(0o777)

    with pytest.raises(FileError, match="other users can write there"):
        log.add(change("1", "a"))


def test_full_disk_leaves_the_file_as_it_was(log: RefreshLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.add(change("1", "a"))
    before = log.path.read_bytes()

    def full(fd: int, data: bytes) -> int:
        os.pwrite(fd, data[:5], os.fstat(fd).st_size)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.write", full)

    with pytest.raises(FileError, match="cannot record pending refreshes: No space left on device"):
        log.add(change("2", "b"))
    with pytest.raises(FileError, match="cannot record pending refreshes: No space left on device"):
        log.settle({"1": change("1", "b")})
    assert log.path.read_bytes() == before
    assert not log.path.with_suffix(".new").exists()


def test_processes_that_write_at_once_lose_nothing(log: RefreshLog) -> None:
    context = get_context("fork")
    writers = [context.Process(target=_add_many, args=(log, name)) for name in "abcd"]
    for one in writers:
        one.start()
    for one in writers:
        one.join(60)

    assert len(log.load().changes) == 4 * 25
    assert log.load().trouble == ""


def _add_many(log: RefreshLog, name: str) -> None:
    for number in range(25):
        log.add(change(f"{name}{number}", "x"))
        log.compact()


def test_lock_that_another_process_does_not_give_back_is_an_error(
    log: RefreshLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock, "PATIENCE_S", 0.05)
    log.path.parent.mkdir(mode=0o700)

    with folder_lock.folder_lock(log.path.parent), pytest.raises(LockError, match="another process has held"):
        log.add(change("1", "a"))


def test_store_reads_all_scopes_and_forgets_those_that_are_gone(tmp_path: Path) -> None:
    store = RefreshStore(tmp_path / "refresh")
    store.log("assignment:web").add(change("1", "a"))
    store.log("assignment:db").add(change("2", "b"))
    store.log("request:x").add(change("3", "c"))

    store.forget_others("assignment:", {"assignment:web"})

    pending = PendingRefresh(resource="exec#a", trigger="file#1", since=NOON)
    assert {one.scope for one in store.read()} == {"assignment:web", "request:x"}
    assert store.pending("assignment:web") == [pending]
    assert ScopeRefreshes(scope="assignment:web", pending=[pending]) in store.read()
    store.forget("assignment:web")
    assert store.pending("assignment:web") == []


def fill(store: RefreshStore, *scopes: str) -> None:
    """A change of each scope is pending; the first scope is the oldest."""
    for number, scope in enumerate(scopes):
        store.log(scope).add(change(str(number), "a"))
        os.utime(store.log(scope).path, (number, number))


def test_a_pending_refresh_is_never_lost_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh_store, "SCOPES_LIMIT", 3)
    store = RefreshStore(tmp_path / "refresh")
    scopes = [f"request {number}" for number in range(6)]

    fill(store, *scopes)

    assert {one.scope for one in store.read()} == set(scopes)


def test_files_of_which_nothing_is_pending_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh_store, "SCOPES_LIMIT", 4)
    store = RefreshStore(tmp_path / "refresh")
    (tmp_path / "here.yaml").touch()
    fill(store, "request 1", f"manifest {tmp_path}/gone.yaml", "request 2", f"manifest {tmp_path}/here.yaml")
    # a run that was killed after its last subscriber was refreshed left the file of request 2
    store.log("request 2").refreshed(["a"], ["2"])
    os.utime(store.log("request 2").path, (2, 2))

    store.log("request 3").add(change("9", "a"))
    store.log("request 4").add(change("9", "a"))

    assert {one.scope for one in store.read()} == {
        "request 1",
        f"manifest {tmp_path}/here.yaml",
        "request 3",
        "request 4",
    }
    assert len(list((tmp_path / "refresh").glob("*.log"))) == 4


def test_place_of_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert refresh_folder() == Path("/somewhere/ccm/refresh")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert refresh_folder() == Path("/home/ada/.local/state/ccm/refresh")

    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert refresh_folder() == Path("/var/lib/ccm/refresh")
