"""Sessions that several processes share."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import msgspec
import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.sessions.directory import new_session_directory, open_session
from tests.unit.sessions.test_memory import NOON, event


def own(name: str, after_s: float = 0, **fields: object) -> TransactionEvent:
    return msgspec.structs.replace(event(name, after_s, **fields), event_id=new_id())


async def test_the_next_process_reads_recorded_events(tmp_path: Path) -> None:
    first = await open_session(str(tmp_path))
    told = own("/a", changed=True)

    await first.record(told)
    second = await open_session(str(tmp_path))

    found = second.last("file", "/a")
    assert found is not None
    assert (found.event_id, found.changed, second.is_foreign(found)) == (told.event_id, True, True)


async def test_an_event_is_a_file_for_its_owners_eyes(tmp_path: Path) -> None:
    session = await open_session(str(tmp_path))
    told = own("/a")

    await session.record(told)

    (file,) = tmp_path.iterdir()  # noqa: ASYNC240
    assert file.name == f"{told.event_id}.event"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["name"] == "/a"


async def test_events_of_a_second_process_come_after_those_of_the_first_within_one_second(
    tmp_path: Path,
) -> None:
    theirs = msgspec.structs.replace(event("/a", changed=True), event_id="9" * 27)
    (tmp_path / f"{theirs.event_id}.event").write_bytes(msgspec.json.encode(theirs))

    await open_session(str(tmp_path))

    assert new_id() > theirs.event_id


async def test_an_invalid_event_is_skipped(tmp_path: Path) -> None:
    right = own("/a", changed=True)
    (tmp_path / f"{right.event_id}.event").write_bytes(msgspec.json.encode(right))
    for name, text in {"a": "{broken", "b": "", "c": "[]", "d": '{"protocol": "other"}'}.items():
        (tmp_path / f"{name}.event").write_text(text)
    (tmp_path / "sub.event").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    os.mkfifo(tmp_path / "pipe.event")

    session = await open_session(str(tmp_path))

    assert session.counts.total_resources == 1


async def test_an_event_of_the_reference_with_null_for_a_check_is_read(tmp_path: Path) -> None:
    values = msgspec.to_builtins(event("/a", failed=True)) | {"health_check": [None], "error": None}
    (tmp_path / "x.event").write_text(json.dumps(values))

    session = await open_session(str(tmp_path))

    assert session.counts.failed_resources == 1


async def test_events_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    for number, (name, after_s) in enumerate((("late", 9.0), ("early", 1.0))):
        values = msgspec.to_builtins(event("/a", after_s, alias=name)) | {"event_id": f"{number}" * 27}
        (tmp_path / f"{number}.event").write_text(json.dumps(values))

    found = (await open_session(str(tmp_path))).last("file", "/a")

    assert found is not None
    assert found.alias == "late"


@pytest.mark.parametrize("kind", ["missing", "file"])
async def test_a_store_that_cannot_be_used_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "store"
    if kind == "file":
        path.write_text("x")

    with pytest.raises(FileError, match="does not exist" if kind == "missing" else "cannot be read"):
        await open_session(str(path))


def test_a_new_store_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    made = new_session_directory(str(tmp_path / "deep" / "store"))

    assert stat.S_IMODE(Path(made).stat().st_mode) == 0o700
    with pytest.raises(FileError, match="already exists"):
        new_session_directory(made)


def test_a_new_store_without_a_name_is_among_the_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    made = Path(new_session_directory())

    assert (made.parent, made.is_dir()) == (tmp_path, True)
    assert made.name.startswith("ccm-session-")


async def test_a_store_that_went_away_is_an_error_and_no_crash(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    session = await open_session(str(store))
    store.rmdir()

    with pytest.raises(FileError, match="cannot be written"):
        await session.record(own("/a"))

    assert NOON.year == 2026


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can play several users")
async def test_events_of_strangers_in_a_shared_directory_are_ignored(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)  # noqa: ASYNC240
    session = await open_session(str(tmp_path))
    await session.record(own("/a"))
    planted = own("/a", after_s=9, failed=True)
    path = tmp_path / f"{planted.event_id}.event"
    path.write_bytes(msgspec.json.encode(planted))
    os.chown(path, 65534, 65534)

    found = (await open_session(str(tmp_path))).last("file", "/a")

    assert found is not None
    assert found.failed is False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can play several users")
async def test_events_of_the_directorys_owner_are_valid_for_root(tmp_path: Path) -> None:
    told = own("/a", changed=True)
    (tmp_path / f"{told.event_id}.event").write_bytes(msgspec.json.encode(told))
    for path in (tmp_path, tmp_path / f"{told.event_id}.event"):
        os.chown(path, 65534, 65534)

    found = (await open_session(str(tmp_path))).last("file", "/a")

    assert found is not None
    assert found.event_id == told.event_id


@pytest.mark.parametrize("what", ["symlink", "fifo", "deep"])
async def test_links_and_fifos_are_skipped(tmp_path: Path, what: str) -> None:
    told = own("/a", changed=True)
    path = tmp_path / f"{told.event_id}.event"
    if what == "symlink":
        (tmp_path / "elsewhere").write_bytes(msgspec.json.encode(told))
        path.symlink_to("elsewhere")
    elif what == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(b'{"new":' + b"[" * 2000 + b"]" * 2000 + b"}")

    assert (await open_session(str(tmp_path))).last("file", "/a") is None
