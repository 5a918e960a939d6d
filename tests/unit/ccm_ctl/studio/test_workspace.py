"""The files that the studio opens: nothing outside of the folder is read or written, and no change on disk is lost."""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path

import pytest

from ccm_agent.model.errors import CcmError, InputError, NotFoundError, RevisionError
from ccm_ctl.studio.workspace import FILE_BYTES, Workspace, digest_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file, and beside it one that is not for the browser."""
    (tmp_path / "secret.yaml").write_text("password: hunter2\n")
    made = tmp_path / "site"
    (made / "web").mkdir(parents=True)
    (made / "web/manifest.yaml").write_text("ccm: {}\n")
    return made


def test_a_file_is_read_and_saved_with_its_mode(folder: Path) -> None:
    path = folder / "web/manifest.yaml"
    path.chmod(0o640)
    workspace = Workspace.open(folder)

    opened = workspace.read("web/manifest.yaml")
    digest = workspace.write("web/manifest.yaml", "new: 1\n", opened.digest)

    assert (opened.text, path.read_text(), digest) == ("ccm: {}\n", "new: 1\n", digest_of(b"new: 1\n"))
    assert path.stat().st_mode & 0o7777 == 0o640
    assert [one.name for one in path.parent.iterdir()] == ["manifest.yaml"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize(("group", "saved"), [(4242, (4242, 0o660)), (4343, (4444, 0o600))])
def test_rights_of_a_group_are_not_given_to_another_one(group: int, saved: tuple[int, int]) -> None:
    groups = os.getgroups()
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), Path(name) / "site.yaml"
        path.write_text("ccm: {}\n")
        folder.chmod(0o777)
        os.chown(path, 0, group)
        path.chmod(0o660 if group == 4242 else 0o664)
        workspace = Workspace.open(folder)
        os.setgroups([4242])
        os.setegid(4444)
        os.seteuid(4444)
        try:
            workspace.write("site.yaml", "new: 1\n", workspace.read("site.yaml").digest)
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)
        seen = path.stat()

    assert (seen.st_gid, seen.st_mode & 0o770) == saved


@pytest.mark.parametrize(
    "path",
    [
        "../secret.yaml",
        "web/../../secret.yaml",
        "/etc/motd.yaml",
        "",
        "web//manifest.yaml",
        "./web/manifest.yaml",
        ".hidden.yaml",
        "web/manifest.txt",
        "a\0.yaml",
        "link.yaml",
        "linked/secret.yaml",
        "web/manifest.yaml/x.yaml",
        "pipe.yaml",
    ],
)
def test_no_path_leads_out_of_the_folder(folder: Path, path: str) -> None:
    (folder / "link.yaml").symlink_to(folder.parent / "secret.yaml")
    (folder / "linked").symlink_to(folder.parent)
    os.mkfifo(folder / "pipe.yaml")
    workspace = Workspace.open(folder)
    digest = digest_of((folder.parent / "secret.yaml").read_bytes())

    for attempt in (
        lambda: workspace.read(path),
        lambda: workspace.write(path, "x", digest),
        lambda: workspace.write(path, "x", ""),
    ):
        with pytest.raises(CcmError):
            attempt()

    assert (folder.parent / "secret.yaml").read_text() == "password: hunter2\n"


def test_a_file_that_changed_on_disk_is_not_overwritten(folder: Path) -> None:
    workspace = Workspace.open(folder)
    opened = workspace.read("web/manifest.yaml")
    (folder / "web/manifest.yaml").write_text("by: another editor\n")

    with pytest.raises(RevisionError, match="changed on disk"):
        workspace.write("web/manifest.yaml", "mine: 1\n", opened.digest)

    assert (folder / "web/manifest.yaml").read_text() == "by: another editor\n"


def test_a_new_file_does_not_replace_one(folder: Path) -> None:
    workspace = Workspace.open(folder)

    workspace.write("new.yaml", "a: 1\n", "")
    with pytest.raises(RevisionError, match="exists already"):
        workspace.write("new.yaml", "b: 1\n", "")

    assert (folder / "new.yaml").read_text() == "a: 1\n"


def test_a_file_that_was_removed_is_not_made_again_unasked(folder: Path) -> None:
    workspace = Workspace.open(folder)
    opened = workspace.read("web/manifest.yaml")
    (folder / "web/manifest.yaml").unlink()

    with pytest.raises(RevisionError, match="was removed"):
        workspace.write("web/manifest.yaml", "a: 1\n", opened.digest)

    assert list((folder / "web").iterdir()) == []


def test_yaml_files_are_listed_without_links_and_hidden_folders(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git/x.yaml").touch()
    (folder / "notes.txt").touch()
    (folder / "a.yml").touch()

    assert Workspace.open(folder).files() == ["a.yml", "web/manifest.yaml"]


def test_one_file_is_open_alone(folder: Path) -> None:
    (folder / "other.yaml").touch()
    workspace = Workspace.open(folder / "new.yaml")

    before = workspace.files()
    workspace.write("new.yaml", "a: 1\n", "")

    assert (before, workspace.files()) == ([], ["new.yaml"])
    with pytest.raises(InputError, match=r"only new\.yaml is open"):
        workspace.read("other.yaml")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("latin.yaml", b"\xff", "not UTF-8"),
        ("large.yaml", b"#" * (FILE_BYTES + 1), "larger than 1024 KiB"),
    ],
)
def test_what_is_not_a_text_of_a_manifests_size_is_refused(
    folder: Path, name: str, content: bytes, problem: str
) -> None:
    (folder / name).write_bytes(content)

    with pytest.raises(InputError, match=problem):
        Workspace.open(folder).read(name)


def test_a_file_that_is_not_there_is_not_found(folder: Path) -> None:
    with pytest.raises(NotFoundError):
        Workspace.open(folder).read("none.yaml")


@pytest.mark.parametrize("name", ["notes.txt", "none/site.yaml", "web.d"])
def test_what_cannot_be_opened_is_refused_at_the_start(folder: Path, name: str) -> None:
    with pytest.raises(InputError):
        Workspace.open(folder / name)


def swap(stop: threading.Event, folder: Path, name: str, other: Path) -> None:
    """Put a link to another place where a file or a folder is, and then the same content again, without end."""
    place, link = folder / name, folder / f".{name}.link"
    kept = folder / f".{name}.kept"
    while not stop.is_set():
        link.symlink_to(other)
        if place.is_dir():
            place.rename(kept)
            link.rename(place)
            place.unlink()
            kept.rename(place)
        else:
            link.rename(place)
            kept.write_text("ccm: {}\n")
            kept.rename(place)


@pytest.mark.parametrize("name", ["web", "web/manifest.yaml"], ids=["folder", "file"])
def test_a_link_that_is_put_there_between_check_and_save_leads_nowhere(folder: Path, name: str) -> None:
    """The other place has a file of the same name and content, so its digest is the right one."""
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "manifest.yaml").write_text("ccm: {}\n")
    before = (outside / "manifest.yaml").stat()
    target = outside if name == "web" else outside / "manifest.yaml"
    workspace, stop = Workspace.open(folder), threading.Event()
    swapping = threading.Thread(
        target=swap, args=(stop, (folder / name).parent, Path(name).name, target), name="test:swap"
    )
    refused, saved = 0, 0

    swapping.start()
    try:
        for attempt in range(100_000):
            if attempt >= 1500 and refused and saved:
                break
            try:
                opened = workspace.read("web/manifest.yaml")
                workspace.write("web/manifest.yaml", "ccm: {}\n", opened.digest)
                saved += 1
            except CcmError:
                refused += 1
    finally:
        stop.set()
        swapping.join()

    after = (outside / "manifest.yaml").stat()
    assert list(outside.iterdir()) == [outside / "manifest.yaml"]
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (saved > 0, refused > 0) == (True, True)
