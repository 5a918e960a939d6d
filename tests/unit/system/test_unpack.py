"""Hostile and honest archives: what is refused changes nothing, and nothing lands outside."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import Packed
from ccm_agent.system.archives import unpack as module
from ccm_agent.system.archives.archive_entries import ArchiveEntry
from ccm_agent.system.archives.unpack import unpack
from ccm_agent.system.atomic_write import NewFile
from ccm_agent.system.threads import CancelFlag
from ccm_agent.system.trees.tree import OpenTree
from tests.support.tars import HOLD_UPS, attributes, header, record

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


def run(place: Path, content: bytes, kind: str = "tar.gz", **more: int) -> int:
    """Unpack into `into`."""
    archive = place / f"a.{kind}"
    archive.write_bytes(content)
    return unpack(Packed(path=str(archive), kind=kind, **more), str(place / "into"), CancelFlag())


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
        ([{"name": "../x"}], "entry '../x' leads outside the target directory"),
        ([{"name": "a/../../x"}], "entry 'a/../../x' leads outside the target directory"),
        ([{"name": "/etc/x"}], "entry '/etc/x' has an absolute name"),
        (
            [{"name": "l", "symlink": "/etc"}, {"name": "l/x"}],
            "entry 'l' is a symlink to '/etc', which is outside the target directory",
        ),
        (
            [{"name": "a/l", "symlink": "../../outside"}],
            "entry 'a/l' is a symlink to '../../outside', which is outside the target directory",
        ),
        (
            [{"name": "h", "hardlink": "../outside/file"}],
            "entry 'h' is a hardlink to '../outside/file', which is outside the target directory",
        ),
        (
            [{"name": "h", "hardlink": "/etc/passwd"}],
            "entry 'h' is a hardlink to '/etc/passwd', which is outside the target directory",
        ),
        ([{"name": "d", "type": tarfile.CHRTYPE}], "entry 'd' is not a file, directory or link"),
        ([{"name": "f", "type": tarfile.FIFOTYPE}], "entry 'f' is not a file, directory or link"),
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
        ([{"name": "../x", "content": "x"}], "leads outside"),
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


@pytest.mark.parametrize(("drops", "modes"), [(False, [0o2775, 0o6755]), (True, [0o775, 0o755])])
def test_special_bits_are_kept_as_tar_keeps_them_unless_they_are_to_be_dropped(
    place: Path, drops: bool, modes: list[int]
) -> None:
    run(
        place,
        tar(
            {"name": "shared", "directory": True, "mode": 0o2775},
            {"name": "shared/tool", "content": "x", "mode": 0o6755},
        ),
        drop_special_bits=drops,
    )

    assert [(place / "into" / n).stat().st_mode & 0o7777 for n in ("shared", "shared/tool")] == modes


def test_existing_content_is_replaced_and_unpacked_files_only(place: Path) -> None:
    (place / "into/file").write_text("old")
    (place / "into/other").write_text("mine")
    (place / "into/link").symlink_to("../outside/file")

    run(place, zipped({"name": "file", "content": "new"}, {"name": "link", "content": "own"}), "zip")

    assert tree(place / "into") == {"file": "new", "other": "mine", "link": "own"}
    assert tree(place / "outside") == {"file": "as it was"}


def test_a_file_does_not_replace_a_directory(place: Path) -> None:
    (place / "into/name").mkdir()
    (place / "into/name/kept").write_text("x")

    with pytest.raises(FileError, match="entry 'name' is not a directory, but a directory exists there"):
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
        ({"limit_entries": 3}, "contains more than 3 entries"),
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
    monkeypatch.setattr(module.OpenTree, "free_bytes", lambda _: 10)

    with pytest.raises(
        FileError, match=r"unpacks to 11 bytes, but .*/into has only 10 free; free some space"
    ):
        run(place, tar({"name": "f", "content": "hello world"}))

    assert tree(place / "into") == {}


def test_a_tar_may_be_compressed_and_a_tar_gz_must_be(place: Path) -> None:
    assert run(place, tar({"name": "f", "content": "x"}), "tar") == 1
    with pytest.raises(FileError, match=r"(?i)not a gzip"):
        run(place, tar({"name": "f", "content": "x"}, packed=False), "tar.gz")


def test_nothing_is_written_once_it_is_to_stop(place: Path) -> None:
    stop = CancelFlag()
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
        unpack(Packed(path=str(archive), kind="tar.gz", proof=proof), str(place / "into"), CancelFlag())

    @pytest.mark.parametrize("proof", ["app/bin/app", "app", "app/bin", "app/README", "elsewhere", ""])
    def test_the_marker_exists_in_the_end(self, place: Path, proof: str) -> None:
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
    def test_the_marker_is_missing_when_a_later_entry_fails(self, place: Path, proof: str) -> None:
        (place / "into/in-the-way").mkdir()

        with pytest.raises(
            FileError, match="entry 'in-the-way' is not a directory, but a directory exists there"
        ):
            self.unpack(place, tar(*self.APP, {"name": "in-the-way", "content": "x"}), proof)

        assert not (place / "into" / proof).exists()
        assert not list((place / "into").rglob(".ccm-*"))

    def test_the_marker_is_missing_when_an_entry_reached_it_through_a_symlink(self, place: Path) -> None:
        (place / "into/in-the-way").mkdir()
        parts = [{"name": "way", "symlink": "app"}, {"name": "way/x", "content": "x"}, {"name": "in-the-way"}]

        with pytest.raises(FileError, match="in-the-way"):
            self.unpack(place, tar(*parts), "app")

        assert tree(place / "into") == {"in-the-way": "/", "way": "-> app"}

    def test_a_marker_path_taken_by_something_else_is_an_error(self, place: Path) -> None:
        parts = [
            {"name": "way", "symlink": "app"},
            {"name": "way/x", "content": "x"},
            {"name": "app/y", "content": "y"},
        ]

        with pytest.raises(
            FileError, match="into/app: cannot move the unpacked content there: Directory not empty"
        ):
            self.unpack(place, tar(*parts), "app")

        assert tree(place / "into") == {"way": "-> app"}

    def test_the_previous_content_before_stays_until_it_is_replaced(self, place: Path) -> None:
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
            "entry 'app/x' is a hardlink to 'app/nothing', which is not a file that was unpacked"
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


class StopAfter(CancelFlag):
    """A stop that comes after so many looks at it."""

    def __init__(self, checks: int) -> None:
        super().__init__()
        self._left = checks

    def check(self) -> None:
        self._left -= 1
        if self._left < 0:
            self.set()
        super().check()


@pytest.mark.parametrize(("plain", "sentence"), HOLD_UPS)
def test_a_header_that_would_hold_us_up_is_refused(place: Path, plain: bytes, sentence: str) -> None:
    with pytest.raises(FileError) as caught:
        run(place, gzip.compress(plain + b"\0" * 1024, mtime=0))

    assert caught.value.message == f"{place}/a.tar.gz: archive cannot be unpacked: {sentence}"


def test_more_entries_than_an_archive_of_its_size_can_honestly_hold_are_not_read(place: Path) -> None:
    """A header of zeros takes two bytes of a compressed archive, and as much time and memory as any other."""
    base = bytearray(tarfile.TarInfo("f").tobuf(tarfile.GNU_FORMAT))
    content = gzip.compress(bytes(base) * 60_000, mtime=0)
    seen = 0

    class Counts(CancelFlag):
        def check(self) -> None:
            nonlocal seen
            seen += 1

    (place / "a.tar.gz").write_bytes(content)
    with pytest.raises(FileError, match=r"contains more than 2\d{4} entries"):
        unpack(Packed(path=f"{place}/a.tar.gz", kind="tar.gz"), f"{place}/into", Counts())
    assert seen < 30_000
    assert tree(place / "into") == {}


def test_entries_for_the_directory_itself_count_too(place: Path) -> None:
    with pytest.raises(FileError, match="contains more than 3 entries"):
        run(place, tar(*({"name": "./", "directory": True} for _ in range(4))), limit_entries=3)


def test_a_zip_whose_directory_holds_more_is_not_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = zipped(*({"name": f"f{n}"} for n in range(40)))
    monkeypatch.setattr(zipfile.ZipFile, "_RealGetContents", None)  # it would be called

    with pytest.raises(FileError, match="contains more than 10 entries"):
        run(place, content, "zip", limit_entries=10)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("mtime", "nan"), ("mtime", "inf"), ("mtime", "1e300"), ("uid", "4294967295"), ("gid", "9" * 200)],
)
def test_a_time_or_an_owner_that_cannot_be_is_refused_before_anything_is_written(
    place: Path, attribute: str, value: str
) -> None:
    plain = header("first") + attributes(record(attribute, value)) + header("a") + b"\0" * 1024

    with pytest.raises(FileError, match="entry 'a' has a time or an owner that is out of range"):
        run(place, gzip.compress(plain, mtime=0))

    assert tree(place / "into") == {}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("n" * 4097, "has a name of more than 4096 characters"), ("d/" * 501, "more than 500 directories deep")],
)
def test_a_name_that_is_too_long_or_too_deep_is_refused_before_anything_is_written(
    place: Path, name: str, sentence: str
) -> None:
    plain = header("first") + attributes(record("path", f"{name}x")) + header("a") + b"\0" * 1024

    with pytest.raises(FileError, match=sentence):
        run(place, gzip.compress(plain, mtime=0))

    assert tree(place / "into") == {}


def test_damage_within_xz_is_an_error_of_ours(place: Path) -> None:
    content = bytearray(lzma.compress(tar({"name": "a", "content": "x" * 2000}, packed=False)))
    content[40] ^= 0xFF

    with pytest.raises(FileError) as caught:
        run(place, bytes(content), "tar")

    assert caught.value.message == f"{place}/a.tar: archive cannot be unpacked: Corrupt input data"


def test_a_replacement_of_a_new_file_gets_none_of_its_attributes(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who owns the directory sees a new file come, and is faster: a program of his own must not become setuid, and root's."""
    real = NewFile.give_name

    def swapped(self: NewFile) -> None:
        real(self)
        path = place / "into" / self.name
        path.unlink()
        path.touch(0o600)

    monkeypatch.setattr(NewFile, "give_name", swapped)

    run(place, tar({"name": "tool", "content": "honest", "mode": 0o4755}))

    assert (place / "into/tool").stat().st_mode & 0o7777 == 0o600


