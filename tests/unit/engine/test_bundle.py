import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from ccm_agent.engine.bundle import BundleLimits, unpack_bundle
from ccm_agent.model.errors import FileError, ProtocolError
from tests.support.tars import HOLD_UPS

LIMITS = BundleLimits(size_bytes=100_000, entries=50)


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    one = tarfile.TarInfo(name)
    one.type, one.linkname, one.mode = kind, link, mode
    return one


def packed(*entries: tuple[tarfile.TarInfo, bytes] | tarfile.TarInfo) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for one in entries:
            info, content = one if isinstance(one, tuple) else (one, b"")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return raw.getvalue()


def unpack(data: bytes, folder: Path, limits: BundleLimits = LIMITS) -> None:
    unpack_bundle(data, folder, limits, "site")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "out"


def tree(folder: Path) -> dict[str, str]:
    """Every path below a folder, with its mode and what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name] = f"{path.stat().st_mode & 0o7777:o} {path.read_text()}"
    return found


def test_files_folders_and_inner_symlinks_are_unpacked(folder: Path) -> None:
    data = packed(
        (entry("manifest.yaml"), b"ccm: {}"),
        entry("files", tarfile.DIRTYPE, mode=0o755),
        (entry("files/run.sh", mode=0o755), b"#!/bin/sh"),
        (entry("./deep/er/file"), b"x"),
        entry("files/again", tarfile.SYMTYPE, "../deep/er/file"),
        entry("all", tarfile.SYMTYPE, "files"),
    )

    unpack(data, folder)

    assert tree(folder) == {
        "manifest.yaml": "644 ccm: {}",
        "files": "folder",
        "files/run.sh": "755 #!/bin/sh",
        "files/again": "-> ../deep/er/file",
        "deep": "folder",
        "deep/er": "folder",
        "deep/er/file": "644 x",
        "all": "-> files",
    }


def test_modes_keep_nothing_but_the_execute_bit(folder: Path) -> None:
    unpack(packed((entry("a", mode=0o6777), b""), (entry("b", mode=0o000), b"")), folder)

    assert tree(folder) == {"a": "755 ", "b": "644 "}


HOSTILE = {
    "an absolute path": packed((entry("/etc/cron.d/x"), b"x")),
    "a path that climbs": packed((entry("../x"), b"x")),
    "a path that climbs in the middle": packed((entry("a/../../x"), b"x")),
    "a path that climbs and returns": packed((entry("a/../b"), b"x")),
    "an absolute symlink": packed(entry("a", tarfile.SYMTYPE, "/etc/passwd")),
    "a symlink that climbs": packed(entry("a", tarfile.SYMTYPE, "../x")),
    "a symlink that climbs from a folder": packed(entry("d/a", tarfile.SYMTYPE, "../../x")),
    "an empty symlink": packed(entry("a", tarfile.SYMTYPE, "")),
    "a symlink by way of another": packed(
        entry("a/b/top", tarfile.SYMTYPE, "../.."), entry("t", tarfile.SYMTYPE, "a/b/top/../x")
    ),
    "a symlink by way of another that comes later": packed(
        entry("t", tarfile.SYMTYPE, "z/../x"), entry("z", tarfile.SYMTYPE, ".")
    ),
    "a file below a symlink": packed(entry("a", tarfile.SYMTYPE, "."), (entry("a/b"), b"x")),
    "a file below a file": packed((entry("a"), b"x"), (entry("a/b"), b"x")),
    "a hard link": packed((entry("a"), b"x"), entry("b", tarfile.LNKTYPE, "a")),
    "a hard link to the host": packed(entry("b", tarfile.LNKTYPE, "/etc/shadow")),
    "a device": packed(entry("a", tarfile.CHRTYPE)),
    "a FIFO": packed(entry("a", tarfile.FIFOTYPE)),
    "a file twice": packed((entry("a"), b"x"), (entry("a"), b"y")),
    "a file twice by other spelling": packed((entry("a"), b"x"), (entry("./a"), b"y")),
    "too large": packed((entry("a"), b"x" * 100_001)),
    "too large together": packed((entry("a"), b"x" * 60_000), (entry("b"), b"x" * 60_000)),
    "too many": packed(*(entry(f"f{number}") for number in range(51))),
    "a bomb": gzip.compress(bytes(50_000_000)),
    "no gzip": b"not gzip at all",
    "half a gzip": packed((entry("a"), b"x" * 5000))[:-20],
    "no tar in it": gzip.compress(b"not a tar" * 200),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_forbidden_entry_of_a_bundle_is_refused_before_anything_is_written(folder: Path, name: str) -> None:
    with pytest.raises(ProtocolError, match=r"^site: "):
        unpack(HOSTILE[name], folder)

    assert list(folder.parent.iterdir()) == []


def test_an_empty_bundle_is_an_empty_folder(folder: Path) -> None:
    unpack(packed(), folder)

    assert tree(folder) == {}


def test_a_folder_that_cannot_be_written_is_an_error_of_this_host(tmp_path: Path) -> None:
    with pytest.raises(FileError):
        unpack(packed((entry("a"), b"x")), tmp_path / "missing" / "out")


@pytest.mark.parametrize(("plain", "sentence"), HOLD_UPS)
def test_a_header_that_would_hold_us_up_is_refused(folder: Path, plain: bytes, sentence: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        unpack(gzip.compress(plain + b"\0" * 1024, mtime=0), folder, BundleLimits())

    assert caught.value.message == f"site: the bundle is damaged: {sentence}; send it again"
    assert not folder.exists()
