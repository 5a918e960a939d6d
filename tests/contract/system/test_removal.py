"""Removing directories that a hostile user made, or changes meanwhile: all of it goes, nothing else does, errors are ours."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.system import file_attributes
from ccm_agent.system.files import SystemFiles
from ccm_agent.system.threads import CancelFlag
from ccm_agent.system.trees import removal


def make_deep(top: Path, levels: int) -> None:
    """A directory in a directory, so often, with a file at the bottom; no path leads there, for it would be too long."""
    top.mkdir()
    fd = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("file", os.O_CREAT, dir_fd=fd))
    os.close(fd)


@pytest.mark.parametrize("levels", [0, 1, 5_000])
async def test_a_directory_of_any_depth_is_removed(tmp_path: Path, levels: int) -> None:
    make_deep(tmp_path / "top", levels)

    await SystemFiles().remove(f"{tmp_path}/top", recursive=True)

    assert os.listdir(tmp_path) == []


async def test_no_more_than_a_few_files_are_open_for_that(tmp_path: Path) -> None:
    make_deep(tmp_path / "top", 300)
    most = 0

    class Counts(CancelFlag):
        def check(self) -> None:
            nonlocal most
            most = max(most, len(os.listdir("/proc/self/fd")))

    before = len(os.listdir("/proc/self/fd"))
    file_attributes.remove(f"{tmp_path}/top", True, Counts())

    assert most - before < 5


async def test_all_kinds_of_entries_are_removed_and_targets_of_symlinks_stay(tmp_path: Path) -> None:
    (tmp_path / "outside/inner").mkdir(parents=True)
    (tmp_path / "outside/file").write_text("as it was")
    top = tmp_path / "top"
    (top / "a/b").mkdir(parents=True)
    (top / "a/file").write_text("x")
    os.mkfifo(top / "a/fifo")
    os.symlink("../../outside", top / "a/link")
    os.symlink("nowhere", top / "a/b/dangling")
    if os.geteuid() == 0:  # only root can remove from a directory without write permission
        os.chmod(top / "a/b", 0o500)

    await SystemFiles().remove(str(top), recursive=True)

    assert sorted(os.listdir(tmp_path)) == ["outside"]
    assert (tmp_path / "outside/file").read_text() == "as it was"
    assert (tmp_path / "outside/inner").is_dir()


async def test_more_directories_in_one_than_are_known_at_a_time_go_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "LISTED_MAX", 10)
    for name in range(35):
        (tmp_path / f"top/{name}/inner").mkdir(parents=True)
        (tmp_path / f"top/file{name}").touch()

    await SystemFiles().remove(f"{tmp_path}/top", recursive=True)

    assert os.listdir(tmp_path) == []


class Meanwhile(CancelFlag):
    """Something that happens when a directory is about to be emptied, so often."""

    def __init__(self, what: Callable[[int], None]) -> None:
        super().__init__()
        self._what = what
        self._count = 0

    def check(self) -> None:
        self._count += 1
        self._what(self._count)


def test_a_symlink_that_takes_the_place_of_a_directory_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("as it was")
    top = tmp_path / "top"
    make_deep(top, 2)

    def swap(count: int) -> None:
        if count == 1:  # its directories are known by then, and none of them is open
            os.rename(top / "d", tmp_path / "moved")
            os.symlink(victim, top / "d")

    file_attributes.remove(str(top), True, Meanwhile(swap))

    assert (victim / "file").read_text() == "as it was"
    assert not top.exists()


def test_moving_a_directory_moves_nothing_else(tmp_path: Path) -> None:
    """What is above it by then is not what was above it before."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "d").mkdir(parents=True)
    (elsewhere / "file").write_text("as it was")
    top = tmp_path / "top"
    make_deep(top, 2)

    def move(count: int) -> None:
        if count == 3:  # the innermost is open
            os.rename(top / "d/d", elsewhere / "moved")

    file_attributes.remove(str(top), True, Meanwhile(move))

    assert not top.exists()
    assert (elsewhere / "file").read_text() == "as it was"
    assert (elsewhere / "d").is_dir()


def test_a_directory_that_is_filled_meanwhile_is_emptied_again(tmp_path: Path) -> None:
    top = tmp_path / "top"
    make_deep(top, 1)

    def fill(count: int) -> None:
        if count == 2:
            (top / "late").write_text("x")

    file_attributes.remove(str(top), True, Meanwhile(fill))

    assert not top.exists()


def test_one_that_is_filled_all_the_time_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    make_deep(top, 1)
    real = removal._remove_files

    def filled(fd: int) -> list[str]:
        names = real(fd)
        os.close(os.open("again", os.O_CREAT, dir_fd=fd))
        return names

    monkeypatch.setattr(removal, "_remove_files", filled)

    with pytest.raises(
        FileError, match="another process changes its directories while it is being removed; try again"
    ):
        file_attributes.remove(str(top), True, CancelFlag())


@contextmanager
def busy(work: Callable[[], None]) -> Iterator[None]:
    """Somebody who does that over and over."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            try:
                work()
            except OSError:
                continue

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_user_who_keeps_swapping_directories_for_symlinks_gains_nothing(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (victim / "d").mkdir(parents=True)
    (victim / "d/file").write_text("as it was")
    top, aside = tmp_path / "top", tmp_path / "aside"

    def swap() -> None:
        (aside / "d/d").mkdir(parents=True, exist_ok=True)
        top.mkdir(exist_ok=True)
        os.rename(aside, top / "d")
        os.rename(top / "d", aside)
        os.symlink(victim, top / "d")
        os.unlink(top / "d")
        os.rename(aside, top / "d")

    with busy(swap):
        for _ in range(300):
            try:
                file_attributes.remove(str(top), True, CancelFlag())
            except FileError as err:
                assert "another process changes" in err.message or "cannot be removed" in err.message  # noqa: PT017

    assert (victim / "d/file").read_text() == "as it was"


async def test_a_cancelled_removal_ends(tmp_path: Path) -> None:
    make_deep(tmp_path / "top", 3_000)
    task = asyncio.create_task(SystemFiles().remove(f"{tmp_path}/top", recursive=True))
    await asyncio.sleep(0)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(10):
            await task
    await SystemFiles().remove(f"{tmp_path}/top", recursive=True)
