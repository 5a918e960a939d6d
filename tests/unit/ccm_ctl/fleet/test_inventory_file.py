"""The file of cached nodes: whole or not used, and only one that this user wrote."""

from __future__ import annotations

import hashlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ccm_agent.model.ports import KeyValueEntry
from ccm_ctl.fleet.nodes.entry_parts import TornFileError, write_parts
from ccm_ctl.fleet.nodes.inventory_file import InventoryFile, cache_folder

ENTRY = KeyValueEntry(
    key="node.web1",
    value=b'{"node":"web1"}',
    revision=7,
    created=datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    signature="a signature",
    certificate="a certificate",
    note="a note",
)
CREATED = "2026-01-01T00:00:00.000000001Z"
KNOWN = (CREATED, [ENTRY])


def read(file: InventoryFile) -> tuple[str, list[KeyValueEntry]] | None:
    """What is in a file; None if it is not used."""
    parts = file.open()
    if parts is None:
        return None
    try:
        return parts.index.created, [parts.read(place) for place in range(len(parts.index.keys))]
    except TornFileError:
        return None
    finally:
        parts.close()


def written(folder: Path) -> tuple[InventoryFile, Path]:
    """A file with KNOWN, and its path."""
    file = InventoryFile(folder / "ccm", ["nats://a", "op"])
    file.write(*KNOWN)
    [path] = (folder / "ccm").iterdir()
    return file, path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file, path = written(tmp_path)

    assert read(file) == KNOWN
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)] == [0o600, 0o700]
    assert read(InventoryFile(tmp_path / "ccm", ["nats://a", "another"])) is None
    assert read(InventoryFile(tmp_path / "nowhere", ["nats://a", "op"])) is None


def test_a_torn_file_is_not_used(tmp_path: Path) -> None:
    file, path = written(tmp_path)
    body = path.read_bytes()

    for length in range(len(body)):
        path.write_bytes(body[:length])
        assert read(file) is None
    for place in range(len(body)):
        path.write_bytes(body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :])
        assert read(file) is None
    path.write_bytes(body + b"\0")
    assert read(file) is None


@pytest.mark.parametrize("key", [ENTRY.key, "node.web2"])
def test_a_part_with_other_entries_than_the_index_is_not_used(key: str, tmp_path: Path) -> None:
    file, path = written(tmp_path)
    magic, part, index, *_ = write_parts(*KNOWN)
    renamed = index.replace(ENTRY.key.encode(), key.encode())
    trailer = len(renamed).to_bytes(8) + hashlib.sha256(renamed).digest()

    path.write_bytes(magic + part + renamed + trailer)

    assert read(file) == (KNOWN if key == ENTRY.key else None)


def _open_file(path: Path) -> None:
    path.chmod(0o640)


def _open_folder(path: Path) -> None:
    path.parent.chmod(0o710)


def _symlink(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _hard_link(path: Path) -> None:
    path.with_name("elsewhere").hardlink_to(path)


def _symlinked_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))
    path.parent.symlink_to("elsewhere")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


@pytest.mark.parametrize(
    "change", [_open_file, _open_folder, _symlink, _hard_link, _symlinked_folder, _pipe, _folder]
)
def test_a_file_that_others_can_open_or_put_there_is_not_used(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    file, path = written(tmp_path)

    change(path)

    assert read(file) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("is_folder", [False, True])
def test_a_file_of_another_user_is_neither_used_nor_replaced(is_folder: bool, tmp_path: Path) -> None:
    file, path = written(tmp_path)
    os.chown(path.parent if is_folder else path, 65534, 65534)
    before = path.read_bytes()

    assert read(file) is None
    if is_folder:
        file.write("later", [ENTRY])
        assert path.read_bytes() == before


def test_nothing_is_written_through_a_symlink(tmp_path: Path) -> None:
    file, path = written(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.unlink()
    path.symlink_to(victim)

    file.write(*KNOWN)

    assert (victim.read_text(), read(file)) == ("precious", KNOWN)


def test_a_folder_that_cannot_be_made_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = InventoryFile(tmp_path / "file" / "ccm", [])

    file.write(*KNOWN)
    file.remove()

    assert read(file) is None


_WRITER = """
import pathlib, sys
from datetime import UTC, datetime
from ccm_agent.model.ports import KeyValueEntry
from ccm_ctl.fleet.nodes.inventory_file import InventoryFile
file = InventoryFile(pathlib.Path(sys.argv[1]), ["nats://a", "op"])
entries = [
    KeyValueEntry(key=key, value=b"x" * 4000, revision=7, created=datetime(2026, 1, 1, tzinfo=UTC))
    for key in (f"node.web{number}" for number in range(2000))
]
while True:
    file.write("a", entries)
    print("written", flush=True)
"""


def test_a_writer_that_is_killed_leaves_a_whole_file(tmp_path: Path) -> None:
    file = InventoryFile(tmp_path / "ccm", ["nats://a", "op"])
    for lines in range(1, 6):
        program = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path / "ccm")], stdout=subprocess.PIPE, text=True
        )
        assert program.stdout is not None
        for _ in range(lines):
            program.stdout.readline()
        program.send_signal(signal.SIGKILL)
        program.wait()
        program.stdout.close()

        known = read(file)
        assert known is not None
        assert len(known[1]) == 2000


def test_what_a_killed_writer_left_is_removed_by_and_by(tmp_path: Path) -> None:
    file, path = written(tmp_path)
    old, new = path.with_name(".new-old"), path.with_name(".new-new")
    for one in (old, new):
        one.write_text("")
    os.utime(old, (0, 0))

    file.write(*KNOWN)

    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, Path("/c/ccm")),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, Path("/h/.cache/ccm")),
        ({"HOME": "/h"}, Path("/h/.cache/ccm")),
        ({}, None),
    ],
)
def test_the_folder_is_that_of_the_user(environ: dict[str, str], folder: Path | None) -> None:
    assert cache_folder(environ) == folder
