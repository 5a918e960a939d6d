"""Files in the working directory that nobody named, read by root where others can put files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ccm_agent.cli import inputs
from ccm_agent.cli.ensure.ensure_shared import EnsureSharedOptions, apply_options
from ccm_agent.cli.implicit import why_not_trusted

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play several users")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of root's."""
    place = tmp_path / "here"
    place.mkdir(mode=0o755)
    monkeypatch.chdir(place)
    return place


def put(path: Path, mode: int = 0o644, owner: int = 0) -> None:
    path.write_text("A=file\n")
    path.chmod(mode)
    os.chown(path, owner, owner)


def in_a_shared_directory(here: Path) -> None:
    put(here / ".env")
    here.chmod(0o777)


def in_a_group_s_directory(here: Path) -> None:
    put(here / ".env")
    os.chown(here, 0, NOBODY)
    here.chmod(0o2775)


def in_the_directory_of_another(here: Path) -> None:
    put(here / ".env")
    os.chown(here, NOBODY, NOBODY)


def by_another_s_symlink(here: Path) -> None:
    put(here / "file")
    os.symlink("file", here / ".env")
    os.chown(here / ".env", NOBODY, NOBODY, follow_symlinks=False)


def a_second_name_in_tmp(here: Path) -> None:
    put(here.parent / "file")
    here.chmod(0o1777)
    os.link(here.parent / "file", here / ".env")


UNTRUSTED = [
    pytest.param(lambda here: put(here / ".env", owner=NOBODY), "it belongs to nobody", id="of another user"),
    pytest.param(
        lambda here: put(here / ".env", 0o666),
        "other users can write to it",
        id="other users can write to it",
    ),
    pytest.param(
        in_a_shared_directory, "other users can create files in its directory", id="in a shared directory"
    ),
    pytest.param(
        in_a_group_s_directory, "other users can create files in its directory", id="in a group's directory"
    ),
    pytest.param(in_the_directory_of_another, "its directory belongs to nobody", id="in another's directory"),
    pytest.param(by_another_s_symlink, "it belongs to nobody", id="another's symlink"),
    pytest.param(
        a_second_name_in_tmp, "other users can create files in its directory", id="a second name in /tmp"
    ),
]


@needs_root
@pytest.mark.parametrize(("make", "why"), UNTRUSTED)
def test_root_does_not_read_an_env_file_that_others_could_have_written(
    here: Path, make: Callable[[Path], None], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(here)

    assert "A" not in inputs.environment(None)
    assert capsys.readouterr().err == (
        f"ccm: warning: {here}/.env was not read: {why}; fix its owner and mode, or pass --read-env\n"
    )


@needs_root
@pytest.mark.parametrize(("make", "why"), UNTRUSTED)
def test_unless_it_is_reported_to(
    here: Path, make: Callable[[Path], None], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make(here)

    assert inputs.environment(True)["A"] == "file"
    assert capsys.readouterr().err == ""


@needs_root
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_root_reads_its_own(here: Path, mode: int, capsys: pytest.CaptureFixture[str]) -> None:
    put(here / ".env")
    here.chmod(mode)

    assert inputs.environment(None)["A"] == "file"
    assert capsys.readouterr().err == ""


@needs_root
def test_other_users_can_read_the_result(here: Path) -> None:
    here.chmod(0o777)
    put(here / ".env", 0o666, owner=1)
    os.seteuid(NOBODY)
    try:
        assert why_not_trusted(".env") == ""
    finally:
        os.seteuid(0)


@needs_root
def test_a_hierarchy_that_lies_there_is_not_read_either(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(here / ".hiera", owner=NOBODY)
    fields = dict.fromkeys(EnsureSharedOptions.__struct_fields__)

    assert apply_options(EnsureSharedOptions(**fields)).hiera == ()
    assert apply_options(EnsureSharedOptions(**fields | {"hiera": ".hiera"})).hiera == (".hiera",)
    assert capsys.readouterr().err == (
        f"ccm: warning: {here}/.hiera was not read: it belongs to nobody; fix its owner and mode, or pass --data .hiera\n"
    )


def test_where_nothing_lies_nothing_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs.environment(None)

    assert capsys.readouterr().err == ""
