import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.storage.journal import (
    Journal,
    Read,
    encode_record,
    make_private_folder,
    read_records,
    replace_file,
)

PAYLOADS = [b"first", b"", b"third\x00\xff", b"x" * 1000]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def written(path: Path) -> bytes:
    journal = Journal(path)
    journal.open()
    for payload in PAYLOADS:
        journal.append(payload)
    journal.close()
    return path.read_bytes()


def reopened(path: Path) -> Read:
    journal = Journal(path)
    read = journal.open()
    journal.close()
    return read


def test_appended_events_are_read_after_reopening(path: Path) -> None:
    written(path)

    assert [payload for _, payload in reopened(path).records] == PAYLOADS


def test_the_file_is_for_its_owner_alone(path: Path) -> None:
    written(path)

    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_cut_at_any_byte_gives_its_whole_records_and_takes_more(path: Path) -> None:
    data = written(path)
    ends = [0]
    for payload in PAYLOADS:
        ends.append(ends[-1] + len(encode_record(payload)))
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        whole = sum(end <= length for end in ends[1:])

        journal = Journal(path)
        read = journal.open()
        journal.append(b"after")
        journal.close()

        assert [payload for _, payload in read.records] == PAYLOADS[:whole]
        assert read.torn_bytes == length - ends[whole]
        assert [payload for _, payload in reopened(path).records] == [*PAYLOADS[:whole], b"after"]


def test_a_byte_turned_anywhere_costs_one_record_at_most_and_never_gives_a_wrong_one(path: Path) -> None:
    data = written(path)
    for place in range(len(data)):
        turned = bytes([*data[:place], data[place] ^ 0x5A, *data[place + 1 :]])

        payloads = [payload for _, payload in read_records(turned).records]

        assert len(payloads) == len(PAYLOADS) - 1
        assert all(payload in PAYLOADS for payload in payloads)


def test_zeroes_at_the_end_as_a_power_cut_leaves_them_are_cut_off(path: Path) -> None:
    path.write_bytes(written(path) + bytes(4096))

    read = reopened(path)

    assert [payload for _, payload in read.records] == PAYLOADS
    assert (read.torn_bytes, read.damaged_bytes) == (4096, 0)


def test_noise_between_records_is_skipped(path: Path) -> None:
    noise = random.Random(7).randbytes(500)
    path.write_bytes(encode_record(b"a") + noise + encode_record(b"b"))

    read = reopened(path)

    assert [payload for _, payload in read.records] == [b"a", b"b"]
    assert read.damaged_bytes == 500


def test_a_record_is_read_back_at_its_offset(path: Path) -> None:
    journal = Journal(path)
    journal.open()

    offsets = [journal.append(payload) for payload in PAYLOADS]

    assert [journal.read_at(offset) for offset in offsets] == PAYLOADS
    journal.close()


def test_a_full_disk_is_an_error_and_leaves_no_half_record(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(path)
    journal.open()
    journal.append(b"before")
    really = os.write

    def half(fd: int, data: bytes) -> int:
        return really(fd, data[:5])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(FileError) as caught:
        journal.append(b"too much")
    monkeypatch.undo()

    assert (
        str(caught.value) == f"{path}: cannot write: {os.strerror(errno.ENOSPC)}; check the free disk space"
    )
    journal.append(b"after")
    journal.close()
    read = reopened(path)
    assert [payload for _, payload in read.records] == [b"before", b"after"]
    assert read.damaged_bytes == 0


def test_a_file_that_cannot_be_replaced_is_as_before_and_leaves_nothing_half_written(path: Path) -> None:
    replace_file(path, [b"before"])

    def too_much() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        replace_file(path, too_much())

    assert path.read_bytes() == b"before"
    assert list(path.parent.iterdir()) == [path]


def test_a_symlink_in_the_place_of_the_file_is_refused(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")

    with pytest.raises(FileError):
        Journal(path).open()


def test_a_folder_and_its_missing_parents_are_for_their_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there").chmod(0o755)
    umask = os.umask(0)
    try:
        make_private_folder(tmp_path / "there" / "parent" / "folder")
        make_private_folder(tmp_path / "there" / "parent" / "folder")
    finally:
        os.umask(umask)

    made = [tmp_path / "there", tmp_path / "there/parent", tmp_path / "there/parent/folder"]
    assert [one.stat().st_mode & 0o777 for one in made] == [0o755, 0o700, 0o700]
