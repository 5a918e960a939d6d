"""Directories that are compared and made equal on a real file system, also hostile ones."""

from __future__ import annotations

import os
import re
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import TreeDifference, TreeSpec
from ccm_agent.system.trees import open_walk, tree_sync
from ccm_agent.system.trees.trees import SystemTrees

NOW_S = 2_000_000_000.0
DAY_S = 86_400.0
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play several users")


@pytest.fixture
def trees() -> SystemTrees:
    return SystemTrees()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A source: `a`, the program `run`, and `sub/b`."""
    top = tmp_path / "source"
    (top / "sub").mkdir(parents=True)
    (top / "a").write_text("new a\n")
    (top / "run").write_text("#!/bin/sh\n")
    (top / "run").chmod(0o755)
    (top / "sub" / "b").write_text("new b\n")
    return top


@pytest.fixture
def target(tmp_path: Path) -> Path:
    top = tmp_path / "target"
    top.mkdir()
    return top


def spec(target: Path, source: Path | None = None, **more: Any) -> TreeSpec:
    return TreeSpec(path=str(target), source=str(source) if source else "", now_s=NOW_S, **more)


async def look(trees: SystemTrees, one: TreeSpec) -> TreeDifference:
    (found,) = await trees.look([one])
    return found


async def made(trees: SystemTrees, one: TreeSpec) -> TreeDifference:
    """Make a directory what it should be; returns the look after it."""
    found = await look(trees, one)
    assert found.error == ""
    await trees.sync(one, found)
    return await look(trees, one)


def names(top: Path) -> list[str]:
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def write(top: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(top) + b"/" + name)).write_text("x")


def shown(found: TreeDifference) -> list[str]:
    return [f"{one.action} {one.path}" for one in found.changes]


async def test_a_missing_directory_is_made_with_its_parents(
    tmp_path: Path, source: Path, trees: SystemTrees
) -> None:
    target = tmp_path / "x" / "y" / "target"

    after = await made(trees, spec(target, source))

    assert after.changes == ()
    assert names(target) == ["a", "run", "sub", "sub/b"]
    assert (target / "sub" / "b").read_text() == "new b\n"
    modes = {name: mode(target / name) for name in names(target)}
    assert modes == {"a": 0o644, "run": 0o755, "sub": 0o755, "sub/b": 0o644}


async def test_only_what_differs_changes_and_the_rest_stays(
    target: Path, source: Path, trees: SystemTrees
) -> None:
    (target / "a").write_text("old a\n")
    (target / "a").chmod(0o600)
    (target / "run").write_text("#!/bin/sh\n")
    (target / "mine").write_text("mine\n")
    inode = (target / "run").stat().st_ino

    found = await look(trees, spec(target, source))
    await trees.sync(spec(target, source), found)

    assert shown(found) == ["write a", "create sub", "create sub/b"]
    assert (target / "a").read_text() == "new a\n"
    assert mode(target / "a") == 0o600
    assert (target / "run").stat().st_ino == inode
    assert (target / "mine").read_text() == "mine\n"
    assert (await look(trees, spec(target, source))).changes == ()


async def test_purge_removes_the_rest_last_and_content_first(
    target: Path, source: Path, trees: SystemTrees
) -> None:
    (target / "old" / "deep").mkdir(parents=True)
    (target / "old" / "deep" / "x").write_text("x")
    (target / "link").symlink_to("/etc/passwd")

    found = await look(trees, spec(target, source, purge=True))
    await trees.sync(spec(target, source, purge=True), found)

    assert shown(found) == [
        "create a",
        "create run",
        "create sub",
        "create sub/b",
        "remove old/deep/x",
        "remove old/deep",
        "remove old",
        "remove link",
    ]
    assert names(target) == ["a", "run", "sub", "sub/b"]


async def test_modes_and_owners_are_set_where_they_are_managed(
    target: Path, source: Path, trees: SystemTrees
) -> None:
    (target / "mine").write_text("mine")
    (target / "a").write_text("new a\n")
    one = spec(target, source, file_mode=0o640, directory_mode=0o750, owner=str(os.geteuid()))

    after = await made(trees, one)

    assert after.changes == ()
    modes = {name: mode(target / name) for name in names(target)}
    assert modes == {"a": 0o640, "mine": 0o644, "run": 0o640, "sub": 0o750, "sub/b": 0o640}
    assert mode(target) == 0o750
    recursive = spec(target, source, file_mode=0o600, recurse=True)
    assert (await made(trees, recursive)).changes == ()
    assert mode(target / "mine") == 0o600


async def test_setgid_of_directories_stays(target: Path, trees: SystemTrees) -> None:
    os.chmod(target, 0o2755)

    after = await made(trees, spec(target, directory_mode=0o770))

    assert (after.changes, mode(target)) == ((), 0o2770)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_a_program_that_is_given_away_is_not_setuid_any_more(target: Path, trees: SystemTrees) -> None:
    (target / "tool").write_text("")
    os.chown(target / "tool", 1234, 1234)
    (target / "tool").chmod(0o4755)

    await made(trees, spec(target, owner="0", group="0", recurse=True))

    seen = (target / "tool").stat()
    assert (seen.st_uid, stat.S_IMODE(seen.st_mode)) == (0, 0o755)


async def test_an_unknown_user_is_an_error_before_any_change(
    target: Path, source: Path, trees: SystemTrees
) -> None:
    one = spec(target, source, owner="nobody-has-this-name")
    found = await look(trees, one)

    with pytest.raises(FileError, match="there is no user 'nobody-has-this-name'"):
        await trees.sync(one, found)

    assert found.error == ""  # in a plan, an earlier resource may create it
    assert names(target) == []


# ---- limits ----


def put(path: Path, age_d: float, size_bytes: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size_bytes)
    moment = NOW_S - age_d * DAY_S
    os.utime(path, (moment, moment))


async def test_files_that_are_too_old_are_removed_at_any_depth(target: Path, trees: SystemTrees) -> None:
    put(target / "new", 1)
    put(target / "sub" / "old", 31)
    put(target / "future", -10)
    (target / "link").symlink_to("new")
    os.utime(target / "link", (0, 0), follow_symlinks=False)

    found = await look(trees, spec(target, max_age_s=30 * DAY_S))
    await trees.sync(spec(target, max_age_s=30 * DAY_S), found)

    assert [(one.path, one.why) for one in found.changes] == [("sub/old", "age")]
    assert names(target) == ["future", "link", "new", "sub"]


async def test_the_oldest_files_go_until_the_others_fit(target: Path, trees: SystemTrees) -> None:
    for age in range(5):
        put(target / f"{age}.log", age, 4096)
    put(target / "big", 10, 1 << 20)
    one = spec(target, max_size_bytes=8192, matches=((re.compile(r".*\.log"), False),))

    found = await look(trees, one)

    assert [(change.path, change.why) for change in found.changes] == [
        ("4.log", "size"),
        ("3.log", "size"),
        ("2.log", "size"),
    ]


async def test_a_limit_of_nothing_removes_all_and_a_sparse_file_displaces_none(
    target: Path, trees: SystemTrees
) -> None:
    put(target / "real", 1, 4096)
    with (target / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    os.utime(target / "sparse", (0, 0))

    assert shown(await look(trees, spec(target, max_size_bytes=1 << 20))) == []
    assert shown(await look(trees, spec(target, max_size_bytes=0))) == ["remove real"]


async def test_globs_with_a_slash_are_about_the_path(target: Path, trees: SystemTrees) -> None:
    put(target / "cache" / "a", 2)
    put(target / "a", 2)
    one = spec(target, max_age_s=DAY_S, matches=((re.compile("cache/.*"), True),))

    assert shown(await look(trees, one)) == ["remove cache/a"]


async def test_files_of_the_source_are_not_tidied(target: Path, source: Path, trees: SystemTrees) -> None:
    await made(trees, spec(target, source))
    put(target / "sub" / "old", 2)
    os.utime(target / "a", (0, 0))

    assert shown(await look(trees, spec(target, source, max_age_s=DAY_S))) == ["remove sub/old"]


# ---- hostile trees: a clear error, or nothing but the tree itself is touched ----


def _file_at(target: Path, source: Path) -> None:
    (target / "sub").write_text("precious")


def _link_at(target: Path, source: Path) -> None:
    (target.parent / "outside").mkdir()
    (target / "sub").symlink_to(target.parent / "outside")


def _directory_at(target: Path, source: Path) -> None:
    (target / "a" / "precious").mkdir(parents=True)


def _fifo_at(target: Path, source: Path) -> None:
    os.mkfifo(target / "a")


def _socket_at(target: Path, source: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{os.open(target, os.O_PATH)}/a")


def _fifo_in_source(target: Path, source: Path) -> None:
    os.mkfifo(source / "pipe")


def _link_in_source(target: Path, source: Path) -> None:
    (source / "passwd").symlink_to("/etc/passwd")


def _no_source(target: Path, source: Path) -> None:
    source.rename(source.with_name("moved"))


def _source_is_file(target: Path, source: Path) -> None:
    source.rename(source.with_name("moved"))
    source.write_text("x")


def _source_is_link(target: Path, source: Path) -> None:
    source.rename(source.with_name("moved"))
    source.symlink_to(source.with_name("moved"))


def _target_is_link(target: Path, source: Path) -> None:
    target.rmdir()
    (target.parent / "real").mkdir()
    target.symlink_to(target.parent / "real")


def _target_is_file(target: Path, source: Path) -> None:
    target.rmdir()
    target.write_text("precious")


def _target_is_fifo(target: Path, source: Path) -> None:
    target.rmdir()
    os.mkfifo(target)


def _deep(target: Path, source: Path) -> None:
    (target / "/".join(["d"] * (open_walk.DEPTH_MAX + 1))).mkdir(parents=True)


def _deep_source(target: Path, source: Path) -> None:
    (source / "/".join(["d"] * (open_walk.DEPTH_MAX + 1))).mkdir(parents=True)


@pytest.mark.parametrize("purge", [False, True])
@pytest.mark.parametrize(
    ("prepare", "error"),
    [
        pytest.param(_file_at, "sub: is a file, but the source has a directory", id="file for directory"),
        pytest.param(_link_at, "sub: is a symlink, but the source has a directory", id="link for directory"),
        pytest.param(_directory_at, "a: is a directory, but the source has a file", id="directory for file"),
        pytest.param(_fifo_at, "a: is a FIFO, but the source has a file", id="FIFO for file"),
        pytest.param(_socket_at, "a: is a socket, but the source has a file", id="socket for file"),
        pytest.param(_fifo_in_source, "pipe: is a FIFO; only files", id="FIFO in the source"),
        pytest.param(_link_in_source, "passwd: is a symlink; only files", id="symlink in the source"),
        pytest.param(_no_source, "source .*: there is no such directory", id="no source"),
        pytest.param(_source_is_file, "source .*: is a file, not a directory", id="file as source"),
        pytest.param(_source_is_link, "source .*: is a symlink, not a directory", id="symlink as source"),
        pytest.param(_target_is_link, "is a symlink, not a directory; name the", id="symlink as target"),
        pytest.param(_target_is_file, "is a file, not a directory; remove it", id="file as target"),
        pytest.param(_target_is_fifo, "is a FIFO, not a directory", id="FIFO as target"),
        pytest.param(_deep_source, "more than 100 levels", id="a deep source"),
    ],
)
async def test_hostile_trees_are_an_error_before_any_change(
    target: Path,
    source: Path,
    trees: SystemTrees,
    prepare: Callable[[Path, Path], None],
    error: str,
    purge: bool,
) -> None:
    prepare(target, source)
    before = names(target.parent)

    found = await look(trees, spec(target, source, purge=purge))

    assert re.search(error, found.error), found.error
    assert (found.changes, names(target.parent)) == ((), before)


async def test_an_empty_source_does_not_purge_everything(
    tmp_path: Path, target: Path, trees: SystemTrees
) -> None:
    (tmp_path / "empty").mkdir()
    (target / "precious").touch()

    found = await look(trees, spec(target, tmp_path / "empty", purge=True))

    assert "is empty, and `purge` would remove everything" in found.error
    assert (await look(trees, spec(target, tmp_path / "empty"))).changes == ()


async def test_a_very_deep_tree_is_an_error(target: Path, trees: SystemTrees) -> None:
    _deep(target, target)

    assert "has more than 100 levels" in (await look(trees, spec(target, max_age_s=1.0))).error
    assert "has more than 100 levels" in (await look(trees, spec(target, is_absent=True))).error


@pytest.mark.parametrize("is_inside", [True, False])
async def test_source_and_target_do_not_contain_each_other(
    tmp_path: Path, trees: SystemTrees, is_inside: bool
) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    one = spec(outer, inner, purge=True) if is_inside else spec(inner, outer, purge=True)

    found = await look(trees, one)

    assert re.search("is in the directory" if is_inside else "contains the directory", found.error)
    same = await look(trees, spec(outer, outer, purge=True))
    assert "is the directory itself" in same.error


async def test_a_few_files_are_added_to_a_large_tree_that_has_their_source(
    target: Path, source: Path, trees: SystemTrees
) -> None:
    os.rename(source, target / "files")
    (target / "large" / "deep").mkdir(parents=True)
    (target / "sub").mkdir()

    found = await look(trees, spec(target, target / "files"))

    assert (found.error, found.count) == ("", 3)  # `files`, `large` and `sub`, and nothing in the first two
    assert shown(found) == ["create a", "create run", "create sub/b"]
    (target / "files" / "files").mkdir()
    assert "is in the directory" in (await look(trees, spec(target, target / "files"))).error


async def test_too_many_entries_are_an_error(
    target: Path, source: Path, trees: SystemTrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_walk, "ENTRIES_MAX", 3)

    assert "contains more than 3 files" in (await look(trees, spec(target, source))).error
    for name in "abcde":
        (source / "sub" / name).touch()
    assert "contains more than 3 files" in (await look(trees, spec(source / "sub", max_age_s=1))).error


async def test_purge_leaves_pipes_and_sockets_with_their_directories(
    target: Path, source: Path, trees: SystemTrees
) -> None:
    (target / "run.d" / "x").mkdir(parents=True)
    os.mkfifo(target / "run.d" / "pipe")

    found = await look(trees, spec(target, source, purge=True))
    await trees.sync(spec(target, source, purge=True), found)

    assert found.kept == ("run.d/pipe",)
    assert names(target / "run.d") == ["pipe"]


async def test_names_of_any_bytes_are_names(target: Path, source: Path, trees: SystemTrees) -> None:
    odd = [b"new\nline", b"\xff\xfe", b"-rf", b"*", b"a b", b"\xe2\x80\xaegpj"]
    for name in odd:
        write(source, name)
        write(target, b"old" + name)

    after = await made(trees, spec(target, source, purge=True))

    assert after.changes == ()
    assert sorted(os.listdir(os.fsencode(target))) == sorted([*odd, b"a", b"run", b"sub"])


async def test_the_other_names_of_a_hard_linked_file_keep_their_content(
    tmp_path: Path, target: Path, source: Path, trees: SystemTrees
) -> None:
    (tmp_path / "elsewhere").write_text("precious")
    os.link(tmp_path / "elsewhere", target / "a")
    os.link(tmp_path / "elsewhere", target / "purged")

    await made(trees, spec(target, source, purge=True))

    assert (tmp_path / "elsewhere").read_text() == "precious"
    assert (target / "a").read_text() == "new a\n"


async def test_a_hard_link_that_others_planted_is_not_given_away(
    tmp_path: Path, target: Path, trees: SystemTrees
) -> None:
    (tmp_path / "elsewhere").write_text("precious")
    os.chmod(target, 0o777)
    os.link(tmp_path / "elsewhere", target / "trap")

    found = await look(trees, spec(target, file_mode=0o666, recurse=True))

    assert "trap: has another hard link" in found.error


@needs_root
@pytest.mark.parametrize(
    ("more", "after"),
    [
        pytest.param({}, (0, 0, 0o644), id="nothing is managed"),
        pytest.param({"file_mode": 0o600}, (0, 0, 0o600), id="the mode"),
        pytest.param({"group": "4"}, (0, 4, 0o644), id="the group"),
        pytest.param({"owner": "1235"}, (1235, 0, 0o644), id="another owner"),
        # positive control: the owner of the manifest is no stranger
        pytest.param({"owner": "1234"}, (1234, 1234, 0o666), id="its owner"),
    ],
)
async def test_a_file_that_a_user_planted_gives_them_no_access_to_new_content(
    target: Path, source: Path, trees: SystemTrees, more: dict[str, Any], after: tuple[int, int, int]
) -> None:
    (target / "a").touch()
    os.chown(target / "a", 1234, 1234)
    (target / "a").chmod(0o666)

    found = await made(trees, spec(target, source, **more))

    seen = (target / "a").stat()
    assert (seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)) == after
    assert ((target / "a").read_text(), found.changes) == ("new a\n", ())


@needs_root
async def test_the_file_of_a_user_without_new_content_stays_theirs(
    target: Path, source: Path, trees: SystemTrees
) -> None:
    (target / "a").write_text("new a\n")
    os.chown(target / "a", 1234, 1234)

    await made(trees, spec(target, source))

    assert ((target / "a").stat().st_uid, (target / "sub" / "b").stat().st_uid) == (1234, 0)


async def test_a_symlink_in_the_place_of_a_file_is_replaced_and_its_target_stays(
    tmp_path: Path, target: Path, source: Path, trees: SystemTrees
) -> None:
    (tmp_path / "outside").write_text("precious")
    (target / "a").symlink_to(tmp_path / "outside")

    await made(trees, spec(target, source))

    assert (tmp_path / "outside").read_text() == "precious"
    assert not (target / "a").is_symlink()


@pytest.mark.parametrize("action", ["write", "remove"])
async def test_a_directory_that_becomes_a_symlink_after_the_look_is_not_followed(
    tmp_path: Path, target: Path, source: Path, trees: SystemTrees, action: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b").write_text("precious")
    (target / "sub").mkdir()
    (target / "sub" / "b").write_text("old b\n")
    if action == "remove":
        (source / "sub" / "b").unlink()
    one = spec(target, source, purge=True)
    found = await look(trees, one)
    (target / "sub" / "b").unlink()
    (target / "sub").rmdir()
    (target / "sub").symlink_to(outside)

    with pytest.raises(FileError, match="another process replaced it"):
        await trees.sync(one, found)

    assert (outside / "b").read_text() == "precious"


async def test_a_swap_of_directories_and_symlinks_never_reaches_outside(
    tmp_path: Path, target: Path, source: Path, trees: SystemTrees
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("a", "b", "sub"):
        (outside / name).write_text("precious")
    ends = threading.Event()

    def swap() -> None:
        while not ends.is_set():
            for wanted in (True, False):
                try:
                    if wanted:
                        (target / "sub").rename(target / "moved")
                        (target / "sub").symlink_to(outside)
                    else:
                        (target / "sub").unlink()
                        (target / "moved").rename(target / "sub")
                except OSError:
                    continue

    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        for number in range(50):
            (source / "sub" / "b").write_text(f"{number}\n")
            one = spec(target, source, purge=True)
            found = await look(trees, one)
            if not found.error:
                try:
                    await trees.sync(one, found)
                except FileError:
                    continue
    finally:
        ends.set()
        attacker.join()

    assert {path.name: path.read_text() for path in outside.iterdir()} == dict.fromkeys(
        ("a", "b", "sub"), "precious"
    )


async def test_what_changed_since_the_look_is_not_removed(
    target: Path, source: Path, trees: SystemTrees
) -> None:
    (target / "log").write_text("old")
    (target / "dir").mkdir()
    one = spec(target, source, purge=True)
    found = await look(trees, one)
    (target / "log").write_text("written since")
    (target / "dir" / "new").write_text("made since")

    await trees.sync(one, found)

    assert (target / "log").read_text() == "written since"
    assert (target / "dir" / "new").read_text() == "made since"


async def test_another_file_of_the_same_size_and_time_is_not_removed(
    target: Path, source: Path, trees: SystemTrees
) -> None:
    log = target / "log"
    log.write_text("old")
    one = spec(target, source, purge=True)
    found = await look(trees, one)
    seen = log.stat()
    (target / "new").write_text("own")
    (target / "new").rename(log)
    os.utime(log, ns=(seen.st_atime_ns, seen.st_mtime_ns))

    await trees.sync(one, found)

    assert log.read_text() == "own"


async def test_a_source_file_that_becomes_a_symlink_after_the_look_is_not_copied(
    tmp_path: Path, target: Path, source: Path, trees: SystemTrees
) -> None:
    (tmp_path / "secret").write_text("precious")
    one = spec(target, source)
    found = await look(trees, one)
    (source / "a").unlink()
    (source / "a").symlink_to(tmp_path / "secret")

    with pytest.raises(FileError, match=re.escape(f"source {source}/a: cannot be read")):
        await trees.sync(one, found)

    assert not (target / "a").exists()


async def test_a_stop_in_the_middle_leaves_whole_files_and_removes_nothing(
    target: Path, source: Path, trees: SystemTrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    (target / "a").write_text("old a\n")
    (target / "stale").write_text("stale")
    written: list[str] = []
    write = tree_sync._write

    def fail_second(place: Any, *args: Any) -> None:
        if written:
            raise FileError("the disk is full")
        written.append(place.name)
        write(place, *args)

    monkeypatch.setattr(tree_sync, "_write", fail_second)
    one = spec(target, source, purge=True)

    with pytest.raises(FileError, match="the disk is full"):
        await trees.sync(one, await look(trees, one))

    assert (target / "a").read_text() == "new a\n"
    assert names(target) == ["a", "stale"]


async def test_directories_of_the_system_are_refused_by_any_path(
    tmp_path: Path, target: Path, trees: SystemTrees
) -> None:
    (tmp_path / "alias").symlink_to(target.parent)
    one = TreeSpec(path=f"{tmp_path}/alias/target", max_age_s=1.0, now_s=NOW_S, refused=(str(target),))

    assert f"this is {target}, a system directory" in (await look(trees, one)).error
    kernel = TreeSpec(path="/proc/self/task", max_age_s=1.0, now_s=NOW_S, refused=("/",))
    assert "is on the file system of /proc" in (await look(trees, kernel)).error


async def test_absent_removes_everything_with_pipes_and_not_what_symlinks_lead_to(
    tmp_path: Path, target: Path, trees: SystemTrees
) -> None:
    (tmp_path / "outside").write_text("precious")
    (target / "d").mkdir()
    (target / "d" / "l").symlink_to(tmp_path / "outside")
    os.mkfifo(target / "d" / "pipe")

    after = await made(trees, spec(target, is_absent=True))

    assert (after.kind, names(tmp_path)) == ("absent", ["outside"])
    assert (tmp_path / "outside").read_text() == "precious"


async def test_many_directories_are_one_call_of_the_thread(
    tmp_path: Path, trees: SystemTrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    call = trees._threads.call

    async def counted(*args: Any, **more: Any) -> Any:
        calls.append(args)
        return await call(*args, **more)

    monkeypatch.setattr(trees._threads, "call", counted)

    found = await trees.look([spec(tmp_path / str(number)) for number in range(1000)])

    assert ({one.kind for one in found}, len(calls)) == ({"absent"}, 1)


async def test_what_replaced_an_entry_after_the_look_keeps_its_owner_and_mode(
    target: Path, tmp_path: Path, trees: SystemTrees
) -> None:
    """A user could move a private file of root here, to get it with other permissions."""
    (target / "x").write_text("own")
    private = tmp_path / "private"
    private.write_text("root")
    private.chmod(0o600)
    one = spec(target, recurse=True, file_mode=0o640)
    found = await look(trees, one)
    private.rename(target / "x")

    with pytest.raises(FileError, match="another process replaced it just now"):
        await trees.sync(one, found)

    assert mode(target / "x") == 0o600


async def test_a_directory_that_came_after_the_look_keeps_its_mode(
    target: Path, source: Path, tmp_path: Path, trees: SystemTrees
) -> None:
    (source / "new").mkdir()
    one = spec(target, source)
    found = await look(trees, one)
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    private.rename(target / "new")

    with pytest.raises(FileError, match="the directory cannot be created"):
        await trees.sync(one, found)

    assert mode(target / "new") == 0o700
