"""Directories of this host, where the fake has nothing to say: people with bad intentions, umasks, other file systems."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import TreeEntry
from ccm_agent.system.threads import CancelFlag
from ccm_agent.system.trees.trees import SystemTrees, tree_compare

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play several users")


@pytest.fixture
def trees() -> SystemTrees:
    return SystemTrees()


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A directory of root's scaffold in which another user creates files."""
    os.chmod(tmp_path, 0o755)
    path = tmp_path / "theirs"
    path.mkdir()
    os.chown(path, NOBODY, NOBODY)
    return path


def planted(path: Path, target: Path) -> None:
    path.symlink_to(target)
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
async def test_modes_are_the_same_under_any_umask(tmp_path: Path, trees: SystemTrees) -> None:
    await trees.write(f"{tmp_path}/t", ["d"], [TreeEntry(path="d/a", content=b"x")])

    modes = [(tmp_path / path).stat().st_mode & 0o777 for path in ("t", "t/d", "t/d/a")]
    assert modes == [0o755, 0o755, 0o644]


@needs_root
async def test_a_planted_directory_is_not_written_through(
    tmp_path: Path, theirs: Path, trees: SystemTrees
) -> None:
    (tmp_path / "roots").mkdir()
    planted(theirs / "d", tmp_path / "roots")

    with pytest.raises(FileError, match="will not follow the symlink"):
        await trees.write(str(theirs), ["d"], [TreeEntry(path="d/a", content=b"x")])

    assert list((tmp_path / "roots").iterdir()) == []


@needs_root
async def test_a_planted_directory_is_not_removed_from(
    tmp_path: Path, theirs: Path, trees: SystemTrees
) -> None:
    (tmp_path / "roots").mkdir()
    (tmp_path / "roots/a").write_text("mine")
    planted(theirs / "d", tmp_path / "roots")

    with pytest.raises(FileError, match="will not follow the symlink"):
        await trees.remove(str(theirs), ["d/a"])

    assert (tmp_path / "roots/a").read_text() == "mine"


@needs_root
async def test_a_planted_directory_is_purged_as_a_link(
    tmp_path: Path, theirs: Path, trees: SystemTrees
) -> None:
    (tmp_path / "roots").mkdir()
    (tmp_path / "roots/a").write_text("mine")
    planted(theirs / "d", tmp_path / "roots")
    planted(theirs / "x", tmp_path / "roots")

    removed = await trees.write(str(theirs), ["d"], [TreeEntry(path="d/b", content=b"x")], keep=[])

    assert (removed, (tmp_path / "roots/a").read_text()) == (("d", "x"), "mine")
    assert (os.listdir(theirs), (theirs / "d/b").read_text()) == (["d"], "x")


async def test_owner_and_mode_of_a_file_are_as_requested(tmp_path: Path, trees: SystemTrees) -> None:
    entry = TreeEntry(path="a", content=b"x", mode=0o750, uid=os.getuid(), gid=os.getgid())

    await trees.write(f"{tmp_path}/t", [], [entry])

    seen = (tmp_path / "t/a").stat()
    assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o7777) == (os.getuid(), os.getgid(), 0o750)


async def test_a_file_that_is_right_is_not_touched_by_a_look(tmp_path: Path, trees: SystemTrees) -> None:
    (tmp_path / "a").write_text("x")
    before = (tmp_path / "a").stat()

    await trees.compare(str(tmp_path), {"a": b"x"})

    assert (tmp_path / "a").stat().st_ctime_ns == before.st_ctime_ns


async def test_names_that_are_not_utf_8_are_names(tmp_path: Path, trees: SystemTrees) -> None:
    name = os.fsdecode(b"caf\xe9")

    await trees.write(str(tmp_path), [], [TreeEntry(path=name, content=b"x")])

    assert os.listdir(os.fsencode(tmp_path)) == [b"caf\xe9"]
    assert [entry.path for entry in (await trees.read(str(tmp_path), 10)).entries] == [name]
    assert (await trees.compare(str(tmp_path), {name: b"x"})).files == {name: "same"}


async def test_a_file_that_cannot_be_removed_does_not_keep_the_others(
    tmp_path: Path, trees: SystemTrees
) -> None:
    for name in ("d1", "d2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "in").touch()
    (tmp_path / "z").touch()

    with pytest.raises(FileError) as caught:
        await trees.remove(str(tmp_path), ["d1", "d2", "z"])

    assert caught.value.message == f"{tmp_path}/d1: cannot be removed: Directory not empty (and 1 more)"
    assert not (tmp_path / "z").exists()


def test_too_many_entries_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_compare, "ENTRIES_MAX", 3)
    for name in "abcd":
        (tmp_path / name).touch()

    with pytest.raises(FileError, match="contains more than 3 files and directories"):
        tree_compare.read(str(tmp_path), 10, CancelFlag())


def test_of_a_huge_directory_only_some_is_listed_where_that_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_compare, "LISTED_MAX", 2)
    for name in "abcd":
        (tmp_path / name).touch()
    wanted = {"d": b"", "e": b""}

    some = tree_compare.compare(str(tmp_path), wanted, False, CancelFlag())
    whole = tree_compare.compare(str(tmp_path), wanted, True, CancelFlag())

    assert (some.files, some.extra) == ({"d": "same", "e": "absent"}, ("a", "b"))
    assert (whole.files, whole.extra) == ({"d": "same", "e": "absent"}, ("a", "b", "c"))


def test_a_cancelled_inspection_ends(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    stop = CancelFlag()
    stop.set()

    with pytest.raises(InterruptedError):
        tree_compare.read(str(tmp_path), 10, stop)