def test_a_replacement_of_a_new_symlink_gets_none_of_its_attributes(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = OpenTree.own_symlink

    def swapped(self: OpenTree, parent: int, name: str, entry: ArchiveEntry) -> None:
        os.unlink(name, dir_fd=parent)
        os.link(place / "outside/file", name, dst_dir_fd=parent)
        real(self, parent, name, entry)

    monkeypatch.setattr(OpenTree, "own_symlink", swapped)

    with pytest.raises(FileError) as caught:
        run(place, tar({"name": "link", "symlink": "there"}))

    assert caught.value.message == f"{place}/a.tar.gz: entry 'link': another process replaced it just now"
    assert (place / "outside/file").stat().st_mtime != 1_600_000_000


def test_a_quota_that_ends_in_the_middle_leaves_whole_files_and_no_proof(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.write_all

    def limited(fd: int, content: bytes) -> None:
        if b"second" in content:
            real(fd, content[:3])
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        real(fd, content)

    monkeypatch.setattr(module, "write_all", limited)
    content = tar(
        {"name": "app", "content": "proof"},
        {"name": "lib/a", "content": "first"},
        {"name": "lib/b", "content": "second"},
    )
    (place / "a.tar.gz").write_bytes(content)

    with pytest.raises(FileError) as caught:
        unpack(
            Packed(path=f"{place}/a.tar.gz", kind="tar.gz", proof="app"), str(place / "into"), CancelFlag()
        )

    assert (caught.value.errno, caught.value.message) == (
        errno.EDQUOT,
        f"{place}/a.tar.gz: entry 'lib/b' cannot be unpacked: Disk quota exceeded",
    )
    assert tree(place / "into") == {"lib": "/", "lib/a": "first"}


class TestAChecksum:
    """It holds for what is unpacked, not for what once stood there."""

    def unpack(self, place: Path, content: bytes, checked: bytes) -> int:
        archive = place / "a.tar.gz"
        archive.write_bytes(content)
        digest = hashlib.sha256(checked).hexdigest()
        packed = Packed(path=str(archive), kind="tar.gz", sha256=digest)
        return unpack(packed, str(place / "into"), CancelFlag())

    def test_an_archive_that_fits_is_unpacked(self, place: Path) -> None:
        content = tar({"name": "a", "content": "honest"})

        self.unpack(place, content, content)

        assert tree(place / "into") == {"a": "honest"}

    def test_an_archive_that_was_swapped_since_is_refused(self, place: Path) -> None:
        with pytest.raises(FileError) as caught:
            self.unpack(place, tar({"name": "a", "content": "evil"}), tar({"name": "a", "content": "honest"}))

        assert caught.value.message == (
            f"{place}/a.tar.gz: does not match its checksum: another process changed it; nothing was unpacked"
        )
        assert tree(place / "into") == {}

    @pytest.mark.parametrize("nameless", [True, False], ids=["", "where files must have names"])
    def test_a_user_with_write_access_cannot_change_it_during_unpacking(
        self, place: Path, monkeypatch: pytest.MonkeyPatch, nameless: bool
    ) -> None:
        archive = place / "a.tar.gz"
        archive.touch()
        archive.chmod(0o666)
        real = module._checked
        if not nameless:
            monkeypatch.setattr(os, "open", no_nameless(os.open))

        def changed(*args: Any) -> Any:
            archive.write_bytes(tar({"name": "a", "content": "evil"}))
            return real(*args)

        monkeypatch.setattr(module, "_checked", changed)
        content = tar({"name": "a", "content": "honest"})

        self.unpack(place, content, content)

        assert tree(place / "into") == {"a": "honest"}


def no_nameless(real: Callable[..., int]) -> Callable[..., int]:
    """`os.open` on a file system that knows no files without names."""

    def opened(path: Any, flags: int, *args: Any, **others: Any) -> int:
        if path == "." and flags & os.O_RDWR:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real(path, flags, *args, **others)

    return opened


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can play several users")
def test_no_directory_is_made_where_anothers_symlink_leads(place: Path) -> None:
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    os.symlink("../outside", shared / "app")
    os.chown(shared / "app", 65534, 65534, follow_symlinks=False)
    archive = place / "a.tar.gz"
    archive.write_bytes(tar({"name": "a"}))

    with pytest.raises(FileError) as caught:
        unpack(Packed(path=str(archive), kind="tar.gz"), f"{shared}/app/new", CancelFlag())

    assert "will not follow the symlink 'app'" in caught.value.message
    assert os.listdir(place / "outside") == ["file"]
