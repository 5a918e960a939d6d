"""The ledger of creations: kept across processes, torn at any byte, damaged, foreign, shared and full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ccm_agent.model.errors import FileError, LockError
from ccm_agent.sessions import creation_ledger
from ccm_agent.sessions.creation_ledger import CreationLedger, LedgerEntry, find_claims, forget, forget_others

REMOVAL = {"ensure": "absent"}


def entry(name: str, **fields: object) -> LedgerEntry:
    given = {"owners": (f"file#{name}",), "run": "R", "removal": REMOVAL, "left": {"ensure": "present"}}
    return LedgerEntry(type="file", name=name, **(given | fields))  # type: ignore[arg-type]


def ledger(folder: Path, scope: str = "assignment web") -> CreationLedger:
    made = CreationLedger(folder, scope)
    made.lock()
    made.load()
    return made


def test_what_was_put_and_dropped_is_there_for_the_next_process(tmp_path: Path) -> None:
    one = ledger(tmp_path)
    one.put([entry("/a", left=None), entry("/b")])
    one.put([entry("/a")])
    one.drop(("file", "/b"))
    one.close()

    again = ledger(tmp_path)

    assert (again.entries, again.trouble) == ({("file", "/a"): entry("/a")}, "")
    assert again.path.stat().st_mode & 0o777 == 0o600


def test_a_kill_at_any_byte_of_a_write_keeps_all_that_was_written_before(tmp_path: Path) -> None:
    one = ledger(tmp_path)
    one.put([entry("/a")])
    before = one.path.stat().st_size
    one.put([entry("/b")])
    one.close()
    whole = one.path.read_bytes()
    for size in range(before, len(whole)):
        one.path.write_bytes(whole[:size])

        again = ledger(tmp_path)
        assert (list(again.entries), again.trouble) == ([("file", "/a")], "")
        again.put([entry("/c")])
        again.close()

        last = ledger(tmp_path)
        last.close()
        assert (list(last.entries), last.trouble) == ([("file", "/a"), ("file", "/c")], "")


@pytest.mark.parametrize("at", range(0, 120, 7))
def test_a_damaged_byte_before_the_end_makes_the_ledger_unusable(tmp_path: Path, at: int) -> None:
    one = ledger(tmp_path)
    one.put([entry("/a"), entry("/b")])
    one.close()
    text = bytearray(one.path.read_bytes())
    text[at] ^= 1
    one.path.write_bytes(text)

    again = ledger(tmp_path)

    assert again.entries == {}
    assert again.trouble
    again.set_aside()
    again.load()
    again.close()
    assert (again.trouble, one.path.with_suffix(".damaged").read_bytes()) == ("", text)


def test_a_ledger_of_another_scope_a_symlink_and_a_newer_one_are_not_used(tmp_path: Path) -> None:
    other = ledger(tmp_path, "assignment other")
    other.put([entry("/a")])
    other.close()
    mine = CreationLedger(tmp_path, "assignment web")
    mine.path.write_bytes(other.path.read_bytes())
    mine.load()
    assert (mine.entries, "another manifest" in mine.trouble) == ({}, True)

    mine.path.unlink()
    mine.path.symlink_to(other.path)
    mine.load()
    assert (mine.entries, bool(mine.trouble)) == ({}, True)

    mine.path.unlink()
    newer = creation_ledger._encoded([creation_ledger._Line(version=2, scope="assignment web")])
    mine.path.write_bytes(newer)
    mine.load()
    assert "newer version" in mine.trouble


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    with pytest.raises(FileError, match="other users can write there"):
        CreationLedger(tmp_path, "assignment web").lock()


def test_only_one_run_has_a_ledger(tmp_path: Path) -> None:
    first = ledger(tmp_path)

    with pytest.raises(LockError, match="another run of this manifest is in progress"):
        ledger(tmp_path)

    ledger(tmp_path, "assignment other").close()
    first.close()
    ledger(tmp_path).close()


def test_a_ledger_has_a_limit_of_entries_and_of_their_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation_ledger, "ENTRIES_LIMIT", 2)
    one = ledger(tmp_path)

    one.put([entry("/a"), entry("/" + "x" * creation_ledger.ENTRY_LIMIT_BYTES), entry("/b"), entry("/c")])
    one.put([entry("/a", run="S")])

    assert [name for _, name in one.entries] == ["/a", "/b"]
    assert one.entries["file", "/a"].run == "S"
    one.close()


def test_outdated_lines_go_when_a_run_ends(tmp_path: Path) -> None:
    one = ledger(tmp_path)
    for number in range(50):
        one.put([entry("/a", run=str(number))])
    one.close()

    assert len(one.path.read_bytes().splitlines()) == 2
    again = ledger(tmp_path)
    again.close()
    assert again.entries == {("file", "/a"): entry("/a", run="49")}


def test_the_oldest_ledgers_go_when_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation_ledger, "LEDGERS_LIMIT", 2)
    paths = []
    for number in range(3):
        one = ledger(tmp_path, f"assignment {number}")
        one.put([entry("/a")])
        one.close()
        os.utime(one.path, (number, number))
        paths.append(one.path)

    assert [path.exists() for path in paths] == [False, True, True]


def test_claims_are_those_of_other_manifests_that_still_exist(tmp_path: Path) -> None:
    manifest = tmp_path / "site.yaml"
    manifest.touch()
    for scope, name in (
        ("assignment web", "/own"),
        ("assignment db", "/db"),
        (f"manifest {manifest}", "/site"),
        (f"manifest {tmp_path}/gone.yaml", "/gone"),
    ):
        one = ledger(tmp_path, scope)
        one.put([entry(name)])
        one.close()

    assert find_claims(tmp_path, "assignment web") == {"file#/db", "file#/site"}


def test_claims_of_a_damaged_ledger_are_not_known(tmp_path: Path) -> None:
    other = ledger(tmp_path, "assignment db")
    other.put([entry("/a"), entry("/b")])
    other.close()
    intact = other.path.read_bytes()
    unfinished = intact[: intact.rindex(b"/b")]
    harmed = intact.replace(b"/a", b"/c", 1)

    other.path.write_bytes(unfinished)
    assert find_claims(tmp_path, "assignment web") == {"file#/a"}

    other.path.write_bytes(harmed)
    with pytest.raises(FileError, match="line 2 is damaged; apply that manifest again, or remove the file"):
        find_claims(tmp_path, "assignment web")

    other.path.unlink()
    other.path.symlink_to(tmp_path)
    with pytest.raises(FileError, match="the record of another manifest cannot be used"):
        find_claims(tmp_path, "assignment web")


def test_a_scope_that_does_not_exist_any_more_is_forgotten(tmp_path: Path) -> None:
    for scope in ("assignment a", "assignment b", "source a"):
        one = ledger(tmp_path, scope)
        one.put([entry("/x")])
        one.close()

    forget_others(tmp_path, "assignment ", {"assignment b"})
    forget(tmp_path, "source a")
    forget(tmp_path / "none", "source a")

    left = [path for path in tmp_path.iterdir() if path.suffix == ".ledger"]
    assert left == [CreationLedger(tmp_path, "assignment b").path]
