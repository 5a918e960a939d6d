"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ccm_agent.model.errors import InputError
from ccm_ctl.fleet.whole_file import PUBLIC, create_file, write_whole


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("mode", "expected"),
    [pytest.param(0o600, 0o600, id="private"), pytest.param(PUBLIC, 0o644, id="public")],
)
def test_a_file_is_replaced_with_its_mode_and_leaves_nothing_beside_it(
    tmp_path: Path, mode: int, expected: int
) -> None:
    path = tmp_path / "new" / "file"
    before = os.umask(0o022)
    try:
        write_whole(path, b"old")
        path.chmod(0o666)

        write_whole(path, b"new", mode=mode)
    finally:
        os.umask(before)

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == expected
    assert names(path.parent) == ["file"]


def test_a_symlink_is_replaced_and_what_it_points_to_stays(tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    other.write_bytes(b"other")
    path.symlink_to(other)

    write_whole(path, b"new")

    assert (path.is_symlink(), path.read_bytes(), other.read_bytes()) == (False, b"new", b"other")


def test_what_is_not_a_regular_file_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    with pytest.raises(InputError, match=r"pipe: cannot be written: not a regular file"):
        write_whole(path, b"new")

    assert (names(tmp_path), path.is_fifo()) == (["pipe"], True)


def test_a_folder_that_cannot_be_made_is_reported_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(InputError, match=r"/file: the folder cannot be created: File exists"):
        write_whole(tmp_path / "file" / "below", b"new")


def test_a_new_file_never_replaces_another(tmp_path: Path) -> None:
    (tmp_path / "seed").write_bytes(b"old")

    with pytest.raises(FileExistsError):
        create_file(tmp_path / "seed", b"new")

    assert (tmp_path / "seed").read_bytes() == b"old"
