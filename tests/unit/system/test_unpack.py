"""Hostile and honest archives: what is refused changes nothing, and nothing lands outside."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import Packed
from ccm_agent.system import unpack as module
from ccm_agent.system.hop import Stop
from ccm_agent.system.unpack import unpack

Part = dict[str, Any]


def tar(*parts: Part, packed: bool = True) -> bytes:
    """A tar of these parts: name, and content, symlink, hardlink, directory or type."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for part in parts:
            info = tarfile.TarInfo(part["name"])
            info.mode, info.mtime = part.get("mode", 0o644), 1_600_000_000
            info.uid, info.gid = os.getuid(), os.getgid()
            content = part.get("content", "").encode()
            if "symlink" in part:
                info.type, info.linkname = tarfile.SYMTYPE, part["symlink"]
            elif "hardlink" in part:
                info.type, info.linkname = tarfile.LNKTYPE, part["hardlink"]
            elif part.get("directory"):
                info.type, info.mode = tarfile.DIRTYPE, part.get("mode", 0o755)
            elif "type" in part:
                info.type = part["type"]
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return gzip.compress(out.getvalue(), mtime=0) if packed else out.getvalue()


def zipped(*parts: Part) -> bytes:
    """A zip of these parts."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in parts:
            info = zipfile.ZipInfo(part["name"], (2020, 1, 1, 0, 0, 0))
            kind = 0o120777 if "symlink" in part else 0o100644
            info.external_attr = kind << 16
            archive.writestr(info, part.get("symlink", part.get("content", "")))
    return out.getvalue()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a directory to unpack into, and something outside that must stay as it is."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("as it was")
    (tmp_path / "into").mkdir()
    return tmp_path


def run(place: Path, content: bytes, kind: str = "tar.gz", **limits: int) -> int:
    """Unpack into `into`."""
    archive = place / f"a.{kind}"
    archive.write_bytes(content)
    return unpack(Packed(path=str(archive), kind=kind, **limits), str(place / "into"), Stop())


def tree(folder: Path) -> dict[str, str]:
    """What is in a folder."""
    return {
        str(path.relative_to(folder)): (
            f"-> {os.readlink(path)}" if path.is_symlink() else "/" if path.is_dir() else path.read_text()
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ([{"name": "../x"}], "entry '../x' leads out of the directory that is unpacked into"),
        ([{"name": "a/../../x"}], "entry 'a/../../x' leads out of the directory that is unpacked into"),
        ([{"name": "/etc/x"}], "entry '/etc/x' has an absolute name"),
        (
            [{"name": "l", "symlink": "/etc"}, {"name": "l/x"}],
            "entry 'l' is a symlink to '/etc', which is outside of what is unpacked",
        ),
        (
            [{"name": "a/l", "symlink": "../../outside"}],
            "entry 'a/l' is a symlink to '../../outside', which is outside of what is unpacked",
        ),
        (
            [{"name": "h", "hardlink": "../outside/file"}],
            "entry 'h' is a hardlink to '../outside/file', which is outside of what is unpacked",
        ),
        (
            [{"name": "h", "hardlink": "/etc/passwd"}],
            "entry 'h' is a hardlink to '/etc/passwd', which is outside of what is unpacked",
        ),
        ([{"name": "d", "type": tarfile.CHRTYPE}], "entry 'd' is neither file, directory nor link"),
        ([{"name": "f", "type": tarfile.FIFOTYPE}], "entry 'f' is neither file, directory nor link"),
    ],
)
def test_a_hostile_tar_is_refused_before_anything_is_written(
    place: Path, parts: list[Part], sentence: str
) -> None:
    with pytest.raises(FileError) as caught:
        run(place, tar({"name": "first", "content": "x"}, *parts))

    assert caught.value.message == f"{place}/a.tar.gz: {sentence}"
    assert tree(place / "into") == {}
    assert tree(place / "outside") == {"file": "as it was"}


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ([{"name": "../x", "content": "x"}], "leads out of"),
        ([{"name": "/x", "content": "x"}], "absolute name"),
        (
            [{"name": "l", "symlink": "../outside"}, {"name": "l/file", "content": "x"}],
            "is a symlink to '../outside'",
        ),
    ],
)
def test_a_hostile_zip_is_refused_before_anything_is_written(
    place: Path, parts: list[Part], word: str
) -> None:
    with pytest.raises(FileError, match=word):
        run(place, zipped({"name": "first", "content": "x"}, *parts), "zip")

    assert tree(place / "into") == {}
    assert tree(place / "outside") == {"file": "as it was"}


@pytest.mark.parametrize("target", ["../outside", "{place}/outside"])
def test_a_symlink_that_was_there_before_is_not_followed_out(place: Path, target: str) -> None:
    (place / "into/link").symlink_to(target.format(place=place))

    with pytest.raises(FileError, match="through"):
        run(place, tar({"name": "link/file", "content": "changed"}))

    assert tree(place / "outside") == {"file": "as it was"}


def test_a_symlink_that_stays_within_is_followed(place: Path) -> None:
    (place / "into/v1").mkdir()
    (place / "into/current").symlink_to("v1")

    run(
        place,
        tar(
            {"name": "current/file", "content": "x"},
            {"name": "lib", "symlink": "v1/../v1"},
            {"name": "lib/b"},
        ),
    )

    assert tree(place / "into") == {
        "current": "-> v1",
        "v1": "/",
        "v1/file": "x",
        "v1/b": "",
        "lib": "-> v1/../v1",
    }


def test_links_modes_and_directories_arrive_as_packed(place: Path) -> None:
    count = run(
        place,
        tar(
            {"name": "./", "directory": True},
            {"name": "./d", "directory": True, "mode": 0o500},
            {"name": "./d/run", "content": "#!/bin/sh\n", "mode": 0o755},
            {"name": "d/link", "symlink": "run"},
            {"name": "d/hard", "hardlink": "./d/run"},
            {"name": "d/dangling", "symlink": "nowhere"},
        ),
    )

    assert count == 5
    assert tree(place / "into") == {
        "d": "/", "d/dangling": "-> nowhere", "d/hard": "#!/bin/sh\n", "d/link": "-> run", "d/run": "#!/bin/sh\n",
    }  # fmt: skip
    assert [(place / "into" / n).stat().st_mode & 0o777 for n in ("d", "d/run")] == [0o500, 0o755]
    assert (place / "into/d/run").stat().st_ino == (place / "into/d/hard").stat().st_ino
    assert (place / "into/d").stat().st_mtime == 1_600_000_000


def test_what_is_there_is_replaced_and_what_is_not_packed_stays(place: Path) -> None:
    (place / "into/file").write_text("old")
    (place / "into/other").write_text("mine")
    (place / "into/link").symlink_to("../outside/file")

    run(place, zipped({"name": "file", "content": "new"}, {"name": "link", "content": "own"}), "zip")

    assert tree(place / "into") == {"file": "new", "other": "mine", "link": "own"}
    assert tree(place / "outside") == {"file": "as it was"}


def test_a_file_does_not_replace_a_directory(place: Path) -> None:
    (place / "into/name").mkdir()
    (place / "into/name/kept").write_text("x")

    with pytest.raises(FileError, match="entry 'name' is no directory, and a directory stands there"):
        run(place, tar({"name": "name", "content": "x"}))

    assert tree(place / "into") == {"name": "/", "name/kept": "x"}


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip_checksum(content: bytes) -> bytes:
    return content[:-8] + bytes([content[-8] ^ 1]) + content[-7:]


@pytest.mark.parametrize("damage", [cut, flip_checksum, lambda _: b"not gzip\n", lambda _: b""])
def test_a_damaged_archive_changes_nothing(place: Path, damage: Callable[[bytes], bytes]) -> None:
    content = tar(*({"name": f"f{i}", "content": os.urandom(200).hex()} for i in range(9)))

    with pytest.raises(FileError, match="cannot be unpacked"):
        run(place, damage(content))

    assert tree(place / "into") == {}


def test_a_damaged_header_in_the_middle_is_not_taken_for_the_end(place: Path) -> None:
    plain = bytearray(tar({"name": "a", "content": "x"}, {"name": "b", "content": "y"}, packed=False))
    plain[1024 + 5] ^= 1

    with pytest.raises(FileError, match="a header is damaged"):
        run(place, bytes(plain), "tar")

    assert tree(place / "into") == {}


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"limit_entries": 3}, "holds more than 3 entries"),
        ({"limit_bytes": 1000}, "unpacks to more than 1000 bytes"),
    ],
)
def test_a_bomb_is_refused(place: Path, limits: dict[str, int], sentence: str) -> None:
    bomb = [{"name": f"f{i}", "content": "0" * 300} for i in range(4)]

    for kind, content in (("tar.gz", tar(*bomb)), ("zip", zipped(*bomb))):
        with pytest.raises(FileError, match=sentence):
            run(place, content, kind, **limits)

    assert tree(place / "into") == {}


def test_an_archive_larger_than_the_room_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.Tree, "free_bytes", lambda _: 10)

    with pytest.raises(FileError, match=r"unpacks to 11 bytes, and .*/into has 10 free; make room"):
        run(place, tar({"name": "f", "content": "hello world"}))

    assert tree(place / "into") == {}


def test_a_tar_may_be_compressed_and_a_tar_gz_must_be(place: Path) -> None:
    assert run(place, tar({"name": "f", "content": "x"}), "tar") == 1
    with pytest.raises(FileError, match=r"(?i)not a gzip"):
        run(place, tar({"name": "f", "content": "x"}, packed=False), "tar.gz")


def test_nothing_is_written_once_it_is_to_stop(place: Path) -> None:
    stop = Stop()
    stop.set()
    (place / "a.tar").write_bytes(tar({"name": "f", "content": "x"}))

    with pytest.raises(InterruptedError):
        unpack(Packed(path=str(place / "a.tar"), kind="tar"), str(place / "into"), stop)

    assert tree(place / "into") == {}


class TestWhatTellsThatItWasDone:
    """`Packed.proof`: a file or directory of the archive that the next run takes for the whole."""

    APP = (
        {"name": "app/bin/app", "content": "run"},
        {"name": "app/README", "content": "read"},
        {"name": "app/bin/again", "hardlink": "app/bin/app"},
    )

    def unpack(self, place: Path, content: bytes, proof: str) -> None:
        archive = place / "a.tar.gz"
        archive.write_bytes(content)
        unpack(Packed(path=str(archive), kind="tar.gz", proof=proof), str(place / "into"), Stop())

    @pytest.mark.parametrize("proof", ["app/bin/app", "app", "app/bin", "app/README", "elsewhere", ""])
    def test_it_is_there_in_the_end_with_all_else(self, place: Path, proof: str) -> None:
        self.unpack(place, tar(*self.APP), proof)

        assert tree(place / "into") == {
            "app": "/",
            "app/README": "read",
            "app/bin": "/",
            "app/bin/again": "run",
            "app/bin/app": "run",
        }
        assert (place / "into/app/bin/app").stat().st_nlink == 2

    @pytest.mark.parametrize("proof", ["app/bin/app", "app", "app/bin", "app/README"])
    def test_it_is_not_there_when_what_comes_later_fails(self, place: Path, proof: str) -> None:
        (place / "into/in-the-way").mkdir()

        with pytest.raises(
            FileError, match="entry 'in-the-way' is no directory, and a directory stands there"
        ):
            self.unpack(place, tar(*self.APP, {"name": "in-the-way", "content": "x"}), proof)

        assert not (place / "into" / proof).exists()
        assert not list((place / "into").rglob(".ccm-*"))

    def test_it_is_not_there_when_something_came_to_it_through_a_symlink(self, place: Path) -> None:
        (place / "into/in-the-way").mkdir()
        parts = [{"name": "way", "symlink": "app"}, {"name": "way/x", "content": "x"}, {"name": "in-the-way"}]

        with pytest.raises(FileError, match="in-the-way"):
            self.unpack(place, tar(*parts), "app")

        assert tree(place / "into") == {"in-the-way": "/", "way": "-> app"}

    def test_it_is_an_error_when_something_else_has_taken_its_place_by_then(self, place: Path) -> None:
        parts = [
            {"name": "way", "symlink": "app"},
            {"name": "way/x", "content": "x"},
            {"name": "app/y", "content": "y"},
        ]

        with pytest.raises(
            FileError, match="into/app: what was unpacked cannot take its place: Directory not empty"
        ):
            self.unpack(place, tar(*parts), "app")

        assert tree(place / "into") == {"way": "-> app"}

    def test_what_was_there_before_stays_until_it_is_replaced(self, place: Path) -> None:
        (place / "into/app/bin").mkdir(parents=True)
        (place / "into/app/bin/app").write_text("old")
        (place / "into/in-the-way").mkdir()

        with pytest.raises(FileError, match="in-the-way"):
            self.unpack(place, tar({"name": "in-the-way"}, *self.APP), "app/bin/app")

        assert (place / "into/app/bin/app").read_text() == "old"

    def test_an_error_names_the_entry_as_it_is_packed(self, place: Path) -> None:
        parts = [{"name": "app/x", "hardlink": "app/nothing"}]

        with pytest.raises(FileError) as caught:
            self.unpack(place, tar(*parts), "app")

        assert caught.value.message.endswith(
            "entry 'app/x' is a hardlink to 'app/nothing', which is no file that was unpacked"
        )

    @pytest.mark.parametrize("checks", range(10))
    def test_a_stop_at_any_time_leaves_nothing_of_it(self, place: Path, checks: int) -> None:
        archive = place / "a.tar.gz"
        archive.write_bytes(tar(*self.APP))

        with pytest.raises(InterruptedError):
            unpack(
                Packed(path=str(archive), kind="tar.gz", proof="app"), str(place / "into"), StopAfter(checks)
            )

        assert tree(place / "into") == {}


class StopAfter(Stop):
    """A stop that comes after so many looks at it."""

    def __init__(self, checks: int) -> None:
        super().__init__()
        self._left = checks

    def check(self) -> None:
        self._left -= 1
        if self._left < 0:
            self.set()
        super().check()
