"""SSH keys of users: what holds for the fake as for this host, and what a user may try against root."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import KeyFile, KeyFiles, KeyPlace
from ccm_agent.system.key_files import SystemKeyFiles
from ccm_agent.testing.key_files import FakeKeyFiles

USER, OTHER = 54321, 54322

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play several users")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home directory of a user."""
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o755)
    path = tmp_path / "home"
    path.mkdir()
    os.chown(path, USER, USER)
    return path


def place(home: Path) -> KeyPlace:
    return KeyPlace(path=str(home), uid=USER, gid=USER)


def owned(path: Path, mode: int, uid: int = USER) -> None:
    path.chmod(mode)
    os.chown(path, uid, uid)


def ssh(home: Path, content: str = "", *, uid: int = USER, mode: int = 0o600) -> Path:
    """A file as it must be, unless a test says otherwise."""
    (home / ".ssh").mkdir()
    owned(home / ".ssh", 0o700)
    file = home / ".ssh/authorized_keys"
    file.write_text(content)
    owned(file, mode, uid)
    return file


@pytest.mark.parametrize("files", [SystemKeyFiles(), FakeKeyFiles()], ids=["system", "fake"])
class TestKeyFiles:
    async def test_what_was_written_is_read(self, files: KeyFiles, home: Path) -> None:
        before = await files.look([place(home)])
        await files.write(place(home), b"a\n")
        first = await files.look([place(home)])
        await files.write(place(home), b"b\n")
        second = await files.look([place(home), place(home)])

        assert before == [KeyFile()]
        assert first == [KeyFile(content=b"a\n")]
        assert second == [KeyFile(content=b"b\n")] * 2

    async def test_a_removed_file_is_gone(self, files: KeyFiles, home: Path) -> None:
        await files.write(place(home), b"a\n")

        await files.write(place(home), None)
        await files.write(place(home), None)

        assert await files.look([place(home)]) == [KeyFile()]


async def look(home: Path) -> KeyFile:
    return (await SystemKeyFiles().look([place(home)]))[0]


def shape(path: Path) -> tuple[int, int, int]:
    seen = path.lstat()
    return seen.st_uid, seen.st_gid, seen.st_mode & 0o7777


async def test_directory_and_file_belong_to_the_user_alone(home: Path) -> None:
    await SystemKeyFiles().write(place(home), b"a\n")

    assert shape(home / ".ssh") == (USER, USER, 0o700)
    assert shape(home / ".ssh/authorized_keys") == (USER, USER, 0o600)
    assert os.listdir(home / ".ssh") == ["authorized_keys"]


@pytest.mark.parametrize(
    ("mode", "file_mode", "fault"),
    [
        (0o755, 0o600, "~/.ssh has mode 0755, wanted 0700"),
        (0o700, 0o644, "~/.ssh/authorized_keys has mode 0644, wanted 0600"),
    ],
)
async def test_wrong_modes_are_found_and_repaired(home: Path, mode: int, file_mode: int, fault: str) -> None:
    ssh(home, "a\n", mode=file_mode)
    (home / ".ssh").chmod(mode)

    found = await look(home)
    await SystemKeyFiles().write(place(home), found.content)

    assert found == KeyFile(content=b"a\n", fault=fault)
    assert await look(home) == KeyFile(content=b"a\n")


async def test_a_file_that_root_wrote_is_given_to_the_user(home: Path) -> None:
    ssh(home, "a\n", uid=0, mode=0o644)

    found = await look(home)
    await SystemKeyFiles().write(place(home), found.content)

    assert found == KeyFile(content=b"a\n", fault="~/.ssh/authorized_keys belongs to root")
    assert shape(home / ".ssh/authorized_keys") == (USER, USER, 0o600)


def link_directory(home: Path, target: Path) -> None:
    (home / ".ssh").symlink_to(target)


def link_file(home: Path, target: Path) -> None:
    ssh(home).unlink()
    (home / ".ssh/authorized_keys").symlink_to(target / "authorized_keys")


def dangling_link(home: Path, target: Path) -> None:
    ssh(home).unlink()
    (home / ".ssh/authorized_keys").symlink_to(target / "new")


def hardlink(home: Path, target: Path) -> None:
    ssh(home).unlink()
    os.link(target / "authorized_keys", home / ".ssh/authorized_keys")


