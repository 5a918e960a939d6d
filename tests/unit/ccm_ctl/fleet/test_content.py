"""Manifests and directories as they are sent: the same files give the same bytes, whatever the machine."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from ccm_agent.model.errors import DocumentError, InputError
from ccm_ctl.fleet.content import Content, read_content

MANIFEST = "ccm:\n  resources:\n    - file:\n        - /tmp/motd:\n            content: hello\n"


def site(tmp_path: Path, **files: str) -> Path:
    top = tmp_path / "site"
    for name, text in {"manifest.yaml": MANIFEST, **files}.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return top


def unpacked(content: Content) -> dict[str, tuple[str, int, float, int, str, bytes]]:
    found = {}
    with tarfile.open(fileobj=io.BytesIO(content.packed), mode="r:gz") as tar:
        for entry in tar.getmembers():
            kind = "d" if entry.isdir() else "l" if entry.issym() else "f"
            data = entry.linkname.encode() if entry.issym() else b""
            if entry.isreg() and (stream := tar.extractfile(entry)):
                data = stream.read()
            found[entry.name] = (kind, entry.mode, entry.mtime, entry.uid + entry.gid, entry.uname, data)
    return found


def test_a_small_manifest_travels_as_its_text(tmp_path: Path) -> None:
    path = tmp_path / "motd.yaml"
    path.write_text(MANIFEST)

    assert read_content(path) == Content(
        name="motd",
        digest=hashlib.sha256(MANIFEST.encode()).hexdigest(),
        text=MANIFEST,
        source=str(path),
        document=MANIFEST,
    )


def test_a_large_manifest_travels_as_a_bundle(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(MANIFEST + "#" * 65536 + "\n")

    content = read_content(path)

    assert (content.text, content.files) == ("", ("manifest.yaml",))
    assert unpacked(content)["manifest.yaml"][5] == path.read_bytes()
    assert content.bundle is not None
    assert content.bundle.digest == content.digest == hashlib.sha256(content.packed).hexdigest()
    assert content.bundle.size_bytes == len(content.packed)


def test_a_directory_is_packed_reproducibly_on_all_machines(tmp_path: Path) -> None:
    top = site(tmp_path, **{"files/run.sh": "#!/bin/sh\n", "files/über.txt": "ü"})
    (top / "files/run.sh").chmod(0o700)
    (top / "link").symlink_to("files/run.sh")
    (top / "empty").mkdir()

    assert unpacked(read_content(top)) == {
        "empty": ("d", 0o755, 0, 0, "", b""),
        "files": ("d", 0o755, 0, 0, "", b""),
        "files/run.sh": ("f", 0o755, 0, 0, "", b"#!/bin/sh\n"),
        "files/über.txt": ("f", 0o644, 0, 0, "", "ü".encode()),
        "link": ("l", 0o777, 0, 0, "", b"files/run.sh"),
        "manifest.yaml": ("f", 0o644, 0, 0, "", MANIFEST.encode()),
    }


def test_the_same_files_give_the_same_digest_whatever_their_times_modes_and_order(tmp_path: Path) -> None:
    first = site(tmp_path / "a", b="2", a="1")
    second = site(tmp_path / "b", a="1", b="2")
    os.utime(second / "a", (1, 1))
    (second / "a").chmod(0o666)
    (first / "a").chmod(0o600)

    assert read_content(first).packed == read_content(second).packed


def test_ccmignore_is_read_as_a_gitignore_is(tmp_path: Path) -> None:
    top = site(
        tmp_path,
        **{
            ".ccmignore": "# what nodes do not need\n*.log\n!keep.log\n/build/\nsecret?\n",
            "a.log": "",
            "keep.log": "",
            "build/x": "",
            "src/build/x": "",
            "secret1": "",
            "src/.ccmignore": "!a.log\nlocal\n",
            "src/a.log": "",
            "src/local": "",
            ".git/config": "",
        },
    )

    assert read_content(top).files == (
        "keep.log", "manifest.yaml", "src", "src/a.log", "src/build", "src/build/x",
    )  # fmt: skip


def test_an_ignored_file_may_have_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    top = site(tmp_path, **{".ccmignore": "*.log\n"})
    (top / os.fsdecode(b"\xff.log")).touch()

    assert read_content(top).files == ("manifest.yaml",)


def test_another_manifest_is_named(tmp_path: Path) -> None:
    top = site(tmp_path, **{"roles/web.yaml": MANIFEST})

    content = read_content(top, manifest="roles/web.yaml", name="web")

    assert content.bundle is not None
    assert (content.name, content.bundle.manifest) == ("web", "roles/web.yaml")


@pytest.mark.parametrize(
    ("files", "manifest", "said"),
    [
        pytest.param(
            {}, "other.yaml",
            "{top}: contains no other.yaml; name one of these with --manifest: manifest.yaml",
            id="no such manifest",
        ),
        pytest.param(
            {}, "../x.yaml",
            "--manifest ../x.yaml: not a path in {top}; make it relative to that directory", id="outside",
        ),
        pytest.param(
            {".ccmignore": "*.yaml"}, "",
            "{top}/manifest.yaml: .ccmignore excludes the manifest itself; change the pattern", id="ignored",
        ),
    ],
)  # fmt: skip
def test_a_directory_that_cannot_be_sent_reports_why(
    tmp_path: Path, files: dict[str, str], manifest: str, said: str
) -> None:
    top = site(tmp_path, **files)

    with pytest.raises(InputError) as caught:
        read_content(top, manifest=manifest)

    assert str(caught.value) == said.format(top=top)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../etc/passwd", "files/../../x"])
def test_a_symlink_that_leads_out_is_refused(tmp_path: Path, target: str) -> None:
    top = site(tmp_path)
    (top / "link").symlink_to(target)

    with pytest.raises(InputError) as caught:
        read_content(top)

    assert str(caught.value) == (
        f"{top}/link: this symlink points outside the directory, to {target}, so nodes would refuse it; "
        "replace it with the file, or list it in .ccmignore"
    )


def test_a_fifo_is_refused(tmp_path: Path) -> None:
    top = site(tmp_path)
    os.mkfifo(top / "pipe")

    with pytest.raises(InputError) as caught:
        read_content(top)

    assert str(caught.value) == f"{top}/pipe: not a file, directory or symlink; list it in .ccmignore"


def test_a_missing_path_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_content(tmp_path / "none.yaml")

    assert str(caught.value) == f"{tmp_path}/none.yaml: cannot be read: No such file or directory"


def test_a_manifest_that_is_not_utf8_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_bytes(b"ccm:\n  resources: \xff\n")

    with pytest.raises(DocumentError) as caught:
        read_content(path)

    assert str(caught.value) == f"{path}:2: byte 0xff is not UTF-8: save the file as UTF-8"
