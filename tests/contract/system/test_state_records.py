"""What `Records` promises, on the fake and on this host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import Records
from ccm_agent.system import state_records
from ccm_agent.system.state_records import SystemRecords, record_directory
from ccm_agent.testing.records import FakeRecords


@pytest.fixture(params=["fake", "host"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Records:
    return FakeRecords() if request.param == "fake" else SystemRecords(f"{tmp_path}/state/records")


async def test_a_stored_record_is_recalled(records: Records) -> None:
    await records.keep("scaffold", "/etc/app", b"one")
    await records.keep("scaffold", "/etc/app", b"two")

    assert await records.recall("scaffold", "/etc/app") == b"two"


async def test_kinds_and_keys_are_distinguished(records: Records) -> None:
    await records.keep("scaffold", "/a", b"one")
    await records.keep("other", "/a", b"two")

    assert [
        await records.recall(kind, key)
        for kind, key in (("scaffold", "/a"), ("other", "/a"), ("scaffold", "/b"), ("third", "/a"))
    ] == [b"one", b"two", None, None]


@pytest.mark.parametrize("key", ["", "/", "../../etc/passwd", "x" * 5000, "\udcff\n"])
async def test_any_text_is_a_key(records: Records, key: str) -> None:
    await records.keep("scaffold", key, b"x")

    assert await records.recall("scaffold", key) == b"x"


async def test_a_deleted_record_is_absent(records: Records) -> None:
    await records.keep("scaffold", "/a", b"one")

    await records.keep("scaffold", "/a", None)
    await records.keep("scaffold", "/b", None)

    assert await records.recall("scaffold", "/a") is None


def _kill(*given: object) -> None:
    raise KeyboardInterrupt


class TestHost:
    async def test_only_the_current_user_may_read_records(self, tmp_path: Path) -> None:
        await SystemRecords(f"{tmp_path}/records").keep("scaffold", "/a", b"one")

        (file,) = (tmp_path / "records/scaffold").iterdir()
        assert [one.stat().st_mode & 0o777 for one in (tmp_path / "records", file.parent, file)] == [
            0o700,
            0o700,
            0o600,
        ]

    async def test_the_records_used_last_are_kept(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(state_records, "FILES_LIMIT", 3)
        records = SystemRecords(f"{tmp_path}/records")
        for number in range(3):
            await records.keep("scaffold", f"/{number}", b"x")
        for file in (tmp_path / "records/scaffold").iterdir():
            os.utime(file, (1, 1))
        await records.recall("scaffold", "/0")
        await records.keep("scaffold", "/1", b"y")

        await records.keep("scaffold", "/3", b"x")

        found = [await records.recall("scaffold", f"/{number}") for number in range(4)]
        assert found == [b"x", b"y", None, b"x"]

    async def test_records_in_use_exceed_the_limit(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(state_records, "FILES_LIMIT", 2)
        records = SystemRecords(f"{tmp_path}/records")
        for number in range(5):
            await records.keep("scaffold", f"/{number}", b"x")

        assert [await records.recall("scaffold", f"/{number}") for number in range(5)] == [b"x"] * 5

    async def test_a_kill_after_room_was_made_leaves_all_other_records(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(state_records, "FILES_LIMIT", 2)
        records = SystemRecords(f"{tmp_path}/records")
        for number in range(2):
            await records.keep("scaffold", f"/{number}", b"x")
        for number, file in enumerate(sorted((tmp_path / "records/scaffold").iterdir())):
            os.utime(file, (number, number))
        with monkeypatch.context() as killed:
            killed.setattr(state_records, "write_atomically", _kill)
            with pytest.raises(KeyboardInterrupt):
                state_records._keep(records._path("scaffold", "/2"), b"x")

        left = [await records.recall("scaffold", f"/{number}") for number in range(2)]
        assert sorted(left, key=str) == [None, b"x"]
        await records.keep("scaffold", "/2", b"x")
        assert await records.recall("scaffold", "/2") == b"x"

    async def test_a_kind_that_leads_elsewhere_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="cannot be a kind of record"):
            await SystemRecords(str(tmp_path)).keep("../x", "/a", b"one")

    @pytest.mark.parametrize(
        ("uid", "environ", "directory"),
        [
            (0, {"XDG_CONFIG_HOME": "/c", "HOME": "/h"}, "/var/lib/ccm/records"),
            (0, {"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/ccm/records"),
            (1000, {"XDG_STATE_HOME": "/s", "HOME": "/h"}, "/s/ccm/records"),
            (1000, {"XDG_CONFIG_HOME": "/c", "HOME": "/h"}, "/h/.local/state/ccm/records"),
            (1000, {"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/ccm/records"),
            (1000, {"HOME": "/h"}, "/h/.local/state/ccm/records"),
        ],
    )
    def test_they_stand_where_all_programs_of_a_user_find_them(
        self, monkeypatch: pytest.MonkeyPatch, uid: int, environ: dict[str, str], directory: str
    ) -> None:
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("os.geteuid", lambda: uid)

        assert record_directory() == directory

    def test_records_beside_the_facts_of_a_user_stay_in_use(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        records = tmp_path / "choria/ccm/records"
        records.mkdir(parents=True)
        monkeypatch.delenv("XDG_STATE_HOME", raising=False)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        monkeypatch.setattr("os.geteuid", lambda: 1000)

        assert record_directory() == str(records)


async def test_a_record_that_other_users_could_write_is_not_recalled(tmp_path: Path) -> None:
    records = SystemRecords(str(tmp_path))
    await records.keep("scaffold", "/out", b"{}")
    (tmp_path / "scaffold").chmod(0o777)

    with pytest.raises(FileError, match="other users can write there and could control what is removed"):
        await records.recall("scaffold", "/out")
