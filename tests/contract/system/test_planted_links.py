"""Symlinks that a user left where root reads: they are no way to what that user may not read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ccm_agent.app_expressions import make_environment
from ccm_agent.model.errors import CcmError, FileError
from ccm_agent.model.ports import ContentRef
from ccm_agent.system.files import SystemFiles

NOBODY, DAEMON = 65534, 1
SECRET = "root alone"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play several users")


@pytest.fixture
def home() -> Iterator[Path]:
    """A user's directory beside root's secret, where anyone can come to both; `tmp_path` lets in nobody but root."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        top.chmod(0o755)
        (top / "etc").mkdir(mode=0o755)
        (top / "etc/shadow").write_text(SECRET)
        (top / "etc/shadow").chmod(0o600)
        (top / "home").mkdir(mode=0o755)
        os.chown(top / "home", NOBODY, NOBODY)
        yield top / "home"


def link(path: Path, target: str, owner: int = NOBODY) -> Path:
    """A symlink of a user's."""
    os.symlink(target, path)
    os.chown(path, owner, owner, follow_symlinks=False)
    return path


def put(path: Path, mode: int, owner: int) -> None:
    """A file of a user's."""
    path.write_text("content")
    path.chmod(mode)
    os.chown(path, owner, owner)


def at_the_end(home: Path) -> Path:
    return link(home / "conf", "../etc/shadow")


def on_the_way(home: Path) -> Path:
    return link(home / "dir", "../etc") / "shadow"


def by_way_of_another(home: Path) -> Path:
    link(home / "two", "../etc/shadow")
    return link(home / "one", str(home / "two"))


def by_way_of_roots(home: Path) -> Path:
    link(home.parent / "etc/alias", "shadow", 0)
    return link(home / "conf", "../etc/alias")


PLANTED = [at_the_end, on_the_way, by_way_of_another, by_way_of_roots]


@pytest.mark.parametrize("plant", PLANTED)
async def test_source_is_not_copied_through_symlinks(home: Path, plant: Callable[[Path], Path]) -> None:
    path = plant(home)

    with pytest.raises(FileError, match="which that user may not read"):
        await SystemFiles().write(f"{home.parent}/copy", ContentRef(str(path)), mode=0o644)

    assert not (home.parent / "copy").exists()


@pytest.mark.parametrize("plant", PLANTED)
async def test_nor_is_a_document_read(home: Path, plant: Callable[[Path], Path]) -> None:
    path = plant(home)

    with pytest.raises(FileError, match="which that user may not read"):
        await SystemFiles().read(str(path), 1000)


@pytest.mark.parametrize("plant", PLANTED)
def test_nor_a_file_that_a_template_names(home: Path, plant: Callable[[Path], Path]) -> None:
    path = plant(home)

    with pytest.raises(CcmError, match="which that user may not read"):
        make_environment({}, {}, {}, "/").read_file(str(path))


def test_a_file_that_other_users_cannot_reach_is_not_read(home: Path) -> None:
    """Its own mode would let anyone read it; the directory that it is in lets nobody in."""
    inside = home.parent / "private"
    inside.mkdir(mode=0o700)
    (inside / "file").write_text(SECRET)
    (inside / "file").chmod(0o644)

    with pytest.raises(CcmError, match="which that user may not read"):
        make_environment({}, {}, {}, "/").read_file(str(link(home / "conf", "../private/file")))


@pytest.mark.parametrize(
    ("target", "mode", "file_owner", "link_owner"),
    [
        pytest.param("own", 0o600, NOBODY, NOBODY, id="their own file"),
        pytest.param("../etc/public", 0o644, 0, NOBODY, id="a file that anyone may read"),
        pytest.param("../etc/private", 0o600, 0, 0, id="by a link of root's"),
    ],
)
async def test_others_are_followed(
    home: Path, target: str, mode: int, file_owner: int, link_owner: int
) -> None:
    put(home / target, mode, file_owner)
    path = link(home / "conf", target, link_owner)

    assert await SystemFiles().read(str(path), 1000) == b"content"
    assert make_environment({}, {}, {}, "/").read_file(str(path)) == "content"


async def test_a_link_to_the_file_of_a_third_user_is_not(home: Path) -> None:
    (home.parent / "third").write_text(SECRET)
    (home.parent / "third").chmod(0o600)
    os.chown(home.parent / "third", DAEMON, DAEMON)

    with pytest.raises(FileError, match="which that user may not read"):
        await SystemFiles().read(str(link(home / "conf", "../third")), 1000)


async def test_a_file_that_is_replaced_while_it_is_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").write_text("new")
    real = os.fstat
    replaced = False

    def fstat(fd: int) -> os.stat_result:
        nonlocal replaced
        if not replaced:
            replaced = True
            os.rename(tmp_path / "b", tmp_path / "a")
        return real(fd)

    monkeypatch.setattr(os, "fstat", fstat)

    assert await SystemFiles().read(f"{tmp_path}/a", 1000) == b"old"