def fifo(home: Path, target: Path) -> None:
    ssh(home).unlink()
    os.mkfifo(home / ".ssh/authorized_keys")


def directory(home: Path, target: Path) -> None:
    ssh(home).unlink()
    (home / ".ssh/authorized_keys").mkdir()


def file_for_directory(home: Path, target: Path) -> None:
    (home / ".ssh").write_text("x")


def foreign_directory(home: Path, target: Path) -> None:
    (home / ".ssh").mkdir()
    owned(home / ".ssh", 0o777, OTHER)


def foreign_home(home: Path, target: Path) -> None:
    owned(home, 0o777, OTHER)


def home_of_root(home: Path, target: Path) -> None:
    owned(home, 0o755, 0)


def home_with_keys_of_root(home: Path, target: Path) -> None:
    ssh(home, "of root\n", uid=0, mode=0o644)
    owned(home / ".ssh", 0o700, 0)
    home_of_root(home, target)


def huge(home: Path, target: Path) -> None:
    file = ssh(home)
    os.truncate(file, 1 << 40)


TRAPS: list[tuple[Any, str, bool]] = [
    (link_directory, r"\.ssh: is a symlink, which is not followed", True),
    (link_file, r"authorized_keys: is a symlink, which is not followed", True),
    (dangling_link, r"authorized_keys: is a symlink, which is not followed", True),
    (hardlink, r"authorized_keys: belongs to root and not to 54321", False),
    (fifo, r"authorized_keys: is not a regular file", True),
    (directory, r"authorized_keys: is not a regular file", True),
    (file_for_directory, r"\.ssh: is not a directory", True),
    (foreign_directory, r"\.ssh: belongs to 54322 and not to 54321", True),
    (foreign_home, r"home: belongs to 54322 and not to 54321", True),
    (home_with_keys_of_root, r"\.ssh: belongs to root and not to 54321", True),
    (huge, r"authorized_keys: is larger than 1 MiB", False),
]


@pytest.mark.parametrize(("trap", "message", "is_refused"), TRAPS, ids=[trap.__name__ for trap, *_ in TRAPS])
async def test_a_trap_of_the_user_is_refused(
    home: Path, tmp_path: Path, trap: Any, message: str, is_refused: bool
) -> None:
    secret = tmp_path / "root"
    secret.mkdir(0o700)
    (secret / "authorized_keys").write_text("secret\n")
    (secret / "authorized_keys").chmod(0o600)
    trap(home, secret)
    before = shape(secret), shape(secret / "authorized_keys")

    found = await look(home)

    assert found.content is None
    with pytest.raises(FileError, match=message):
        raise FileError(found.error)
    if is_refused:
        with pytest.raises(FileError, match=message):
            await SystemKeyFiles().write(place(home), b"a\n")
    else:  # the name is replaced, and what it was a name of stays
        await SystemKeyFiles().write(place(home), b"a\n")
        assert await look(home) == KeyFile(content=b"a\n")
    assert (secret / "authorized_keys").read_text() == "secret\n"
    assert (shape(secret), shape(secret / "authorized_keys")) == before
    assert os.listdir(secret) == ["authorized_keys"]


async def test_no_directory_is_made_in_a_home_of_root(home: Path, tmp_path: Path) -> None:
    home_of_root(home, tmp_path)

    assert await look(home) == KeyFile()
    with pytest.raises(FileError, match="home: belongs to root and not to 54321"):
        await SystemKeyFiles().write(place(home), b"a\n")
    assert os.listdir(home) == []


async def test_a_missing_home_has_no_keys_and_takes_none(tmp_path: Path) -> None:
    missing = KeyPlace(path=str(tmp_path / "none"), uid=USER, gid=USER)

    assert await SystemKeyFiles().look([missing]) == [KeyFile()]
    with pytest.raises(FileError, match="there is no directory"):
        await SystemKeyFiles().write(missing, b"a\n")


async def test_a_thousand_homes_are_one_hop(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh(home, "a\n")
    files = SystemKeyFiles()
    hops = []
    call = files._threads.call

    async def counted(function: Any, *args: Any) -> Any:
        hops.append(function)
        return await call(function, *args)

    monkeypatch.setattr(files._threads, "call", counted)

    assert await files.look([place(home)] * 1000) == [KeyFile(content=b"a\n")] * 1000
    assert len(hops) == 1
