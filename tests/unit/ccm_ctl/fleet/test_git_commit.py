"""The git commit of a manifest's directory, read without running anything that the repository names."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ccm_ctl.fleet.content import as_bundle, read_content
from ccm_ctl.fleet.data.git_commit import GitCommit, read_commit

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

MANIFEST = "ccm: {resources: []}\n"


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=anna", "-c", "user.email=anna@example.net", *words],
        cwd=folder, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


def make_repository(folder: Path, *options: str) -> str:
    """A repository with a site below it; its commit."""
    site = folder / "site"
    (site / "files").mkdir(parents=True)
    (site / "manifest.yaml").write_text(MANIFEST)
    (site / "files/motd").write_text("hello\n")
    (site / "files/run").write_text("#!/bin/sh\n")
    (site / "files/run").chmod(0o755)
    (site / "current").symlink_to("files/motd")
    (folder / "README").write_text("not part of the bundle\n")
    git(folder, "init", "-q", *options)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "one")
    return git(folder, "rev-parse", "HEAD")


def read(path: Path) -> GitCommit | None:
    content = as_bundle(read_content(path))
    return asyncio.run(read_commit(content, path))


def _change(site: Path) -> None:
    (site / "files/motd").write_text("other\n")


def _add(site: Path) -> None:
    (site / "new").write_text("new\n")


def _remove(site: Path) -> None:
    (site / "files/motd").unlink()
    (site / "current").unlink()


def _mode(site: Path) -> None:
    (site / "files/run").chmod(0o644)


def _link(site: Path) -> None:
    (site / "current").unlink()
    (site / "current").symlink_to("files/run")


def _elsewhere(site: Path) -> None:
    (site.parent / "README").write_text("other\n")


def _ignored(site: Path) -> None:
    (site / ".ccmignore").write_text("files/motd\ncurrent\n")
    (site / "files/motd").write_text("other\n")


@pytest.mark.parametrize(
    ("change", "is_dirty"),
    [
        pytest.param(lambda _: None, False, id="nothing"),
        pytest.param(_elsewhere, False, id="a file that is not in the bundle"),
        pytest.param(_ignored, False, id="a file that .ccmignore leaves out"),
        pytest.param(_change, True, id="a file was changed"),
        pytest.param(_add, True, id="a file was added"),
        pytest.param(_remove, True, id="files were removed"),
        pytest.param(_mode, True, id="a mode was changed"),
        pytest.param(_link, True, id="a symlink was changed"),
    ],
)
def test_a_directory_that_differs_from_its_commit_is_dirty(
    tmp_path: Path, change: Callable[[Path], None], is_dirty: bool
) -> None:
    commit = make_repository(tmp_path / "repository")

    change(tmp_path / "repository/site")

    assert read(tmp_path / "repository/site") == GitCommit(commit=commit, is_dirty=is_dirty)


def test_a_single_file_has_the_commit_of_its_directory(tmp_path: Path) -> None:
    commit = make_repository(tmp_path / "repository")
    path = tmp_path / "repository/site/manifest.yaml"
    _change(path.parent)

    clean = read(path)
    path.write_text(f"# more\n{MANIFEST}")
    changed = read(path)

    assert [clean, changed] == [
        GitCommit(commit=commit, is_dirty=False),
        GitCommit(commit=commit, is_dirty=True),
    ]


def test_a_repository_with_sha256_has_a_commit(tmp_path: Path) -> None:
    commit = make_repository(tmp_path / "repository", "--object-format=sha256")

    assert (len(commit), read(tmp_path / "repository/site")) == (64, GitCommit(commit=commit, is_dirty=False))


def test_without_a_repository_a_commit_or_git_there_is_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_repository(tmp_path / "repository")
    untracked = tmp_path / "repository/untracked"
    outside, empty = tmp_path / "outside", tmp_path / "empty"
    for folder in (untracked, outside, empty):
        folder.mkdir()
        (folder / "manifest.yaml").write_text(MANIFEST)
    git(empty, "init", "-q")

    found = [read(folder) for folder in (untracked, outside, empty)]
    monkeypatch.setenv("PATH", str(tmp_path / "no"))

    assert [*found, read(tmp_path / "repository/site")] == [None] * 4


def test_nothing_that_the_repository_names_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "repository"
    make_repository(folder)
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{ran}'\ncat\n")
    program.chmod(0o755)
    (folder / "site/.gitattributes").write_text("* filter=evil diff=evil\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "two")
    for hook in (
        "post-index-change",
        "pre-commit",
        "post-checkout",
        "reference-transaction",
        "fsmonitor-watchman",
    ):
        shutil.copy(program, folder / ".git/hooks" / hook)
    for name in (
        "filter.evil.clean", "filter.evil.process", "diff.evil.textconv", "diff.external", "core.fsmonitor",
        "core.pager", "core.sshCommand", "core.editor", "alias.ls-tree", "alias.rev-parse", "gpg.program",
        "credential.helper",
    ):  # fmt: skip
        git(folder, "config", name, str(program))
    # stale times: a program that compares files with the index would run the filter
    os.utime(folder / "site/files/motd", (1, 1))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))

    found = read(folder / "site")

    assert found is not None
    assert not found.is_dirty
    assert not ran.exists()
    monkeypatch.delenv("GIT_DIR")
    subprocess.run(["git", "status"], cwd=folder, check=False, capture_output=True)
    assert ran.exists()  # git itself would have run them


def test_a_git_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_repository(tmp_path / "repository")
    slow = tmp_path / "bin/git"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/sh\necho $$ > '{tmp_path}/pid'\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("ccm_ctl.fleet.data.git_commit._LIMIT_S", 1)

    found = read(tmp_path / "repository/site")

    assert found is None
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
